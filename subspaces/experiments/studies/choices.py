"""What a study over a grid has chosen of each method, its table, figure and files."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from subspaces.evaluation.comparing import heading
from subspaces.evaluation.statistics import CONFIDENCE
from subspaces.experiments.opening import training_of
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.compare import Comparison
from subspaces.experiments.studies.tables import Drawing, Entry, Result, Table, headlines
from subspaces.experiments.training.runs import Run

NOISE = "label_noise"


class Choice(NamedTuple):
    """A method's answer at one value of the grid, with the setting that is chosen on held-out images."""

    value: float
    method: str
    answer: str
    setting: str | None
    chosen: Entry
    candidates: list[Entry]
    reference: Entry | None  # standard training at the same value

    def of(self, entry: Entry) -> float | None:
        """Return the setting of one of the candidates."""
        return None if self.setting is None else getattr(entry.recipe, self.setting)


@dataclass(frozen=True)
class GridStudy(Result):
    """What was chosen of every method at every value, and the comparisons that it is taken from."""

    over: str
    by: str
    values: list[float]
    choices: list[Choice]
    comparisons: list[Comparison]
    name: str = field(default="grid", kw_only=True)

    @property
    def runs(self) -> list[Run]:
        """The runs at all values."""
        return [run for comparison in self.comparisons for run in comparison.runs]

    @property
    def chose(self) -> bool:
        """Whether a setting was chosen."""
        return any(len(each.candidates) > 1 for each in self.choices)

    def tables(self) -> list[Table]:
        setting = ["chosen"] if self.chose else []
        columns = (self._axis[0], "method", "answer", *setting, *(each.title for each in headlines()))
        return [Table(self.heading(), columns, [self._cells(each) for each in self.choices], left=3)]

    @property
    def _axis(self) -> tuple[str, str, float]:
        """The setting as the head of a column and below an axis, and what its values are multiplied with."""
        words = self.over.replace("_", " ")
        return ("noise %", "random training labels (%)", 100.0) if self.over == NOISE else (words, words, 1.0)

    def _cells(self, each: Choice) -> list[str]:
        value, place = each.of(each.chosen), f"{self._axis[2] * each.value:g}"
        setting = ["–" if value is None else f"{value:g}"] if self.chose else []
        return [place, each.method, each.answer, *setting, *each.chosen.cells(each.reference)]

    def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        return {self.name: summary["lines"]}

    def draw(self) -> Drawing:
        from subspaces.experiments.studies import drawing

        _, below, scale = self._axis
        told = "; settings chosen on held-out images" if self.chose else ""
        drawn = {
            name: ([scale * each.value for each in some], [each.chosen for each in some])
            for name, some in self.by_method().items()
        }
        return drawing.over(self.heading(), drawn, len(self.comparisons[0].seeds), below, told)

    def by_method(self) -> dict[str, list[Choice]]:
        """Return each method's own answer, and ensembles of runs, over the values."""
        found: dict[str, list[Choice]] = {}
        for each in self.choices:
            first = next(one for one in self.choices if (one.value, one.method) == (each.value, each.method))
            if each is first or each.chosen.runs > 1:
                name = f"{each.method}: {each.answer}" if each.chosen.runs > 1 else each.method
                found.setdefault(name, []).append(each)
        return found

    def summary(self) -> dict[str, Any]:
        first = self.comparisons[0]
        return {
            **{name: getattr(first.recipe, name) for name in ("dataset", "validation", "data_seed")},
            "over": self.over,
            "levels": self.values,
            "seeds": first.seeds,
            "chosen_by": self.by,
            "confidence": CONFIDENCE,
            "notes": self.notes(),
            "environments": tables.environments(self.runs),
            "lines": [self._line(each) for each in self.choices],
            "comparisons": [comparison.summary() for comparison in self.comparisons],
        }

    def _line(self, each: Choice) -> dict[str, Any]:
        splits = ("test", "validation") if len(each.chosen.held_out) else ("test",)
        tried = each.candidates if each.setting is not None else []
        return {
            self.over: each.value,
            "method": each.method,
            "answer": each.answer,
            "setting": each.setting,
            "chosen": each.of(each.chosen),
            "chosen_on": "validation" if len(each.candidates) > 1 else None,
            "n": each.chosen.count,
            "metrics": each.chosen.metrics(each.reference),
            "candidates": [
                {"value": each.of(one), self.by: {split: one.spread(self.by, split).mean for split in splits}}
                for one in tried
            ],
        }

    def heading(self) -> str:
        """Return what all methods share."""
        recipes = [entry.recipe for each in self.comparisons for entry in each.entries]
        images = f"{self.comparisons[0].test_images:,} test images"
        return heading([*map(training_of, recipes)], self.over.replace("_", " "), images)

    def notes(self) -> list[str]:
        reported = [
            replace(one, entries=[each.chosen for each in self.choices if each.value == value])
            for value, one in zip(self.values, self.comparisons, strict=True)
        ]
        found = list(dict.fromkeys(note for one in reported for note in one.common_notes()))
        if self.chose:
            held_out = self.comparisons[0].recipe.validation
            best = f"“chosen” is the setting with the best {self.by} on {held_out:,} held-out images"
            found.append(f"{best}, mean over seeds, at that level.")
        noise = "Only training labels are noisy, the same for every method; held-out and test labels are clean."
        return [*found, *([noise] if self.over == NOISE else [])]
