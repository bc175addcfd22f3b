"""One table of a comparison, as JSON, CSV and Markdown; every number comes from the runs' own files."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspaces.evaluation import statistics
from subspaces.evaluation.statistics import CONFIDENCE, Difference, Spread, errors, spread
from subspaces.studies import forms
from subspaces.studies.compare import Comparison
from subspaces.studies.entries import METRICS, Entry
from subspaces.training.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
SPLIT = "test"
MARK = "*"  # chosen on the very images it is reported on
PERCENT = ("accuracy", "ece")
TITLES = {"accuracy": "accuracy %", "nll": "NLL", "ece": "ECE %", "brier": "Brier"}
UNDRAWN = "no figure: no method shares its seeds with a reference (--reference) to differ from"
COLUMNS = ("method", "answer", *TITLES.values(), "training", "networks")


def write_all(comparison: Comparison, folder: Path) -> Comparison:
    """Write the table in every form, the figure and the report page, and return what was made and what was not."""
    name, draw = "comparison", (lambda: _figure(comparison)) if _pairs(comparison) else None
    table = forms.write(folder / name, summary(comparison), {name: as_csv(comparison)}, as_markdown(comparison), draw)
    page = forms.attempt("page", lambda: _page(comparison, folder / "report.html"))
    undrawn = [] if draw or len(comparison.entries) < 2 else [UNDRAWN]
    return dataclasses.replace(comparison, files=table[0] + page[0], left_out=undrawn + table[1] + page[1])


def _pairs(comparison: Comparison) -> list[Entry]:
    """Return the entries that can be set against the reference."""
    reference = comparison.reference
    others = (entry for entry in comparison.entries if entry is not reference)
    return [entry for entry in others if entry.against(reference, METRICS[0]) is not None]


def _figure(comparison: Comparison) -> "Figure":
    from subspaces.studies import figures

    return figures.differences(comparison)


def _page(comparison: Comparison, path: Path) -> list[Path]:
    from subspaces.report.page import write_report

    return [write_report([run.folder for run in comparison.runs], path)]


def summary(comparison: Comparison) -> dict[str, Any]:
    """Return everything, for a JSON file; the same runs give the same."""
    recipe, reference = comparison.recipe, comparison.reference
    return {
        "schema": SCHEMA,
        "dataset": recipe.dataset,
        "label_noise": recipe.label_noise,
        "validation": recipe.validation,
        "data_seed": recipe.data_seed,
        "split": SPLIT,
        "images": comparison.test_images,
        "training_images": comparison.training_images,
        "seeds": comparison.seeds,
        "reference": None if reference is None else reference.name,
        "confidence": CONFIDENCE,
        "notes": notes(comparison),
        "environments": environments(comparison.runs),
        "entries": [_entry(entry, reference) for entry in comparison.entries],
        "runs": [started(run) for run in comparison.runs],
    }


def _entry(entry: Entry, reference: Entry | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "method": entry.method,
        "answer": entry.answer,
        "recipe": {name: value for name, value in entry.recipe.to_dict().items() if name != "seed"},
        "seeds": [list(seeds) for seeds in entry.seeds],
        "runs": entry.runs,
        "training_network_steps": entry.steps,
        "training_relative": entry.relative_cost(reference),
        "networks_at_test": entry.networks,
        **({"stopping": entry.stopping} if entry.stopping else {}),
        "metrics": {},
    }
    for metric in METRICS:
        difference = entry.against(reference, metric)
        found["metrics"][metric] = {
            **dataclasses.asdict(entry.spread(metric)),
            "difference": None if difference is None else dataclasses.asdict(difference),
        }
    return found


def started(run: Run) -> dict[str, Any]:
    """Return where and with what a run was trained, the last time that it was started."""
    names = ("hardware", "torch", "subspaces", "commit")
    return {"run": run.folder.name, **{name: run.starts()[-1].get(name) for name in names}}


def environments(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return every environment in which a run was started, once, without times and in an order of their own."""
    found = {json.dumps(_environment(start)) for run in runs for start in run.starts()}
    return [json.loads(text) for text in sorted(found)]


def _environment(start: dict[str, Any]) -> dict[str, Any]:
    execution = start.get("execution", {})
    versions = {name: start.get(name) for name in ("commit", "hardware", "torch", "python", "subspaces")}
    return {**versions, "device": execution.get("device"), "precision": execution.get("precision")}


def as_csv(comparison: Comparison) -> str:
    """Return a line for each entry, with numbers in full and shares as fractions."""
    rows = []
    for entry in comparison.entries:
        found: dict[str, Any] = {
            "method": entry.method,
            "answer": entry.answer,
            "n": len(entry.seeds),
            "training_network_steps": entry.steps,
            "training_relative": entry.relative_cost(comparison.reference),
            "networks_at_test": entry.networks,
        }
        rows.append(found | numbers(entry, comparison.reference))
    return forms.rows_as_csv(rows)


def numbers(entry: Entry, reference: Entry | None) -> dict[str, float | None]:
    """Return all metrics of an entry and its differences to the reference, for a row of a CSV file."""
    found: dict[str, float | None] = {}
    for metric in METRICS:
        values, difference = entry.spread(metric), entry.against(reference, metric)
        found |= {f"{metric}_mean": values.mean, f"{metric}_std": values.std}
        for part in ("mean", "low", "high"):
            found[f"{metric}_difference_{part}"] = None if difference is None else getattr(difference, part)
    return found


