"""Measure what is missing of one subject (networks, averages and data for the loop), and build its evaluation."""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation import files
from subspaces.evaluation.display import Progress, counted
from subspaces.evaluation.evaluation import FILE, Evaluation, choices_of, in_order
from subspaces.evaluation.files import MEASUREMENTS, Measurements
from subspaces.evaluation.measuring import Data, Metrics, Scores, measure, members_of, outlier_metrics
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.plane import Network, Span, corners
from subspaces.evaluation.points import Item, coefficients, items_of, kind, plan, thinned, to_place
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.rows import (
    OUTLIERS,
    SPLIT,
    About,
    Answered,
    Examples,
    Plane,
    Row,
    examples_of,
    from_text,
    same_order,
    to_text,
)
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.tasks import Classification
from subspaces.text import listed


class PredictionWarning(UserWarning):
    """Predictions that are NaN."""


class Session:
    """The measurements of one subject; those that the folder of a run holds already are not repeated."""

    def __init__(self, subject: Subject, metrics: Sequence[Metric], settings: Settings, progress: Progress) -> None:
        self.subject, self.task, self.metrics, self.settings = subject, subject.task, list(metrics), settings
        self.progress, self.measured = progress, False
        self.known = Measurements(None if subject.folder is None else subject.folder / MEASUREMENTS)
        self.family = {"family": subject.checksum, "precision": str(subject.settings["precision"])}
        self.how = {**self.family, "statistics": settings.statistics_batches}
        self.broken: list[tuple[About, str, int, int]] = []  # NaN: whose, on what, how many of how many
        self.shown = [each for each in self.metrics if each.name in self.task.shown] or self.metrics[:2]  # by planes
        self.headlines = [each for each in self.metrics if each.headline] or self.metrics  # on shifted data

    @cached_property
    def predictor(self) -> Predictor:
        """Runs the networks of the subject."""
        return self.subject.predictor(self.subject.splits, self.settings.statistics_batches)

    def add(self, key: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Store a measurement, unless the same is there already."""
        if self.known.add(key, values):
            self.measured = True

    def walk(self, items: Sequence[Item]) -> None:
        """Measure what is missing of items on all splits."""
        splits = [Data(name) for name in sorted(self.subject.splits, key=lambda name: name != "validation")]
        missing = [item for item in items if any(self._is_missing(item, split) for split in splits)]
        total, left = (sum(len(item.points) for item in some) for some in (items, missing))
        tick = counted(self.progress, self.subject.name, total - left, total)
        for item in missing:
            temperatures: dict[str, float] = {}  # that are fitted on the validation examples, for the others
            for split in splits:
                temperatures |= self._walk(item, split, temperatures)
            tick(len(item.points))

    def _walk(self, item: Item, split: Data, temperatures: Mapping[str, float]) -> dict[str, float]:
        fits = split.name == "validation" and isinstance(self.task, Classification)

        def wanted(about: About, members: Sequence[int]) -> Metrics:
            return Metrics(about, members, self.metrics, self.task, fits, temperatures.get(str(about)))

        several, count = self._measure([item], split, wanted)
        diversity = next((found for each in several if (found := each.diversity()) is not None), None)
        for each in several:
            together = {"diversity": diversity} if each.about.kind == "ensemble" else {}
            self._add_row(each, split, count, {**each.found(), **together})
        return {str(each.about): each.fitted() for each in several if fits}

    def measure_other_data(self, items: Sequence[Item]) -> list[Data]:
        """Measure what is missing of items on shifted data and outliers, and return these data."""
        shifted = self.subject.shifted(self.settings.corruptions)
        outliers = self.subject.outliers(self.settings.outliers)
        inside: dict[str, dict[str, Tensor]] = {}  # the scores of the test examples
        for sets in filter(None, (shifted, outliers)):
            what = "shifts" if sets is shifted else "outliers"
            left = [(data, some) for data in sets if (some := [item for item in items if self._is_missing(item, data)])]
            tick = counted(self.progress, f"{self.subject.name}: {what}", len(sets) - len(left), len(sets))
            if sets is outliers and left:
                test = Data(SPLIT, partial(iter, self.predictor.splits[SPLIT]), group=OUTLIERS)
                inside = {str(each.about): each.found() for each in self._measure(items, test, Scores)[0]}
            for data, some in left:
                if sets is shifted:
                    rows, count = self._measure(some, data, partial(Metrics, metrics=self.headlines), joined=True)
                else:
                    rows, count = self._measure(some, data, Scores, labelled=False)
                for each in rows:
                    scores = inside.get(str(each.about))
                    metrics = None if scores is None else {"metrics": outlier_metrics(scores, each.found())}
                    self._add_row(each, data, count, metrics or each.found())
                tick(1)
        return [*shifted, *outliers]

    def _averages(self, data: Data) -> Sequence[str]:
        return self.task.averages[:1] if data.group else self.task.averages

    def _metrics(self, group: str) -> Sequence[Metric]:
        if group == OUTLIERS:
            return ()
        return self.headlines if group else self.metrics

    def _measure(
        self, items: Sequence[Item], data: Data, make: Callable[..., Any], **how: Any
    ) -> tuple[list[Any], int]:
        points, asked = members_of(items, self._averages(data))
        wanted = [make(about, members) for about, members in asked]
        return wanted, measure(self.predictor, points, data, wanted, **how)

    def _key(self, data: Data, about: About) -> dict[str, Any]:
        return {"of": "row", **self.how, **data.key, **vars(about)}

    def _is_missing(self, item: Item, data: Data) -> bool:
        """Return whether a row of an item is not known; loaders of the user may have changed, so theirs never are."""
        for about in item.rows(self._averages(data)):
            found = self.known.find(self._key(data, about), self._metrics(data.group))
            keeps = self.task.keeps and not data.group and about.kind == "point"
            if found is None or data.source == "given" or (keeps and "predicted" not in found):
                return True
        return False

    def _add_row(self, measured: Metrics | Scores, data: Data, count: int, found: dict[str, Any]) -> None:
        about = measured.about
        places = [coefficients(self.subject.shape, to_place(alpha)) for alpha in about.alphas]
        row = Row(coefficients=places, **vars(about), **data.key, count=count, **found)
        metrics = [each.name for each in self._metrics(data.group)] or list(row.metrics)
        values = {"row": row, "metrics": metrics, "images": self.predictor.statistics_images}
        if measured.broken:
            self.broken.append((about, data.name, measured.broken, count))
        if isinstance(measured, Metrics) and (kept := measured.kept()) is not None:
            values["predicted"] = to_text(kept[0])
            key = {"of": "labels", **self.family, "data": data.name}
            if (earlier := self.known.find(key)) is None:
                self.known.add(key, {"labels": to_text(kept[1])})
            else:
                same_order(data.name, from_text(earlier["labels"]).long(), kept[1])
        self.add(self._key(data, about), values)

    def measure_plane(self, networks: Sequence[Network]) -> None:
        """Measure the cells that are missing in the plane through three networks."""
        span, batches = Span(self.subject, networks), self.settings.plane_statistics_batches
        predictor = self.subject.predictor([SPLIT], batches, span.weights)
        count = next((row.count for row in self.rows() if row.data == SPLIT), 0)
        plane = span.plane(self.settings.cells, count, predictor.statistics_images, [each.name for each in self.shown])
        numbers = [f"{value:.6g}" for corner in plane.corners for value in (corner.x, corner.y)]  # up to rounding
        identity = {"name": plane.name, "corners": numbers, "cells": self.settings.cells, "count": count}
        cells = {"of": "cell", **self.family, "statistics": batches, "plane": identity}
        self.add({"of": "plane", **self.family, "name": plane.name}, {"plane": plane, "cells": cells})
        places = {(j, i): (x, y) for j, y in enumerate(plane.ys) for i, x in enumerate(plane.xs)}
        missing = [cell for cell in places if self.known.find({**cells, "at": cell}, self.shown) is None]
        tick = counted(self.progress, f"{self.subject.name}: plane", len(places) - len(missing), len(places))
        for cell in missing:
            wanted = Metrics(About("point", "cell", []), [0], self.shown)
            measure(predictor, [places[cell]], Data(SPLIT), [wanted])
            values = wanted.tally.values()
            self.add({**cells, "at": cell}, {"values": values, "metrics": list(values)})
            tick(1)

    # Results

    def planes(self) -> list[Plane]:
        """Return all planes of the family, with what is measured of their cells."""
        planes: dict[str, Plane] = {}
        for _, values in self.known.items(of="plane", **self.family):
            plane: Plane = files.build(Plane, values["plane"])
            if set(plane.values) <= {each.name for each in self.metrics}:
                for j, i in itertools.product(range(len(plane.ys)), range(len(plane.xs))):
                    found = self.known.find({**values["cells"], "at": [j, i]})
                    for name, grid in plane.values.items():
                        grid[j][i] = None if found is None else found["values"].get(name)
                planes[plane.name] = plane
        return [planes[name] for name in sorted(planes)]

    def rows(self, current: Sequence[Data] = ()) -> list[Row]:
        """Return all rows with these settings; of data with the same name and severity, those of the current source."""
        sources: dict[Any, str] = {}
        found: list[Row] = []
        for key, values in self.known.items(of="row", **self.how):
            wanted = {each.name for each in self._metrics(key["group"])}
            if wanted <= set(values["metrics"]):
                row: Row = files.build(Row, values["row"])
                if wanted:
                    kept = {name: value for name, value in row.metrics.items() if name in wanted}
                    scaled = row.scaled and {n: v for n, v in row.scaled.items() if n in {*wanted, "temperature"}}
                    row = dataclasses.replace(row, metrics=kept, scaled=scaled)
                found.append(row)
                sources[row.data, row.severity, row.group == OUTLIERS] = row.source
        sources |= {(each.name, each.severity, each.group == OUTLIERS): each.source for each in current}
        return in_order(row for row in found if sources[row.data, row.severity, row.group == OUTLIERS] == row.source)

    def examples(self, rows: Sequence[Row], earlier: Evaluation | None) -> Examples | None:
        """Return the examples whose predicted class changes; the earlier ones if its points are the same."""
        points, before = (
            [row for row in each if row.kind == "point" and row.data == SPLIT and not row.group]
            for each in (rows, [] if earlier is None else earlier.rows)
        )
        if earlier is not None and before == points:
            return earlier.examples
        stored = {
            str(key["alphas"][0]): from_text(values["predicted"]).view(2, -1)
            for key, values in self.known.items(of="row", **self.how, data=SPLIT, group="", kind="point")
            if "predicted" in values
        }
        alphas = [row.alphas[0] for row in points]
        if len(points) < 2 or not {str(alpha) for alpha in alphas} <= stored.keys():
            return None
        labels = self.known.find({"of": "labels", **self.family, "data": SPLIT}) or {}
        predicted = [stored[str(alpha)] for alpha in alphas]
        return examples_of(alphas, predicted, from_text(labels["labels"]).long(), self.subject.images)

    def images(self) -> int:
        """Return the number of images behind the batch-norm statistics; 0 without batch norm."""
        found = [values["images"] for _, values in self.known.items(of="row", **self.how) if "images" in values]
        return int(found[-1]) if found else 0

    def warn_of_broken(self) -> None:
        """Warn of predictions that are NaN."""
        if not self.broken:
            return
        about, data, broken, count = max(self.broken, key=lambda one: (one[2] / one[3], one[1] == SPLIT))
        of = "the network" if self.subject.networks else f"alpha = {' and '.join(map(str, about.alphas))}"
        others = f", beside {len(self.broken) - 1} other measurements with NaN" if len(self.broken) > 1 else ""
        warnings.warn(
            f"{self.subject.name}: {broken} of {count} predictions on the {data} examples are NaN at {of}{others}. "
            "They count as wrong, and NLL, calibration and the like are NaN: check the inputs for NaN and the weights "
            "for a training that diverged",
            PredictionWarning,
            stacklevel=3,
        )


def check(subject: Subject, settings: Settings, others: Sequence[Network]) -> None:
    """Raise for settings that do not fit a subject, before anything is measured."""
    subject.check_shifted(settings.corruptions)
    subject.outliers(settings.outliers)
    if settings.wants_plane and subject.networks:
        raise ArgumentError(f"plane=…: {subject.name} is no family of networks; expected a Subspace, or a run of one")
    if settings.wants_plane:
        corners(subject, others)
    if not _items_of(subject, settings)[1]:
        asked, usual = settings.answers or subject.answers, ", ".join(map(repr, subject.answers))
        raise ArgumentError(f"answers={listed(asked)}: {subject.name} has none of these; expected some such as {usual}")


def _items_of(subject: Subject, settings: Settings) -> tuple[list[Item], list[Answered]]:
    points: Any = {"grid": settings.grid, "random": settings.random, "triangle": settings.triangle}
    walk = [] if subject.networks else plan(subject.shape, **points, seed=subject.seed)
    family = subject.terms._replace(walk=walk)
    return items_of(family, settings.answers or subject.answers, subject.task.averages)


def evaluate(
    subject: Subject,
    metrics: Sequence[Metric],
    settings: Settings,
    others: Sequence[Network],
    progress: Progress,
    command: str = "",
) -> Evaluation:
    """Measure what is missing of one subject and return its evaluation; that of a run is also written to its folder.

    `command` is the command line, which is stored with the earlier ones.
    """
    session, folder = Session(subject, metrics, settings, progress), subject.folder
    items, answers = _items_of(subject, settings)
    session.walk(items)
    if settings.wants_plane:
        session.measure_plane(corners(subject, others))
    rows = session.rows(session.measure_other_data(thinned(subject.shape, items, answers, subject.task.averages[0])))
    earlier = Evaluation.load(folder) if folder is not None and (folder / FILE).exists() else None
    if earlier is not None and earlier.family != subject.checksum:
        earlier = None
    dataset = subject.dataset if earlier is None else earlier.dataset
    splits = {row.data: row.count for row in rows if not row.group}
    statistics = {"images": session.images(), **subject.extra, "batches": settings.statistics_batches}
    commands = [*([] if earlier is None else earlier.command.splitlines()), command]
    environment = subject.environment if earlier is None or session.measured else earlier.environment
    if subject.checksum is not None:
        environment = {**environment, "family": subject.checksum}
    shape = {"kind": kind(subject.shape), "vertices": subject.shape.vertices, "members": subject.terms.vertices}
    found = Evaluation(
        name=subject.name,
        shape={**shape, "type": type(subject.shape).__name__},
        task=subject.task.name,
        metrics=[each.described for each in session.metrics],
        answers=answers,
        environment=environment,
        dataset={**dataset, "splits": {**dataset["splits"], **splits}},
        statistics=statistics,
        rows=rows,
        planes=session.planes(),
        choices=choices_of(rows, session.shown),
        examples=session.examples(rows, earlier),
        command="\n".join(dict.fromkeys(filter(None, commands))),
        **subject.trained(statistics),
    )
    if folder is not None and found != earlier:
        found.save(folder)
    session.warn_of_broken()
    return found
