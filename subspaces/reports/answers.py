"""How trained runs answer: which row stands for an answer, what it is called, what it costs, and how two compare."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from subspaces.evaluation.answers import OVER_RUNS, of_runs
from subspaces.evaluation.cache import Measured, Shelf
from subspaces.evaluation.record import Answered, Row
from subspaces.evaluation.statistics import Difference, Spread, paired, spread
from subspaces.experiments.evaluating.ensembles import FILE
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.reports.reading import Curve, Group, Reading, value

Seeds = tuple[int, ...]
Scores = dict[Seeds, dict[str, float]]
"""Metrics by the seed, or by the seeds of several runs."""


@dataclass(frozen=True)
class Answer:
    """One way in which the runs of a group answer, with its metrics for each seed, or for the seeds of several runs."""

    kind: str  # of a recipe's answers; or "alone", the vertices on average, or "runs", an ensemble of several
    name: str
    group: Group
    by_seeds: Scores
    networks: int  # at test
    rows: tuple[Row, ...] = ()  # one for each seed; none of what was measured otherwise
    runs: int = 1  # to train

    @property
    def label(self) -> str:
        """The group and the answer in words; the network of a single one goes without saying."""
        return self.group.label if self.name == "network" else f"{self.group.label}: {self.name}"

    @property
    def short(self) -> str:
        """The answer in one word."""
        return "ensemble" if self.networks > 1 else self.name.partition(" ")[0]

    @property
    def seeds(self) -> set[int]:
        """All seeds that it was measured with."""
        return {seed for seeds in self.by_seeds for seed in seeds}

    def spread(self, metric: str) -> Spread:
        """Return a metric over the seeds."""
        return spread([metrics.get(metric, float("nan")) for metrics in self.by_seeds.values()])

    def curve(self, metric: str) -> Curve:
        """Return a metric as a curve of one point."""
        return Curve(np.zeros(1), np.array([[value(row, metric)] for row in self.rows]))

    def risk(self) -> Curve:
        """Return the error over the coverage in percent, on the grid of the first seed."""
        curves = [row.risk_coverage for row in self.rows if row.risk_coverage is not None]
        grid = np.array(curves[0].coverage)
        return Curve(100 * grid, np.array([np.interp(grid, each.coverage, each.risk) for each in curves]))

    def at(self, seeds: Seeds, metric: str) -> float | None:
        """Return a metric with these seeds, or its mean over single ones; None where one is missing."""
        found = [self.by_seeds.get(seeds)] if seeds in self.by_seeds else [self.by_seeds.get((s,)) for s in seeds]
        values = [metrics.get(metric, float("nan")) for metrics in found if metrics is not None]
        return float(np.mean(values)) if len(values) == len(found) else None


@dataclass(frozen=True)
class Comparison:
    """A metric of two answers over the seeds that both have."""

    seeds: list[int]
    first: Spread
    second: Spread
    difference: Difference
    complete: bool  # neither has a seed that the other lacks


def compare(first: Answer, second: Answer, metric: str) -> Comparison | None:
    """Return how two answers compare, paired by the seed; None where they have no seed in common.

    An ensemble of runs is set against the mean over the seeds of its members.
    """
    units = max(first.by_seeds, second.by_seeds, key=lambda by: max(map(len, by)))
    found = {unit: (first.at(unit, metric), second.at(unit, metric)) for unit in units}
    pairs = {unit: (a, b) for unit, (a, b) in found.items() if a is not None and b is not None}
    if not pairs:
        return None
    ours, theirs = (list(side) for side in zip(*pairs.values(), strict=True))
    seeds = sorted({seed for unit in pairs for seed in unit})
    complete = set(seeds) == first.seeds == second.seeds
    return Comparison(seeds, spread(ours), spread(theirs), paired(ours, theirs), complete)


def answers(group: Group, split: str, measured: Iterable[Measured] = ()) -> list[Answer]:
    """Return how the runs of a group answer: first single vertices on average, then the method's own ways.

    `measured` are ensembles of several runs; those of the group come last.
    """
    found = [alone(group, split), *own(group, split), *scaled(group, split), *together(group, measured, split)]
    return [answer for answer in found if answer is not None]


def own(group: Group, split: str) -> list[Answer]:
    """Return the ways in which the family answers that were measured, its first choice first."""
    found, single = [], group.runs[0].single
    for each in group.runs[0].record.answers:
        rows = {(run.seed,): row for run in group.runs if (row := run.record.answer(each.name, split)) is not None}
        if rows:
            kind = "network" if single and each.name == "midpoint" else each.name
            scores: Scores = {seeds: row.metrics for seeds, row in rows.items()}
            found.append(Answer(kind, _words(group, each), group, scores, each.networks, tuple(rows.values())))
    return found


def _words(group: Group, answered: Answered) -> str:
    """Return what an answer is called; of what differs from run to run only what all have in common."""
    told = {each.words for run in group.runs for each in run.record.answers if each.name == answered.name}
    return answered.words if len(told) == 1 else OVER_RUNS.get(answered.name, answered.words)


def scaled(group: Group, split: str) -> list[Answer]:
    """Return the same after temperature scaling, where temperatures were fitted in every run."""
    return [
        replace(
            answer,
            kind="scaled",
            name=f"{answer.name}, temperature-scaled",
            by_seeds={s: r.metrics | (r.scaled or {}) for s, r in zip(answer.by_seeds, answer.rows, strict=True)},
            rows=(),
        )
        for answer in own(group, split)
        if all(row.scaled is not None for row in answer.rows)
    ]


def first(group: Group, split: str) -> Answer:
    """Return the family's own answer, or say that it was not measured in a run."""
    check_measured(group, split, group.runs[0].record.answers[:1])
    return own(group, split)[0]


