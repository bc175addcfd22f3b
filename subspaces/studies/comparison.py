"""Methods that were measured on the same data, and their table; every number comes from the runs' own files."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.cache import Measured
from subspaces.evaluation.statistics import CONFIDENCE, errors
from subspaces.reports.reading import Group
from subspaces.studies import tables
from subspaces.studies.entries import Entry, names, titles
from subspaces.studies.tables import Result, Sheet, Table
from subspaces.training.config import Recipe
from subspaces.training.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
SPLIT = "test"
MARK = "*"  # chosen on the very images it is reported on
UNDRAWN = "no figure: no method shares its seeds with a reference (--reference) to differ from"


@dataclass(frozen=True)
class Comparison(Result):
    """Methods on the same data with the same seeds, and the one that they are compared with."""

    entries: list[Entry]
    reference: Entry | None
    runs: list[Run]
    training_images: int
    test_images: int
    groups: list[Group] = field(default_factory=list, repr=False)  # the runs and their records, for the page
    together: list[Measured] = field(default_factory=list, repr=False)  # ensembles of runs, for the page

    @property
    def recipe(self) -> Recipe:
        """One of the recipes, for what all of them share."""
        return self.entries[0].recipe

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({run.recipe.seed for run in self.runs})

    @property
    def pairs(self) -> list[Entry]:
        """The entries that can be set against the reference."""
        return [entry for entry in self.entries if entry.against(self.reference, names()[0]) is not None]

    def tabulate(self) -> Sheet:
        """Return everything that is to be written."""
        undrawn = UNDRAWN if len(self.entries) > 1 else ""
        columns = ("method", "answer", *titles(), "training", "networks")
        return Sheet(
            name="comparison",
            tables=[Table(self.heading(), columns, [self.cells(entry) for entry in self.entries], left=2)],
            notes=self.notes(),
            summary=self.summary(),
            rows={"comparison": [self._row(entry) for entry in self.entries]},
            **({"draw": self.draw} if self.pairs else {"undrawn": undrawn}),
        )

    def draw(self) -> "Figure":
        """Draw the paired differences to the reference."""
        from subspaces.studies import figures

        assert self.reference is not None
        return figures.differences(self.heading(), self.pairs, self.reference)

    def summary(self) -> dict[str, Any]:
        """Return everything, for a JSON file; the same runs give the same."""
        recipe, reference = self.recipe, self.reference
        return {
            "schema": SCHEMA,
            "dataset": recipe.dataset,
            "label_noise": recipe.label_noise,
            "validation": recipe.validation,
            "data_seed": recipe.data_seed,
            "split": SPLIT,
            "images": self.test_images,
            "training_images": self.training_images,
            "seeds": self.seeds,
            "reference": None if reference is None else reference.name,
            "confidence": CONFIDENCE,
            "notes": self.notes(),
            "environments": tables.environments(self.runs),
            "entries": [self._entry(entry) for entry in self.entries],
            "runs": [tables.started(run) for run in self.runs],
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        differences = entry.differences(self.reference)
        return {
            "method": entry.method,
            "answer": entry.answer,
            "recipe": tables.without_seed(entry.recipe),
            "seeds": [list(seeds) for seeds in entry.seeds],
            "runs": entry.runs,
            **self._cost(entry),
            **({"stopping": entry.stopping} if entry.stopping else {}),
            "metrics": {name: {**each, "difference": differences[name]} for name, each in entry.metrics().items()},
        }

    def _row(self, entry: Entry) -> dict[str, Any]:
        """Return the row of an entry in a CSV file."""
        found = {"method": entry.method, "answer": entry.answer, "n": len(entry.seeds)}
        return {**found, **self._cost(entry), **entry.columns(self.reference)}

    def _cost(self, entry: Entry) -> dict[str, Any]:
        return {
            "training_network_steps": entry.steps,
            "training_relative": entry.relative_cost(self.reference),
            "networks_at_test": entry.networks,
        }

    def cells(self, entry: Entry) -> list[str]:
        """Return the cells of an entry, with the difference to the reference on a line of its own."""
        relative = entry.relative_cost(self.reference)
        training = f"{entry.steps:,.0f}" + ("" if relative is None else f"\n× {relative:.3g}")
        return [entry.method, entry.answer, *entry.cells(self.reference), training, str(entry.networks)]

    def heading(self) -> str:
        """Return what all methods share."""
        recipes, told = [entry.recipe for entry in self.entries], []
        for name, words in (
            ("epochs", "{} epochs"),
            ("dropout", "dropout {:g}"),
            ("label_smoothing", "smoothing {:g}"),
        ):
            values = {getattr(recipe, name) for recipe in recipes}
            told += [words.format(value) for value in values if value and len(values) == 1]
        return tables.heading(recipes, self.test_images, " · ".join(told), self.recipe.label_noise)

    def notes(self) -> list[str]:
        """Return what a reader has to know to judge the numbers."""
        first, *others = self.common_notes()
        cost = (
            "Cost of training: network-steps, each one batch forward and backward through one network, without the "
            "passes for batch-norm statistics. Networks: how many of them see each test image."
        )
        return [first, cost, *others, *(_stopping(entry) for entry in self.entries if entry.stopping)]

    def common_notes(self) -> list[str]:
        """Return the notes that also a table of several comparisons needs: on seeds, differences and intervals."""
        count, named = max(len(entry.seeds) for entry in self.entries), self._named_seeds()
        found = [f"Mean ± standard deviation (n − 1) over {named}." if count > 1 else f"Trained once ({named})."]
        found += self._notes_on_differences(count)
        if any(entry.of_runs for entry in self.entries):
            found.append(
                "Ensembles of one size share no run. Each is compared with the mean of the reference over the seeds "
                "of its members."
            )
        return found

    def _notes_on_differences(self, count: int) -> list[str]:
        reference, paired = self.reference, self.pairs
        if reference is None:
            return ["No standard training is among the recipes, so there are no differences to it."]
        alike = {reference.method, *(entry.method for entry in paired)}
        missing = [name for name in dict.fromkeys(entry.method for entry in self.entries) if name not in alike]
        found = [f"No difference is given for {', '.join(missing)}: {reference.name} lacks some of its seeds."]
        found = found if missing else []
        if not paired:
            return found
        interval = (
            f"with its {CONFIDENCE:.0%} confidence interval (Student's t)" if count > 1 else "without an interval"
        )
        found.append(f"Second line: difference to {reference.name}, paired by the seed, {interval}.")
        if 2 <= count <= 3:
            found.append(
                f"With {count} seeds the interval reaches {errors(count):.1f} standard errors to each side: "
                "it is wide, and if it contains 0 there may still be a difference."
            )
        if any(_equal(entry, reference) for entry in self.entries):
            found.append("An interval without width: all seeds happen to give the same difference; it is no certainty.")
        if count > 1 and len(self.entries) > 2:
            found.append("Each interval stands for itself: expect one in twenty to miss the true difference.")
        return found

    def _named_seeds(self) -> str:
        """Return the seeds that all methods have, in words; ensembles of runs may leave one out."""
        single = [entry.seeds for entry in self.entries if not entry.of_runs]
        return "the seeds of each method" if len(set(map(frozenset, single))) > 1 else tables.named_seeds(self.seeds)


def _equal(entry: Entry, reference: Entry) -> bool:
    """Say whether the differences of all seeds happen to be the same, in any metric, as of accuracies on few images.

    That nothing differs is no chance: temperature scaling leaves the accuracy as it is.
    """
    found = (entry.against(reference, metric) for metric in names())
    return any(
        one is not None and one.low is not None and any(one.values) and max(one.values) - min(one.values) < 1e-9
        for one in found
    )


def _stopping(entry: Entry) -> str:
    """Return what early stopping would be if the test set chose the epoch, as the paper does it."""
    epochs, accuracy = entry.stopped("test")
    return (
        f"{MARK} {entry.method}: the epochs {entry.stopped('validation')[0]} are chosen on held-out images. The test "
        f"set itself, as the paper chooses, takes {epochs} and gives {accuracy} % {MARK}: too good, as it is chosen on "
        "the images that it is reported on."
    )
