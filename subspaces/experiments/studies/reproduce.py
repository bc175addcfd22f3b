"""The paper's figures, each by its name: planned with their costs, trained, measured, drawn and judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.experiments import locks
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.catalogue import EXHIBITS, RULE, SCALES, Bench, Exhibit, Plan, Reproduced, Scale
from subspaces.experiments.studies.catalogue.claims import HEADS, MANY, VERDICTS, counted
from subspaces.experiments.studies.catalogue.compared import TWIN
from subspaces.experiments.studies.catalogue.costs import obstacle
from subspaces.experiments.studies.catalogue.exhibit import below
from subspaces.experiments.studies.setting import Folder, Setting, train_missing
from subspaces.experiments.studies.tables import Result, Table
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.scheduling import Failure
from subspaces.experiments.training.trainer import LastTrainingError, TrainingError
from subspaces.text import nearest

SCHEMA = 1
ALL = "all"
Place = tuple[Exhibit[Any], Bench]
"""An exhibit, and what it is made on."""


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
        name: of an exhibit, or several; `subspaces reproduce list` lists them. "all" are all.
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
        >>> [(each.claim.sentence, each.verdict) for one in reproduction.exhibits for each in one.judged]
    """
    where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show, "tensorboard": tensorboard}
    return run(plan(name, scale, Setting.of(seeds=seeds, **where, **changes), on))


class Obstacle(NamedTuple):
    """What cannot be made here, and why."""

    plan: Plan
    reason: str


@dataclass(frozen=True)
class Program:
    """All that is to be done for some exhibits, and what cannot be done here."""

    scale: Scale
    plans: list[Plan]
    obstacles: list[Obstacle]
    setting: Setting

    @property
    def recipes(self) -> list[Recipe]:
        """Every run once, whichever exhibits share it."""
        return list({one.key: one for plan in self.plans for one in plan.recipes}.values())

    @property
    def benches(self) -> list[list[Plan]]:
        """The plans by their bench: what is on one is trained together."""
        found: dict[str, list[Plan]] = {}
        for plan in self.plans:
            found.setdefault(plan.bench.base.key, []).append(plan)
        return list(found.values())


def plan(name: str | Sequence[str], scale: str, setting: Setting, on: str | Sequence[str] | None = None) -> Program:
    """Check everything and return what is to be done; nothing is."""
    size = SCALES.find(scale)
    known = {entry.name for entry in fields(Execution)}
    for field_name in setting.changes:
        if field_name not in known:
            raise ArgumentError(f"{field_name}=…: the scale decides what is trained; {nearest(field_name, known)}")
    setting = setting if setting.seeds is not None else replace(setting, seeds=size.seeds)
    _check_seeds(setting.seeds or ())
    plans, obstacles = list[Plan](), list[Obstacle]()
    chosen = [(exhibit, bench) for exhibit in named(name) for bench in exhibit.benches(size)]
    for exhibit, bench in _only(chosen, on):
        one = exhibit.plan(bench, below(setting, exhibit, bench))
        if (reason := obstacle(bench.base, setting.data)) is not None:
            obstacles.append(Obstacle(one, reason))
        else:
            plans.append(one)
    resolved = replace(setting, execution=Execution(**setting.changes), seeds=None, changes={})
    return Program(size, plans, obstacles, resolved)


