"""One figure of the paper on one network and data set: planned, measured, drawn and judged."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from subspaces.evaluation.comparing import Group, heading
from subspaces.evaluation.rows import OUTLIERS
from subspaces.evaluation.settings import Corruptions, Settings
from subspaces.evaluation.statistics import spread
from subspaces.experiments import locks
from subspaces.experiments.data import absent
from subspaces.experiments.evaluating.evaluate import evaluate
from subspaces.experiments.opening import training_of
from subspaces.experiments.paper.claims import HEADS, MANY, RULE, Judgement, counted
from subspaces.experiments.paper.figures import Figure
from subspaces.experiments.paper.measured import STANDARD, TWO, Measured
from subspaces.experiments.paper.scales import Setup
from subspaces.experiments.studies import grid, instability
from subspaces.experiments.studies.compare import SECOND, Comparison
from subspaces.experiments.studies.compare import plan as plan_comparison
from subspaces.experiments.studies.setting import Plan, Setting, same, train_missing
from subspaces.experiments.studies.tables import Drawing, Result, Table
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.reports.figures import draw_groups


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
        return cls(figure, setup, study, _obstacle(setup.standard, setting.data))

    @property
    def recipes(self) -> list[Recipe]:
        """Everything that is trained."""
        return self.study.recipes

    @property
    def setting(self) -> Setting:
        """Where and how."""
        return self.study.setting

    @property
    def size(self) -> str:
        """How many runs there are, and of how many epochs."""
        epochs = sorted({one.epochs for one in self.recipes})
        return f"{len(self.recipes)} × {'–'.join(map(str, dict.fromkeys((epochs[0], epochs[-1]))))}"

    def run(self) -> "Reproduced":
        """Train, measure, judge and write what is missing."""
        figure, setup, setting = self.figure, self.setup, self.setting
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


def _obstacle(recipe: Recipe, data: Path | None) -> str | None:
    """Return why a recipe cannot be trained here, with what to do about it; None if it can."""
    library, reasons = recipe.network.partition(":")[0], []
    if library in ("timm", "torchvision") and importlib.util.find_spec(library) is None:
        reasons.append(f"the network {recipe.network!r} needs {library}: pip install 'subspaces[{library}]'")
    return " and ".join(filter(None, (*reasons, absent(recipe.dataset, data)))) or None


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
    about = {**plan.figure.evaluation_on(scale), "cells": scale.cells, **plan.setting.measuring()}
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

    @property
    def result(self) -> Result:
        """The comparison or study that it stands on."""
        made: Result = self.found.result
        return made

    def tables(self) -> list[Table]:
        figure = self.plan.figure
        title = f"{figure.where}: {figure.shows} · {heading([*map(training_of, self.plan.recipes)])}"
        claims = Table(title, HEADS, [each.cells() for each in self.judged], left=2)
        return [claims, *self.result.tables()]

    def notes(self) -> list[str]:
        scale, verdicts = self.plan.setup.scale, counted([each.verdict for each in self.judged])
        return [f"Scale {scale.name}: {scale.meaning}. Claims: {verdicts}.", RULE, MANY, *self.result.notes()]

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
            "measured": self.result.summary(),
        }

    def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        return {self.name: summary["claims"], **self.result.rows(summary["measured"])}

    def draw(self) -> Drawing:
        picture = self.plan.figure.picture
        if picture in PICTURES:
            return PICTURES[picture](self.found)
        return draw_groups(picture, self.found.result.groups) if picture else self.result.draw()


# Pictures that only figures of the paper have


def with_two_networks(found: Measured) -> Drawing:
    """Draw accuracy along lines and curves, and the level of two networks together."""
    from subspaces.experiments.studies import drawing

    level = found.value("standard: runs", "accuracy")
    return drawing.along_with(found.result.groups, "two networks together", list(level.values()))


def planes(found: Measured) -> Drawing:
    """Draw the planes of one seed, as a plane is of one run."""
    firsts = [(group, group.evaluations[0]) for group in map(found.group, ("curve", "simplex", "line"))]
    drawn = [Group(group.label, [replace(one, planes=found.planes(one))]) for group, one in firsts]
    return draw_groups("plane", drawn, "accuracy")


def endpoints(found: Measured) -> Drawing:
    """Draw how different the ends of lines are, and two networks."""
    from subspaces.experiments.studies import drawing

    labels, names = [*(each for each in found.recipes if each != STANDARD), TWO], ("tv", "l2", "cos2")
    values = {each: {name: found.value(f"{each}: {name}", name) for name in names} for each in labels}
    means = {each: {name: spread(list(some.values())) for name, some in own.items()} for each, own in values.items()}
    return drawing.bars(heading([training_of(found.setup.standard)]), means, names)


PICTURES: dict[str, Callable[[Measured], Drawing]] = {
    "with two networks": with_two_networks,
    "planes": planes,
    "endpoints": endpoints,
}
