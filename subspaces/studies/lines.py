"""Methods over levels of label noise, a line for each way to answer at each level, and their table."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.statistics import CONFIDENCE
from subspaces.studies import tables
from subspaces.studies.comparison import MARK, Comparison
from subspaces.studies.entries import Entry, names, shown, titles
from subspaces.studies.tables import Result, Sheet, Table
from subspaces.training.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1


@dataclass(frozen=True)
class Line:
    """A method's answer at one level: as chosen on held-out images, and as the test set itself would choose."""

    level: float
    method: str
    answer: str
    setting: str | None
    chosen: Entry
    on_test: Entry
    candidates: list[Entry]

    @property
    def value(self) -> float | None:
        """The setting that was chosen."""
        return None if self.setting is None else getattr(self.chosen.recipe, self.setting)

    @property
    def value_on_test(self) -> float | None:
        """The setting that the test set would choose, as the paper does."""
        return None if self.setting is None else getattr(self.on_test.recipe, self.setting)

    @property
    def chose(self) -> bool:
        """Whether there was something to choose from."""
        return len(self.candidates) > 1


@dataclass(frozen=True)
class Study(Result):
    """All lines, by level, and the comparisons that they are taken from."""

    by: str
    levels: list[float]
    lines: list[Line]
    comparisons: list[Comparison]

    @property
    def runs(self) -> Iterator[Run]:
        """The runs of all levels."""
        return (run for comparison in self.comparisons for run in comparison.runs)

    def reference(self, line: Line) -> Entry | None:
        """Return what a line is compared with: standard training at the same level."""
        return self.comparisons[self.levels.index(line.level)].reference

    def tabulate(self) -> Sheet:
        """Return everything that is to be written."""
        table = Table(self.heading(), columns(), [self.cells(line) for line in self.lines], left=3)
        return Sheet("noise", [table], self.notes(), self.summary(), {"noise": self.rows()}, self.draw)

    def draw(self) -> "Figure":
        """Draw the methods over the levels."""
        from subspaces.studies import figures

        chosen = any(line.chose for line in self.lines)
        drawn = {
            name: ([line.level for line in lines], [line.chosen for line in lines])
            for name, lines in self.own_lines().items()
        }
        return figures.over_levels(self.heading(), drawn, len(self.comparisons[0].seeds), chosen)

    def summary(self) -> dict[str, Any]:
        """Return everything, for a JSON file; the same runs give the same."""
        recipe = self.comparisons[0].recipe
        return {
            "schema": SCHEMA,
            "dataset": recipe.dataset,
            "validation": recipe.validation,
            "data_seed": recipe.data_seed,
            "levels": self.levels,
            "seeds": self.comparisons[0].seeds,
            "chosen_by": self.by,
            "confidence": CONFIDENCE,
            "notes": self.notes(),
            "environments": tables.environments(self.runs),
            "lines": [self._line(line) for line in self.lines],
            "comparisons": [comparison.summary() for comparison in self.comparisons],
        }

    def _line(self, line: Line) -> dict[str, Any]:
        return {
            "label_noise": line.level,
            "method": line.method,
            "answer": line.answer,
            "setting": line.setting,
            "chosen": line.value,
            "chosen_on": "validation" if line.chose else None,
            "metrics": line.chosen.metrics(),
            "differences": line.chosen.differences(self.reference(line)),
            "best_on_test": line.value_on_test,
            "metrics_best_on_test": line.on_test.metrics(),
            "candidates": [
                {
                    "value": getattr(entry.recipe, line.setting),
                    self.by: {split: entry.spread(self.by, split).mean for split in entry.scores[0]},
                }
                for entry in line.candidates
                if line.setting is not None
            ],
            **({"stopping": line.chosen.stopping} if line.chosen.stopping else {}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of a CSV file for each line; what the test set would choose only where something was chosen."""
        rows = []
        for line in self.lines:
            row: dict[str, Any] = {"label_noise": line.level, "method": line.method, "answer": line.answer}
            row |= {"setting": line.setting, "chosen": line.value, "n": len(line.chosen.seeds)}
            row |= line.chosen.columns(self.reference(line))
            row["best_on_test"] = line.value_on_test if line.chose else None
            for metric in names():
                values = line.on_test.spread(metric) if line.chose else None
                row |= {f"{metric}_{part}_best_on_test": getattr(values, part, None) for part in ("mean", "std")}
            rows.append(row)
        return rows

    def cells(self, line: Line) -> list[str]:
        """Return the cells of a line, with the difference to the reference on a line of its own."""
        chosen, marked = "–" if line.value is None else f"{line.value:g}", ["–", "–"]
        if line.value_on_test is not None and line.chose:
            accuracy = shown(line.on_test.spread("accuracy"), "accuracy")
            marked = [f"{line.value_on_test:g} {MARK}", f"{accuracy} {MARK}"]
        if line.chosen.stopping:
            chosen, _ = line.chosen.stopped("validation")
            marked = [f"{text} {MARK}" for text in line.chosen.stopped("test")]
        numbers = line.chosen.cells(self.reference(line))
        return [f"{100 * line.level:g}", line.method, line.answer, chosen, *numbers, *marked]

    def heading(self, told: str = "label noise") -> str:
        """Return what all methods share, and what is told of them over the levels."""
        first = self.comparisons[0]
        return tables.heading([entry.recipe for entry in first.entries], first.test_images, told)

    def notes(self) -> list[str]:
        """Return what a reader has to know to judge the numbers."""
        reported = [
            replace(one, entries=[line.chosen for line in self.lines if line.level == level])
            for level, one in zip(self.levels, self.comparisons, strict=True)
        ]
        found = list(dict.fromkeys(note for one in reported for note in one.common_notes()))
        if any(line.chose for line in self.lines):
            held_out = self.comparisons[0].recipe.validation
            found.append(
                f"“chosen” is the setting with the best {self.by} on {held_out:,} held-out images, mean over seeds, at "
                f"that level. {MARK} is the best on the test set itself, as the paper chooses: it looks too good."
            )
        if any(line.chosen.recipe.method == "early-stopping" for line in self.lines):
            found.append(
                "early-stopping always chooses its epoch by the accuracy on held-out images, whatever metric chooses "
                f"settings (here {self.by})."
            )
        return [
            *found,
            "Only training labels are noisy, the same for every method; held-out and test labels are clean.",
        ]

    def own_lines(self) -> dict[str, list[Line]]:
        """Return the lines of each method's own answer, and of ensembles of runs, over the levels."""
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            first = next(each for each in self.lines if (each.level, each.method) == (line.level, line.method))
            if line is first or line.chosen.of_runs:
                name = f"{line.method}: {line.answer}" if line.chosen.of_runs else line.method
                found.setdefault(name, []).append(line)
        return found


def columns() -> tuple[str, ...]:
    """Return the heads of the table."""
    return ("noise %", "method", "answer", "chosen", *titles(), f"on test {MARK}", f"accuracy % {MARK}")
