"""Measure what is missing of one subject: hand networks, averages and data to the loop, and keep the rows."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import Tensor

from subspaces.core.storage import damaged
from subspaces.errors import ArgumentError
from subspaces.evaluation import examples, files, shifted_data
from subspaces.evaluation.display import Progress, counted
from subspaces.evaluation.evaluation import REMEDY, in_order
from subspaces.evaluation.examples import Predicted
from subspaces.evaluation.files import MEASUREMENTS, Measurements
from subspaces.evaluation.measuring import Data, Metrics, Scores, measure, members_of
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.outliers import outlier_metrics
from subspaces.evaluation.points import Item, coefficients, to_place
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.rows import OUTLIERS, About, Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.tasks import Classification


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
                self._walk(item, split, temperatures)
            tick(len(item.points))

    def _walk(self, item: Item, split: Data, temperatures: dict[str, float]) -> None:
        fits = split.name == "validation" and isinstance(self.task, Classification)

        def wanted(about: About, members: Sequence[int]) -> Metrics:
            return Metrics(about, members, self.metrics, self.task, fits, temperatures.get(str(about)))

        rows, count = self._measure([item], split, wanted)
        diversity = next((found for each in rows if (found := each.diversity()) is not None), None)
        for each in rows:
            together = {"diversity": diversity} if each.about.kind == "ensemble" else {}
            self._add_row(each, split, count, {**each.found(), **together})
            if fits:
                temperatures[str(each.about)] = each.fitted()

    def measure_other_data(self, items: Sequence[Item]) -> list[Data]:
        """Measure what is missing of items on shifted data and outliers, and return these data."""
        shifted = shifted_data.sets_of(self.subject, self.settings.corruptions)
        outliers = shifted_data.outliers_of(self.subject, self.settings.outliers)
        inside: dict[str, dict[str, Tensor]] = {}  # the scores of the test examples
        for what, sets in (("shifts", shifted), ("outliers", outliers)):
            left = [(data, some) for data in sets if (some := [item for item in items if self._is_missing(item, data)])]
            if sets:
                tick = counted(self.progress, f"{self.subject.name}: {what}", len(sets) - len(left), len(sets))
            for data, some in left:
                if sets is shifted:
                    rows, count = self._measure(some, data, partial(Metrics, metrics=self.headlines), joined=True)
                    for each in rows:
                        self._add_row(each, data, count, each.found())
                else:
                    self._measure_outliers(items, some, data, inside)
                tick(1)
        return [*shifted, *outliers]

    def _measure_outliers(
        self, items: Sequence[Item], some: Sequence[Item], data: Data, inside: dict[str, dict[str, Tensor]]
    ) -> None:
        if not inside:
            test = Data("test", partial(iter, self.predictor.splits["test"]), group=OUTLIERS)
            inside |= {str(each.about): each.found() for each in self._measure(items, test, Scores)[0]}
        rows, count = self._measure(some, data, Scores, labelled=False)
        for each in rows:
            self._add_row(each, data, count, {"metrics": outlier_metrics(inside[str(each.about)], each.found())})

    def _averages(self, data: Data) -> Sequence[str]:
        return self.task.averages[:1] if data.group else self.task.averages

    def _metrics(self, group: str) -> Sequence[Metric]:
        if group == OUTLIERS:
            return ()
        return self.headlines if group else self.metrics

    def _measure(
        self, items: Sequence[Item], data: Data, make: Callable[..., Any], **how: Any
    ) -> tuple[list[Any], int]:
        points, passes, asked = members_of(items, self._averages(data))
        wanted = [make(about, members) for about, members in asked]
        return wanted, measure(self.predictor, points, data, wanted, passes=passes, seed=self.subject.seed, **how)

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
            values["predicted"] = kept[0].to_text()
            key = {"of": "labels", **self.family, "data": data.name}
            if (earlier := self.known.find(key)) is None:
                self.known.add(key, {"labels": examples.to_text(kept[1])})
            else:
                examples.same_order(data.name, examples.from_text(earlier["labels"]).long(), kept[1])
        self.add(self._key(data, about), values)

    # Results

    def rows(self, current: Sequence[Data] = ()) -> list[Row]:
        """Return all rows with these settings; of data with the same name and severity, those of the current source."""
        sources: dict[Any, str] = {}
        found: list[Row] = []
        for key, values in self.known.items(of="row", **self.how):
            wanted = {each.name for each in self._metrics(key["group"])}
            if not wanted <= set(values["metrics"]):
                continue
            row: Row = self.built(Row, values["row"])
            if wanted:
                kept = {name: value for name, value in row.metrics.items() if name in wanted}
                scaled = row.scaled and {
                    name: row.scaled[name] for name in row.scaled if name in {*wanted, "temperature"}
                }
                row = dataclasses.replace(row, metrics=kept, scaled=scaled)
            found.append(row)
            sources[row.data, row.severity, row.group == OUTLIERS] = row.source
        sources |= {(each.name, each.severity, each.group == OUTLIERS): each.source for each in current}
        return in_order(row for row in found if sources[row.data, row.severity, row.group == OUTLIERS] == row.source)

    def predicted(self, alpha: Any) -> Predicted | None:
        """Return the predictions of a point on the test examples, if they are kept."""
        wanted = {"data": examples.SPLIT, "group": "", "kind": "point", "alphas": [alpha]}
        rows = self.known.items(of="row", **self.how, **wanted)
        found = [values["predicted"] for _, values in rows if "predicted" in values]
        return Predicted.from_text(found[-1]) if found else None

    def labels(self) -> Tensor:
        """Return the labels of the test examples for which predictions are kept."""
        *_, (_, found) = self.known.items(of="labels", **self.family, data=examples.SPLIT)
        return examples.from_text(found["labels"]).long()

    def built(self, kind: Any, value: Any) -> Any:
        """Build a dataclass from a measurement; a damaged one is an error that names the file."""
        try:
            return files.build(kind, value)
        except ArgumentError as error:
            raise damaged(self.known.path or Path(MEASUREMENTS), error, REMEDY) from None

    def images(self) -> int:
        """Return the number of images behind the batch-norm statistics; 0 without batch norm."""
        found = [values["images"] for _, values in self.known.items(of="row", **self.how) if "images" in values]
        return int(found[-1]) if found else 0