def cells(comparison: Comparison, entry: Entry) -> list[str]:
    """Return the cells of an entry, with the difference to the reference on a line of its own."""
    reference = comparison.reference
    numbers = []
    for metric in METRICS:
        lines = [shown(entry.spread(metric), metric)]
        if (difference := entry.against(reference, metric)) is not None:
            lines.append(shown_difference(difference, metric))
        numbers.append("\n".join(lines))
    relative = entry.relative_cost(reference)
    training = f"{entry.steps:,.0f}" + ("" if relative is None else f"\n× {relative:.3g}")
    return [entry.method, entry.answer, *numbers, training, str(entry.networks)]


def shown(values: Spread, metric: str) -> str:
    """Return mean ± standard deviation in the metric's unit."""
    return statistics.shown(values, *_format(metric))


def shown_difference(difference: Difference, metric: str) -> str:
    """Return a difference with its sign and its interval in the metric's unit."""
    return statistics.shown_difference(difference, *_format(metric))


def _format(metric: str) -> tuple[float, int]:
    return (100, 2) if metric in PERCENT else (1, 4)


def heading(comparison: Comparison) -> str:
    """Return what all methods share."""
    recipes = [entry.recipe for entry in comparison.entries]
    told = []
    for name, words in (("epochs", "{:g} epochs"), ("dropout", "dropout {:g}"), ("label_smoothing", "smoothing {:g}")):
        values = {getattr(recipe, name) for recipe in recipes}
        told += [words.format(value) for value in values if value and len(values) == 1]
    return forms.heading(recipes, comparison.test_images, " · ".join(told), comparison.recipe.label_noise)


def notes(comparison: Comparison, alone: bool = True) -> list[str]:
    """Return what a reader has to know to judge the numbers; without what a table of several comparisons lacks."""
    reference, count = comparison.reference, max(len(entry.seeds) for entry in comparison.entries)
    several, paired, named = count > 1, _pairs(comparison), _seeds(comparison)
    found = [f"Mean ± standard deviation (n − 1) over {named}." if several else f"Trained once ({named})."]
    if alone:
        found.append(
            "Training cost in network-steps: one batch forward and backward through one network; passes for batch-norm "
            "statistics are not counted. Inference cost: networks that see each image."
        )
    alike = {entry.method for entry in paired} | {reference.method if reference is not None else ""}
    missing = [name for name in dict.fromkeys(entry.method for entry in comparison.entries) if name not in alike]
    if reference is None:
        found.append("No standard training is among the recipes, so there are no differences to it.")
    elif missing:
        found.append(f"Without a difference, as {reference.name} has not all of its seeds: {', '.join(missing)}.")
    if reference is not None and paired:
        interval = f"with its {CONFIDENCE:.0%} confidence interval (Student's t)" if several else "without an interval"
        found.append(f"Second line: difference to {reference.name}, paired by the seed, {interval}.")
        if 2 <= count <= 3:
            found.append(
                f"With {count} seeds the interval reaches {errors(count):.1f} standard errors to each side: "
                "it is wide, and that it holds 0 does not say that nothing differs."
            )
        if any(_equal(entry, reference) for entry in comparison.entries):
            found.append("An interval without width: all seeds happen to give the same difference; it is no certainty.")
        if several and len(comparison.entries) > 2:
            found.append("Each interval stands for itself: of many, one in twenty is expected to miss.")
    if any(len(one) > 1 for entry in comparison.entries for one in entry.seeds):
        found.append(
            "An ensemble of runs has no run in common with another one of its size; it is set against the mean of the "
            "reference over the seeds of its members."
        )
    return found + [_stopping(entry) for entry in comparison.entries if entry.stopping and alone]


def _seeds(comparison: Comparison) -> str:
    """Return the seeds that all methods have, in words; ensembles of runs may leave one out."""
    single = [entry.seeds for entry in comparison.entries if all(len(one) == 1 for one in entry.seeds)]
    if len({frozenset(seeds) for seeds in single}) > 1:
        return "the seeds of each method"
    return f"{'seeds' if len(comparison.seeds) > 1 else 'seed'} {', '.join(map(str, comparison.seeds))}"


def _equal(entry: Entry, reference: Entry) -> bool:
    """Say whether the differences of all seeds are the same, in any metric; of accuracies on few images they may be."""
    found = (entry.against(reference, metric) for metric in METRICS)
    return any(one is not None and one.low is not None and max(one.values) - min(one.values) < 1e-9 for one in found)


def _stopping(entry: Entry) -> str:
    """Return what early stopping would be if the test set chose the epoch, as the paper does it."""
    epochs, accuracy = stopped(entry, "test")
    ours, _ = stopped(entry, "validation")
    return (
        f"{MARK} {entry.method}: the epochs {ours} are chosen on held-out images. The test set itself, as the paper "
        f"chooses, takes {epochs} and gives {accuracy} % {MARK}: chosen on the images it is reported on, it flatters."
    )


def stopped(entry: Entry, split: str) -> tuple[str, str]:
    """Return the epochs that a split chooses, one for each seed, and the accuracy on test images that it gives."""
    chosen = [each[split] for each in entry.stopping]
    epochs = ", ".join(f"{each['epoch']:g}" for each in chosen)
    return epochs, shown(spread([each["test_accuracy"] for each in chosen]), "accuracy")


def as_markdown(comparison: Comparison) -> str:
    """Return the table with its notes."""
    rows = [cells(comparison, entry) for entry in comparison.entries]
    return forms.markdown(heading(comparison), COLUMNS, rows, notes(comparison), left=2)
