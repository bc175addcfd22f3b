"""The paper's figures, each by its name: planned, trained, measured, drawn and judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.comparing import Group, heading
from subspaces.evaluation.rows import OUTLIERS
from subspaces.evaluation.settings import Corruptions, Settings
from subspaces.experiments import locks
from subspaces.experiments.evaluating.evaluate import evaluate
from subspaces.experiments.opening import training_of
from subspaces.experiments.paper.claims import HEADS, MANY, RULE, VERDICTS, Judgement, counted
from subspaces.experiments.paper.figures import FIGURES, SCALES, Figure, Scale, Setup
from subspaces.experiments.paper.measured import PICTURES, STANDARD, Measured
from subspaces.experiments.studies import grid, instability, tables
from subspaces.experiments.studies.compare import SECOND, Comparison
from subspaces.experiments.studies.compare import plan as plan_comparison
from subspaces.experiments.studies.setting import Folder, Plan, Setting, same, train_missing
from subspaces.experiments.studies.tables import Drawing, Result, Table
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.scheduling import Failure
from subspaces.experiments.training.trainer import TrainingError
from subspaces.reports.figures import draw_groups
from subspaces.text import nearest


@dataclass(frozen=True)
class FigurePlan:
    """All that a figure takes on one setup."""

    figure: Figure
    setup: Setup
    study: Plan[Any]
    obstacle: str | None  # why it is not possible here, with what to do about it

    @classmethod
    def of(cls, figure: Figure, setup: Setup, setting: Setting) -> "FigurePlan":
        """Check everything and return what is to be done; nothing is."""
        study = _study(figure, setup, replace(setting, out=setting.out / figure.name / setup.name))
        return cls(figure, setup, study, setup.obstacle(setting.data))

    @property
    def recipes(self) -> list[Recipe]:
        """Everything that is trained."""
        return self.study.recipes

    @property
    def size(self) -> str:
        """How many runs there are, and of how many epochs."""
        epochs = sorted({one.epochs for one in self.recipes})
        return f"{len(self.recipes)} × {'–'.join(map(str, dict.fromkeys((epochs[0], epochs[-1]))))}"

    def run(self) -> "Reproduced":
        """Train, measure, judge and write what is missing."""
        figure, setup, setting = self.figure, self.setup, self.study.setting
        with locks.made(setting.out):
            runs = train_missing(self.recipes, setting)
            if figure.planes:
                _measure_planes(self, runs)
            result = self.study.measure(runs)
            if isinstance(result, Comparison):
                settings = Settings.of(figure.evaluation_on(setup.scale))
                result = replace(result, groups=[_seen(each, settings) for each in result.groups])
            found = Measured(setup, figure.recipes_on(setup), result, setting)
            judged = [claim.judge(found.value) for claim in figure.claims_on(setup)]
            return Reproduced(self, found, judged).write(setting.out)


def _study(figure: Figure, setup: Setup, setting: Setting) -> Plan[Any]:
    """Return the plan of the comparison or study that a figure is."""
    scale, recipes = setup.scale, figure.recipes_on(setup)
    some, alone = list(recipes.values()), replace(setting, ensembles=())
    match figure.study:
        case "comparison":
            found = plan_comparison(some, alone, None)
            standard = [one for one in found.compared if figure.second and same(one, recipes[STANDARD])]
            second = [replace(one, seed=one.seed + SECOND) for one in standard]
            return replace(found, second=second, scaled=False, about=figure.evaluation_on(scale))
        case "instability":
            return instability.plan(setup.recipe(), setting, scale.shared, scale.models, scale.draws)
        case "integral":
            changes = {**setting.changes, "learning_rate": scale.integral_rate}
            return grid.plan_integral(some, replace(setting, changes=changes), scale.levels)
        case "noise":
            changes = {**setting.changes, "validation": scale.validation}
            lists = scale.lists if figure.tried else {}
            return grid.plan(some, replace(alone, changes=changes), scale.levels, lists)
    return grid.plan(some, alone, getattr(scale, figure.study), {}, over=figure.study, name=figure.study)


def _measure_planes(plan: FigurePlan, runs: Sequence[Run]) -> None:
    """Measure the plane of each curve and simplex, and that through each line and standard training."""
    scale = plan.setup.scale
    about = {**plan.figure.evaluation_on(scale), "cells": scale.cells, **plan.study.setting.measuring()}
    by_seed = {run.recipe.seed: run.folder for run in runs if run.recipe.method == STANDARD}
    evaluate([run for run in runs if run.recipe.method in ("curve", "simplex")], plane=True, **about)
    for run in runs:
        if run.recipe.method == "line":
            evaluate(run, through=[by_seed[run.recipe.seed]], **about)


def _seen(group: Group, settings: Settings) -> Group:
    """Return a group with nothing but what these settings measure along a line or curve and on corrupted images.

    Its evaluations may have more, of other figures or of the user's: what is drawn and claimed must not depend on it.
    """
    frame, corrupted = group.frame, settings.corruptions
    places = {round(each, 9) + 0.0 for alpha in settings.grid for each in (alpha, 1 - alpha)} | {0.5}
    here = (frame["role"] != "along") | frame["alphas"].map(places.issuperset)
    names, severities = (corrupted.names, corrupted.severities) if isinstance(corrupted, Corruptions) else ((), ())
    wanted = frame["data"].isin(names or ()) & frame["severity"].isin(severities)
    return replace(group, rows=frame[here & (frame["group"].isin(("", OUTLIERS)) | wanted)])


@dataclass(frozen=True)
class Reproduced(Result):
    """A figure on one setup: its claims with their verdicts, and the table and picture that they stand on."""

    plan: FigurePlan
    found: Measured
    judged: list[Judgement]
    name: str = field(default="reproduction", kw_only=True)

    def tables(self) -> list[Table]:
        figure = self.plan.figure
        title = f"{figure.where}: {figure.shows} · {heading([*map(training_of, self.plan.recipes)])}"
        claims = Table(title, HEADS, [each.cells() for each in self.judged], left=2)
        return [claims, *self.found.result.tables()]

    def notes(self) -> list[str]:
        scale, verdicts = self.plan.setup.scale, counted([each.verdict for each in self.judged])
        return [f"Scale {scale.name}: {scale.meaning}. Claims: {verdicts}.", RULE, MANY, *self.found.result.notes()]

    def about(self) -> dict[str, Any]:
        """Return which figure it is, and on what."""
        figure = self.plan.figure
        return {"figure": figure.name, "where": figure.where, "shows": figure.shows, "setup": self.plan.setup.name}

    def summary(self) -> dict[str, Any]:
        return {
            **self.about(),
            "scale": self.plan.setup.scale.name,
            "rule": RULE,
            "claims": [each.summary() for each in self.judged],
            "measured": self.found.result.summary(),
        }

    def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        return {self.name: summary["claims"], **self.found.result.rows(summary["measured"])}

    def draw(self) -> Drawing:
        picture = self.plan.figure.picture
        if picture in PICTURES:
            return PICTURES[picture](self.found)
        drawn: Drawing = draw_groups(picture, self.found.result.groups) if picture else self.found.result.draw()
        return drawn


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
        data, runs, out, show: as in `compare`.
        changes: any field of `Execution` to set.

    Example:
        >>> reproduction = ss.reproduce("simplex-midpoint", scale="smoke", seeds=[0, 1])
        >>> [(each.claim.sentence, each.verdict) for one in reproduction.figures for each in one.judged]
    """
    where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show}
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
    setting = replace(setting, changes={**size.execution, **setting.changes})
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
                train_missing(list(recipes.values()), together[0].study.setting)
            except (TrainingError, RunError) as error:
                failures.append(error)
            for one in together:
                if not failures or all(Run.under(plan.setting.runs, each).finished for each in one.recipes):
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

    @property
    def judged(self) -> list[tuple[Reproduced, Judgement]]:
        """Every claim with its figure."""
        return [(made, each) for made in self.figures for each in made.judged]

    def tables(self) -> list[Table]:
        title = f"What the paper claims, at the scale {self.plan.scale.name}"
        rows = [
            [made.plan.figure.name, made.plan.figure.where, made.plan.setup.name, *each.cells()]
            for made, each in self.judged
        ]
        return [Table(title, ("figure", "in the paper", "on", *HEADS), rows, left=5)]

    def notes(self) -> list[str]:
        verdicts = [each.verdict for _, each in self.judged]
        return [
            f"Scale {self.plan.scale.name}: {self.plan.scale.meaning}.",
            f"{len(verdicts)} claims, {tables.named_seeds(self.plan.seeds)}: {counted(verdicts)}.",
            RULE,
            MANY,
            *(f"Not made, on {setup}: {reason}" for setup, reason in self.plan.obstacles.items()),
        ]

    def summary(self) -> dict[str, Any]:
        verdicts = [each.verdict for _, each in self.judged]
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
        return {self.name: [{**made.about(), **each.summary()} for made, each in self.judged]}

    def draw(self) -> None:
        """Draw nothing: each figure has its own picture."""
