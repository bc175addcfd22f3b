"""The paper's figures, each by its name: planned, trained, measured, drawn and judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.experiments import locks
from subspaces.experiments.paper.claims import HEADS, MANY, RULE, VERDICTS, counted
from subspaces.experiments.paper.figures import FIGURES, Figure
from subspaces.experiments.paper.making import FigurePlan, Reproduced
from subspaces.experiments.paper.scales import SCALES, Scale, Setup
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.compare import SECOND
from subspaces.experiments.studies.setting import Folder, Setting, train_missing
from subspaces.experiments.studies.tables import Result, Table
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.scheduling import Failure
from subspaces.experiments.training.trainer import TrainingError
from subspaces.text import nearest

ALL = "all"


def reproduce(
    name: str | Sequence[str] = ALL,
    *,
    scale: str = "smoke",
    on: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    data: Folder | None = None,
    runs: Folder = "runs",
    out: Folder = "reproduced",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> "Reproduction":
    """Train and measure what is missing of figures of the paper, draw them, and judge what the paper claims.

    Runs are shared between figures, and with all other runs of the same recipes in the folder. What was interrupted
    continues.

    Args:
        name: of a figure, or several; `subspaces reproduce list` lists them. "all" are all.
        scale: "smoke", a small network on digits in minutes on a CPU, or "paper", the paper's own networks and data.
        on: the networks and data to make them on, such as "cifar10"; by default all that the paper has.
        seeds: train everything once for each of these; by default 0, 1 and 2.
        data: the folder with the data sets; by default `data`.
        runs: the folder of the run folders, those that are there and those that are trained.
        out: the folder for tables, pictures and claims.
        show: "bar" for progress bars, "json" for a line per epoch on standard output, "quiet".
        tensorboard: also write the log for TensorBoard, where that is installed.
        changes: any field of `Execution` to set.

    Example:
        >>> reproduction = ss.reproduce("along", scale="smoke", seeds=[0, 1])
        >>> [(each.claim.sentence, each.verdict) for one in reproduction.figures for each in one.judged]
    """
    where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show, "tensorboard": tensorboard}
    return run(plan(name, scale, Setting.of(seeds=seeds, **where, **changes), on))


@dataclass(frozen=True)
class ReproductionPlan:
    """All that is to be done for some figures, of which not all may be possible here."""

    scale: Scale
    seeds: list[int]
    every: list[FigurePlan]
    setting: Setting

    @property
    def plans(self) -> list[FigurePlan]:
        """What is possible here."""
        return [each for each in self.every if each.obstacle is None]

    @property
    def obstacles(self) -> dict[str, str]:
        """Why nothing is possible on a setup here, by its name."""
        return {each.setup.name: each.obstacle for each in self.every if each.obstacle is not None}

    @property
    def recipes(self) -> list[Recipe]:
        """Every run once, whichever figures share it."""
        return list({one.key: one for plan in self.plans for one in plan.recipes}.values())


def plan(
    name: str | Sequence[str], scale: str, setting: Setting, on: str | Sequence[str] | None = None
) -> ReproductionPlan:
    """Check everything and return what is to be done; nothing is."""
    size, known = SCALES.find(scale), {entry.name for entry in fields(Execution)}
    for field_name in setting.changes:
        if field_name not in known:
            raise ArgumentError(f"{field_name}=…: the scale decides what is trained; {nearest(field_name, known)}")
    seeds = checks.several("seeds", size.seeds if setting.seeds is None else setting.seeds, "numbers, such as [0, 1]")
    for seed in seeds:  # ensembles would have a network in common
        if isinstance(seed, int) and seed + SECOND in seeds:
            raise ArgumentError(f"seeds={seed}, {seed + SECOND}: the latter is that of the former's second network")
    every = [FigurePlan.of(*each, replace(setting, seeds=seeds)) for each in _chosen(name, size, on)]
    resolved = replace(setting, execution=Execution(**setting.changes), seeds=None, changes={})
    return ReproductionPlan(size, sorted(set(seeds)), every, resolved)


def _chosen(name: str | Sequence[str], scale: Scale, on: str | Sequence[str] | None) -> list[tuple[Figure, Setup]]:
    """Return figures of these names with each setup that they are made on, or with those of these names."""
    names = checks.all_of("name", name, (str,), "the name of a figure, or several")
    for one in names:
        if one != ALL and one not in FIGURES:
            raise ArgumentError(f"no figure {one!r}: {nearest(one, [*FIGURES, ALL])} (`subspaces reproduce list`)")
    figures = [figure for figure in FIGURES.values() if ALL in names or figure.name in names]
    every = [(figure, scale.setup(each)) for figure in figures for each in figure.on]
    setups = {(figure.name, setup.standard.key): (figure, setup) for figure, setup in every}
    if on is None:
        return list(setups.values())
    wanted = checks.all_of("on", on, (str,), "the name of a network and its data, such as cifar10, or several")
    known = dict.fromkeys(setup.name for _, setup in setups.values())
    for one in wanted:
        if one not in known:
            raise ArgumentError(f"on={one!r}: {nearest(one, known)}")
    return [(figure, setup) for figure, setup in setups.values() if setup.name in wanted]


def run(plan: ReproductionPlan, made: Callable[[Reproduced], None] = lambda one: None) -> "Reproduction":
    """Train, measure, draw, judge and write what is missing; `made` is called with each figure that is made.

    What is on one setup is trained together. Figures whose runs are all trained are made also where another run has
    failed, which is raised in the end.
    """
    if not plan.plans:
        raise ArgumentError(f"nothing of it is possible here: {'; '.join(dict.fromkeys(plan.obstacles.values()))}")
    figures, failures = list[Reproduced](), list[Failure]()
    with locks.made(plan.setting.out):
        for setup in dict.fromkeys(each.setup.standard.key for each in plan.plans):
            together = [each for each in plan.plans if each.setup.standard.key == setup]
            recipes = {one.key: one for each in together for one in each.recipes}
            try:
                train_missing(list(recipes.values()), together[0].setting)
            except (TrainingError, RunError) as error:
                failures.append(error)
            for one in together:
                if not failures or all(Run.under(one.setting.runs, each).finished for each in one.recipes):
                    figures.append(one.run())
                    made(figures[-1])
        if failures and not figures:
            raise failures[0]
        written = Reproduction(plan, figures).write(plan.setting.out)
    if failures:
        raise failures[0]
    return written


@dataclass(frozen=True)
class Reproduction(Result):
    """The claims of all figures that were made."""

    plan: ReproductionPlan
    figures: list[Reproduced]
    name: str = field(default="claims", kw_only=True)

    def tables(self) -> list[Table]:
        rows = [
            [made.plan.figure.name, made.plan.figure.where, made.plan.setup.name, *each.cells()]
            for made in self.figures
            for each in made.judged
        ]
        title = f"What the paper claims, at the scale {self.plan.scale.name}"
        return [Table(title, ("figure", "in the paper", "on", *HEADS), rows, left=5)]

    def notes(self) -> list[str]:
        verdicts = [each.verdict for made in self.figures for each in made.judged]
        return [
            f"Scale {self.plan.scale.name}: {self.plan.scale.meaning}.",
            f"{len(verdicts)} claims, {tables.named_seeds(self.plan.seeds)}: {counted(verdicts)}.",
            RULE,
            MANY,
            *(f"Not made, on {setup}: {reason}" for setup, reason in self.plan.obstacles.items()),
        ]

    def summary(self) -> dict[str, Any]:
        verdicts = [each.verdict for made in self.figures for each in made.judged]
        return {
            "scale": self.plan.scale.name,
            "meaning": self.plan.scale.meaning,
            "seeds": self.plan.seeds,
            "rule": RULE,
            "counts": {verdict: verdicts.count(verdict) for verdict in VERDICTS},
            "environments": tables.environments(Run.under(self.plan.setting.runs, one) for one in self.plan.recipes),
            "figures": [
                {**made.about(), "runs": len(made.plan.recipes), "claims": [each.summary() for each in made.judged]}
                for made in self.figures
            ],
            "not_made": [
                {"figure": each.figure.name, "setup": each.setup.name, "reason": each.obstacle}
                for each in self.plan.every
                if each.obstacle is not None
            ],
        }

    def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        return {self.name: [{**made.about(), **each.summary()} for made in self.figures for each in made.judged]}

    def draw(self) -> None:
        """Draw nothing: each figure has its own picture."""