def _check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds of which one is the twin of another: their ensembles would have a network in common."""
    for seed in checks.several("seeds", seeds, "one or more of them, such as [0, 1]"):
        if isinstance(seed, int) and seed + TWIN in seeds:
            raise ArgumentError(
                f"seeds={seed}, {seed + TWIN}: the second is kept for a twin of the first; take another"
            )


def _only(chosen: list[Place], on: str | Sequence[str] | None) -> list[Place]:
    """Return what is on these benches, or everything."""
    if on is None:
        return chosen
    wanted = checks.all_of("on", on, (str,), "the name of a network and its data, such as cifar10, or several")
    known = dict.fromkeys(bench.name for _, bench in chosen)
    for one in wanted:
        if one not in known:
            raise ArgumentError(f"on={one!r}: {nearest(one, known)}")
    return [(exhibit, bench) for exhibit, bench in chosen if bench.name in wanted]


def named(name: str | Sequence[str]) -> list[Exhibit[Any]]:
    """Return the exhibits of these names, each once."""
    several = checks.all_of("name", name, (str,), "the name of an exhibit, or several")
    for one in several:
        if one != ALL and one not in EXHIBITS:
            raise ArgumentError(f"no exhibit {one!r}: {nearest(one, [*EXHIBITS, ALL])} (`subspaces reproduce list`)")
    return [kind() for each, kind in EXHIBITS.items() if ALL in several or each in several]


def run(plan: Program, told: Callable[[Reproduced], None] = lambda made: None) -> "Reproduction":
    """Train, measure, draw, judge and write what is missing; `told` is told of each exhibit that is made.

    What is on one bench is trained together. Exhibits whose runs are all trained are made also where another has
    failed, which is raised in the end.
    """
    if not plan.plans:
        reasons = dict.fromkeys(each.reason for each in plan.obstacles)
        raise ArgumentError(f"nothing of it is possible here: {'; '.join(reasons)}")
    made, failures = list[Reproduced](), list[Failure]()
    with locks.made(plan.setting.out):
        for plans in plan.benches:
            failures += _train(plans)
            for one in (one for one in plans if not failures or _trained(one)):
                made.append(one.exhibit.run(one))
                told(made[-1])
        if failures and not made:
            raise failures[0]
        written = Reproduction(plan, made).write(plan.setting.out)
    if failures:
        raise failures[0]
    return written


def _train(plans: Sequence[Plan]) -> list[Failure]:
    """Train every run of plans on one bench together; return what went wrong with one, which stops no other."""
    together = {one.key: one for plan in plans for one in plan.recipes}
    try:
        train_missing(list(together.values()), plans[0].setting)
    except LastTrainingError:
        raise
    except (TrainingError, RunError) as error:
        return [error]
    return []


def _trained(plan: Plan) -> bool:
    return all(Run.under(plan.setting.runs, one).finished for one in plan.recipes)


@dataclass(frozen=True)
class Reproduction(Result):
    """The claims of all exhibits that were made."""

    name: ClassVar[str] = "claims"
    program: Program
    exhibits: list[Reproduced] = field(default_factory=list)

    def tables(self) -> list[Table]:
        rows = [
            [made.exhibit.name, made.exhibit.where, made.plan.bench.name, *each.cells()]
            for made in self.exhibits
            for each in made.judged
        ]
        title = f"What the paper claims, at the scale {self.program.scale.name}"
        return [Table(title, ("exhibit", "in the paper", "on", *HEADS), rows, left=5)]

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict."""
        verdicts = [each.verdict for made in self.exhibits for each in made.judged]
        return {verdict: verdicts.count(verdict) for verdict in VERDICTS}

    def notes(self) -> list[str]:
        scale = self.program.scale
        verdicts = [each.verdict for made in self.exhibits for each in made.judged]
        seeds = tables.named_seeds(self.seeds)
        missing = dict.fromkeys(f"{each.plan.bench.name}: {each.reason}" for each in self.program.obstacles)
        return [
            f"Scale {scale.name}: {scale.meaning}.",
            f"{len(verdicts)} claims, {seeds}: {counted(verdicts)}.",
            RULE,
            MANY,
            *(f"Not made, on {reason}" for reason in missing),
        ]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs, but for those that are in ensembles alone."""
        return sorted({one.seed for plan in self.program.plans for one in plan.study.recipes if not one.start_from})

    def summary(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "scale": self.program.scale.name,
            "meaning": self.program.scale.meaning,
            "seeds": self.seeds,
            "rule": RULE,
            "counts": self.counts,
            "environments": tables.environments(_runs(self.program)),
            "exhibits": [
                {
                    "exhibit": made.exhibit.name,
                    "where": made.exhibit.where,
                    "shows": made.exhibit.shows,
                    "bench": made.plan.bench.name,
                    "runs": len(made.plan.recipes),
                    "claims": [each.summary() for each in made.judged],
                }
                for made in self.exhibits
            ],
            "not_made": [
                {"exhibit": each.plan.exhibit.name, "bench": each.plan.bench.name, "reason": each.reason}
                for each in self.program.obstacles
            ],
        }

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        found = [
            {"exhibit": made.exhibit.name, "where": made.exhibit.where, "bench": made.plan.bench.name, **each.as_row()}
            for made in self.exhibits
            for each in made.judged
        ]
        return {"claims": found}

    def undrawn(self) -> list[str] | None:
        return []  # each exhibit has its own picture


def _runs(program: Program) -> list[Run]:
    return [Run.under(program.setting.runs, one) for one in program.recipes]
