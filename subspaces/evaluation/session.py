"""Measuring what is missing of one subject: lists of networks, averages and data, which are handed to the loop."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from subspaces.core.files import damaged
from subspaces.errors import ArgumentError
from subspaces.evaluation import examples, files, outliers, shifted_data
from subspaces.evaluation.choices import greedy
from subspaces.evaluation.display import counted
from subspaces.evaluation.evaluation import REMEDY, merged
from subspaces.evaluation.examples import Predicted
from subspaces.evaluation.images import Progress
from subspaces.evaluation.measurements import FILE, Measurements
from subspaces.evaluation.measuring import Distances, Metrics, measure, members_of
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.planning import thinned
from subspaces.evaluation.points import Item, average_of, row_of, to_alpha
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.rows import OUTLIERS, About, Answered, Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Data, Subject
from subspaces.evaluation.tasks import Classification

PRECISIONS = ("float32", "bfloat16")


class Broken(NamedTuple):
    """Predictions that are NaN: whose, on what, how many of how many."""

    about: About
    data: str
    broken: int
    of: int


class Session:
    """Measures one subject; of the run in a folder what is there already is not measured again."""

    def __init__(self, subject: Subject, metrics: Sequence[Metric], settings: Settings, progress: Progress) -> None:
        self.subject, self.task, self.metrics, self.settings = subject, subject.task, list(metrics), settings
        self.progress, self.measured = progress, False
        self.known = Measurements(None if subject.folder is None else subject.folder / FILE)
        self.family = {"family": subject.checksum}
        self.how = {**self.family, "statistics": settings.statistics_batches}
        own = str(subject.settings["precision"])
        # whatever the device chooses by itself may change from one call to the next; what is asked for is kept
        self.precisions = [own] if settings.precision != "auto" else list(dict.fromkeys([own, *PRECISIONS]))
        self.broken: list[Broken] = []

    @cached_property
    def predictor(self) -> Predictor:
        """What predicts at the points of the subject."""
        return self.subject.predictor(self.subject.splits, self.settings.statistics_batches)

    @property
    def shown(self) -> list[Metric]:
        """The metrics that planes show and by which points are chosen: those that the task names, or the first two."""
        return [each for each in self.metrics if each.name in self.task.shown] or self.metrics[:2]

    @property
    def headlines(self) -> list[Metric]:
        """The metrics that are measured on shifted data."""
        return [each for each in self.metrics if each.headline] or self.metrics

    def find(self, key: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> dict[str, Any] | None:
        """Return what was measured of a key, in a precision that may be taken."""
        names = [each.name for each in metrics]
        found = (self.known.find({**key, "precision": precision}, names) for precision in self.precisions)
        return next((each for each in found if each is not None), None)

    def add(self, key: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Keep what was measured, and before the first of it where."""
        precision = {"precision": self.precisions[0]}
        if not self.measured:
            here = {**self.subject.environment}
            key_of_place = {"of": "environment", **self.how, **precision, "where": {**here, "time": ""}}
            if self.known.find(key_of_place) is None:
                self.known.add(key_of_place, {"time": here.get("time", "")})
            self.measured = True
        self.known.add({**key, **precision}, values)

    # Rows

    def key(self, data: Data, about: About) -> dict[str, Any]:
        """Return what a row is of, and how it is made."""
        return {"of": "row", **self.how, **data.key, **vars(about)}

    def missing(
        self, items: Sequence[Item], data: Data, metrics: Sequence[Metric], averages: Sequence[str]
    ) -> list[Item]:
        """Return the items that are not, or not wholly, measured; nobody knows what loaders of the user's own hold."""
        if data.group and data.source == "given":
            return list(items)

        def whole(item: Item) -> bool:
            for about in item.rows(averages):
                found = self.find(self.key(data, about), metrics)
                keeps = self.task.keeps and not data.group and about.kind == "point"
                if found is None or (keeps and "predicted" not in found):
                    return False
            return True

        return [item for item in items if not whole(item)]

    def walk(self, items: Sequence[Item]) -> bool:
        """Measure what is missing of items on all splits, and say whether there was any."""
        splits = [Data(name, source="") for name in sorted(self.subject.splits, key=lambda name: name != "validation")]
        lacking = [item for split in splits for item in self.missing(items, split, self.metrics, self.task.averages)]
        missing = [item for item in items if item in lacking]
        total, left = (sum(len(item.points) for item in some) for some in (items, missing))
        tick = counted(self.progress, self.subject.name, total - left, total)
        for item in missing:
            self._walk(item, splits)
            tick(len(item.points))
        return bool(missing)

    def _walk(self, item: Item, splits: Sequence[Data]) -> None:
        """Measure an item; a temperature that is fitted on the validation examples is for the others."""
        temperatures: list[float | None] = [None] * len(item.rows(self.task.averages))
        for split in splits:
            fits = split.name == "validation" and isinstance(self.task, Classification)
            points, passes, asked = members_of([item], self.task.averages)
            wanted = [
                Metrics(about, members, self.metrics, known, fits, self.task.keeps and about.kind == "point", True)
                for (about, members), known in zip(asked, temperatures, strict=True)
            ]
            distances = Distances(self.task.distances, wanted[-1].members) if item.ensemble else None
            for each in wanted:
                each.distances = distances if each.about.kind == "ensemble" else None
            outputs = self.predictor.outputs(points, split.name, passes=passes, seed=self.subject.seed)
            count = measure(self.task, outputs, [*wanted, *([] if distances is None else [distances])])
            if not count:
                raise ArgumentError(f"the {split.name} loader has no examples: expected at least one batch")
            for each in wanted:
                self._add_row(each, split, count, self.metrics)
            if fits:
                temperatures = [each.fitted() for each in wanted]

    def _add_row(self, found: Metrics, data: Data, count: int, metrics: Sequence[Metric]) -> None:
        if found.tally.broken:
            self.broken.append(Broken(found.about, data.name, found.tally.broken, count))
        row = row_of(self.subject.shape, found.about, **data.key, count=count, **found.found())
        values = {
            "row": files.plain(row),
            "metrics": [each.name for each in metrics],
            "images": self.predictor.statistics_images,
        }
        if (kept := found.kept()) is not None:
            predicted, labels = kept
            key = {"of": "labels", **self.family, "data": data.name, "precision": self.precisions[0]}
            earlier = self.known.find(key)
            if earlier is None:
                self.known.add(key, {"labels": examples.to_text(labels)})
            else:
                examples.same_order(data.name, examples.from_text(earlier["labels"]).long(), labels)
            values["predicted"] = predicted.to_text()
        self.add(self.key(data, found.about), values)

    def soup(self) -> tuple[int, ...]:
        """Return the vertices of the greedy soup; what is tried are points of the family, as measured as the others."""
        count, (metric, *_) = self.subject.shape.vertices, self.shown
        tick = counted(self.progress, f"{self.subject.name}: soup", 0, 2 * count)

        def merit(vertices: tuple[int, ...]) -> float:
            place = average_of(self.subject.shape, vertices)
            known = {str(row.alphas): row for row in self.rows() if row.data == "validation" and row.kind == "point"}
            row = known.get(str([to_alpha(place)]))
            if row is None:
                self.walk([Item("candidate", (place,))])
                row = next(row for row in self.rows() if row.data == "validation" and row.alphas == [to_alpha(place)])
            tick(1)
            return metric.merit(row.metrics[metric.name])

        return greedy(range(count), merit)

    def shifts(self, items: Sequence[Item], answers: Sequence[Answered]) -> list[Data]:
        """Measure what is missing on shifted data: some points along the walk, and all answers."""
        sets, averages = shifted_data.sets_of(self.subject, self.settings.corruptions), self.task.averages[:1]
        chosen = thinned(self.subject, items, answers)
        missing = [(each, some) for each in sets if (some := self.missing(chosen, each, self.headlines, averages))]
        if sets:
            tick = counted(self.progress, f"{self.subject.name}: shifts", len(sets) - len(missing), len(sets))
        for data, some in missing:
            points, passes, asked = members_of(some, averages)
            wanted = [Metrics(about, members, self.headlines) for about, members in asked]
            outputs = self.predictor.outputs(points, data.batches(), passes=passes, seed=self.subject.seed)
            count = measure(self.task, outputs, wanted, joined=True)
            if not count:
                raise ArgumentError(f"the loader of {data.name!r} has no examples: expected at least one batch")
            for each in wanted:
                self._add_row(each, data, count, self.headlines)
            tick(1)
        return sets

    def outliers(self, items: Sequence[Item], answers: Sequence[Answered]) -> list[Data]:
        """Measure what is missing against outliers: some points along the walk, and all answers."""
        sets = outliers.sets_of(self.subject, self.settings.outliers)
        chosen = thinned(self.subject, items, answers)
        missing = [(each, some) for each in sets if (some := self.missing(chosen, each, (), self.task.averages[:1]))]
        if sets:
            tick = counted(self.progress, f"{self.subject.name}: outliers", len(sets) - len(missing), len(sets))
        if missing:
            inside = self._scores(chosen, self.subject.tested(), labelled=True)
        for data, some in missing:
            outside = self._scores(some, data.batches(), labelled=False)
            for name, (about, scores) in outside.items():
                unsure = scores["entropy"]
                if broken := int(unsure.isnan().sum()):
                    self.broken.append(Broken(about, data.name, broken, len(unsure)))
                metrics = outliers.told_apart(inside[name][1], scores)
                row = row_of(self.subject.shape, about, **data.key, count=len(unsure), metrics=metrics)
                self.add(self.key(data, about), {"row": files.plain(row), "metrics": list(metrics)})
            tick(1)
        return sets

    def _scores(
        self, items: Sequence[Item], batches: Any, labelled: bool
    ) -> dict[str, tuple[About, dict[str, Tensor]]]:
        """Return the scores of all examples for every row of items."""
        points, passes, asked = members_of(items, self.task.averages[:1])
        wanted = [outliers.Scores(about, members) for about, members in asked]
        seed = self.subject.seed
        measure(self.task, self.predictor.outputs(points, batches, passes=passes, seed=seed, labelled=labelled), wanted)
        return {str(each.about): (each.about, each.found()) for each in wanted}

    def note(self, key: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Keep what describes measurements, unless it is kept already."""
        if self.find(key) != json.loads(json.dumps(values)):
            self.add(key, values)

    # What it all comes to

    def items(self, **parts: Any) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
        """Yield what is known under a key with these parts, what counts more after what counts less."""
        for precision in reversed(self.precisions):
            yield from self.known.items(**parts, precision=precision)

    def rows(self, asked: Sequence[Data] = ()) -> list[Row]:
        """Return all rows that were made so; of data with one name and severity of one source, that of `asked`."""
        names = {"": [each.name for each in self.metrics], OUTLIERS: None}
        headlines = [each.name for each in self.headlines]
        sources: dict[Any, str] = {}
        found: list[Row] = []
        for key, values in self.items(of="row", **self.how):
            wanted = names.get(key["group"], headlines)
            if wanted is not None and not set(wanted) <= set(values["metrics"]):
                continue
            row = self._row(values, wanted)
            found.append(row)
            sources[row.data, row.severity, row.group == OUTLIERS] = row.source
        sources |= {(each.name, each.severity, each.group == OUTLIERS): each.source for each in asked}
        return merged(
            [], (row for row in found if sources[row.data, row.severity, row.group == OUTLIERS] == row.source)
        )

    def _row(self, values: dict[str, Any], wanted: Sequence[str] | None) -> Row:
        row: Row = self.built(Row, values["row"])
        if wanted is None or len(wanted) == len(values["metrics"]):
            return row
        scaled = row.scaled and {name: row.scaled[name] for name in (*wanted, "temperature") if name in row.scaled}
        metrics = {name: row.metrics[name] for name in wanted if name in row.metrics}
        return dataclasses.replace(row, metrics=metrics, scaled=scaled)

    def predicted(self, alpha: Any, split: str) -> Predicted | None:
        """Return what a point predicts for the examples of a split."""
        wanted = {"data": split, "group": "", "kind": "point", "alphas": [alpha]}
        found = [each["predicted"] for _, each in self.items(of="row", **self.how, **wanted) if "predicted" in each]
        return Predicted.from_text(found[-1]) if found else None

    def labels(self, split: str) -> Tensor:
        """Return the labels of a split, as far as they are kept."""
        *_, (_, found) = self.items(of="labels", **self.family, data=split)
        return examples.from_text(found["labels"]).long()

    def built(self, kind: Any, value: Any) -> Any:
        """Return what a file holds as a type."""
        try:
            return files.build(kind, value)
        except ArgumentError as error:
            raise damaged(self.known.path or Path("measurements"), error, REMEDY) from None

    def images(self) -> int:
        """Return of how many images the batch-norm statistics are; 0 of none."""
        found = [values["images"] for _, values in self.items(of="row", **self.how) if "images" in values]
        return int(found[-1]) if found else 0

    def environment(self) -> dict[str, Any]:
        """Return where, and with which versions, the first was measured; "later" has where it went on."""
        found = [{**key["where"], **values} for key, values in self.known.items(of="environment", **self.how)]
        known = found or [self.subject.environment]
        family = {} if self.subject.checksum is None else self.family
        return {**known[0], **family, **({"later": known[1:]} if known[1:] else {})}