def check_measured(group: Group, split: str, wanted: Iterable[Answered]) -> None:
    """Refuse runs of which an answer was not measured on a split."""
    for run in group.runs:
        run.rows(split)
        for each in wanted:
            if run.record.answer(each.name, split) is None:
                raise RunError(f"{run.folder} has no {each.words} on {split!r}: run `subspaces evaluate {run.folder}`")


def alone(group: Group, split: str) -> Answer | None:
    """Return one vertex without the others, on average over them; None for single networks."""
    found: Scores = {}
    shape = group.runs[0].shape
    for run in group.runs:
        rows = [] if run.single else ends_of(run, split)
        if rows:
            found[(run.seed,)] = {name: float(np.mean([row.metrics[name] for row in rows])) for name in rows[0].metrics}
    word = "ends" if (shape["kind"], shape["members"]) == ("interval", "vertices") else shape["members"]
    return Answer("alone", f"{word}, on average", group, found, 1) if found else None


def ends_of(run: Reading, split: str) -> list[Row]:
    """Return the two ends of a line or curve, or the vertices of a simplex."""
    if run.interval:
        points = run.points(split)
        return [points[alpha] for alpha in (0.0, 1.0)] if {0.0, 1.0} <= set(points) else []
    return [row for row in run.rows(split) if row.kind == "point" and row.role == "vertex"]


def together(group: Group, measured: Iterable[Measured], split: str) -> list[Answer]:
    """Return ensembles of independent runs of a group by their size, no run in two of one size."""
    seeds = {run.record.family: run.seed for run in group.runs}
    found: dict[int, Scores] = {}
    for one in measured:
        families = one.key["families"]
        members = {seeds[family] for family in families if family in seeds}
        scores = found.setdefault(len(families), {})
        if members and split in one.metrics and not members & {seed for each in scores for seed in each}:
            scores[tuple(sorted(members))] = one.metrics[split]
    return [
        Answer("runs", of_runs(size), group, scores, size, runs=size)
        for size, scores in sorted(found.items())
        if scores
    ]


def beside(groups: Sequence[Group], *folders: Path) -> list[Measured]:
    """Return what `ensembles.json` holds, in the folders of the runs and in these."""
    around = [run.folder.parent for group in groups for run in group.runs]
    places = dict.fromkeys(folder.resolve() for folder in (*around, *folders))
    return [one for place in places for one in Shelf(place / FILE).read()]


def of_these(measured: Iterable[Measured], groups: Sequence[Group], split: str, images: int) -> list[Measured]:
    """Return the ensembles of networks that were trained by one of these recipes, with at least one of these runs."""
    runs = {family: run for group in groups for run in group.runs if (family := run.record.family) is not None}
    found: dict[tuple[str, ...], Measured] = {}
    for one in measured:
        families = tuple(one.key["families"])
        known = [runs[family] for family in families if family in runs]
        if known and one.images.get(split) == images and _alike(one, known[0], runs):
            found.setdefault(tuple(sorted(families)), one)
    return list(found.values())


def _alike(one: Measured, first: Reading, runs: dict[str, Reading]) -> bool:
    """Say whether all members have the recipe of the first, and the ensemble its batch-norm statistics."""

    def recipe(name: str, family: str) -> Recipe | None:
        if family in runs:
            return runs[family].recipe
        try:  # one that is not shown, if its folder holds the network that was measured
            run = Run.open(first.folder.parent / Path(name).name)
            return run.recipe if run.family_checksum == family else None
        except RunError:
            return None

    members = [recipe(*each) for each in zip(one.key["runs"], one.key["families"], strict=True)]
    told = [None if each is None else each.distinguishing() for each in (first.recipe, *members)]
    same = told[0] is not None and all(each == told[0] for each in told)
    return same and one.key.get("batches") == first.record.statistics.get("batches")


def standard_for(group: Group, groups: Sequence[Group]) -> Group | None:
    """Return the standard training that differs from a method's in nothing but the method."""
    if group.recipe is None:
        return None
    told = group.recipe.distinguishing().keys() & group.recipe.common().keys() - {"method", "trunk"}
    wanted = {name: group.recipe.common()[name] for name in told}
    for other in groups:
        if other.recipe is not None and other.recipe.method == "standard" and other is not group:
            common = other.recipe.common()
            if all(name in common and common[name] == value for name, value in wanted.items()):
                return other
    return None


def confident(groups: Sequence[Group], split: str, part: str) -> list[Answer]:
    """Return what stands for each group in a figure of confidences, if it has that part, which not every task has."""
    found = headed(groups, split)
    for answer in found:
        if any(getattr(row, part) is None for row in answer.rows):
            what = part.replace("_", " over ")
            raise RunError(f"{answer.label} has no {what}: expected a classification of examples")
    return found


def headed(groups: Iterable[Group], split: str) -> list[Answer]:
    """Return what stands for each group in a figure: its own first answer, and its first ensemble."""
    every = [own(group, split) for group in groups]
    return [each for mine in every for each in (*mine[:1], *[one for one in mine[1:] if one.networks > 1][:1])]


def answered(group: Group, label: str, split: str) -> str:
    """Return a label with what answers for the group: a single network needs no word."""
    return label if group.runs[0].single else f"{label}: {first(group, split).short}"
