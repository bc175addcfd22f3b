"""One table of the label-noise study, as JSON, CSV and Markdown, and its figure."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.statistics import CONFIDENCE, spread
from subspaces.studies import forms, tables
from subspaces.studies.entries import METRICS, Entry
from subspaces.studies.noise import Line, Study
from subspaces.studies.tables import MARK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
COLUMNS = ("noise %", "method", "answer", "chosen", *tables.TITLES.values(), f"on test {MARK}", f"accuracy % {MARK}")


def write_all(study: Study, folder: Path) -> Study:
    """Write the table in every form and the figure, and return what was made and what was not."""
    csvs = {"noise": as_csv(study)}
    made, left_out = forms.write(folder / "noise", summary(study), csvs, as_markdown(study), lambda: figure(study))
    return dataclasses.replace(study, files=made, left_out=left_out)


def figure(study: Study) -> "Figure":
    """Draw the methods over the levels."""
    from subspaces.studies import figures

    return figures.noise(study)


def environments(study: Study) -> list[dict[str, Any]]:
    """Return every environment in which runs of any level were trained."""
    return tables.environments(run for comparison in study.comparisons for run in comparison.runs)


def reference_of(study: Study, line: Line) -> Entry | None:
    """Return what a line is compared with: standard training at the same level."""
    return study.comparisons[study.levels.index(line.level)].reference


def summary(study: Study) -> dict[str, Any]:
    """Return everything, for a JSON file; the same runs give the same."""
    recipe = study.comparisons[0].recipe
    return {
        "schema": SCHEMA,
        "dataset": recipe.dataset,
        "validation": recipe.validation,
        "data_seed": recipe.data_seed,
        "levels": study.levels,
        "seeds": study.comparisons[0].seeds,
        "chosen_by": study.by,
        "confidence": CONFIDENCE,
        "notes": notes(study),
        "environments": environments(study),
        "lines": [_line_summary(study, line) for line in study.lines],
        "comparisons": [tables.summary(comparison) for comparison in study.comparisons],
    }


def _line_summary(study: Study, line: Line) -> dict[str, Any]:
    found: dict[str, Any] = {
        "label_noise": line.level,
        "method": line.method,
        "answer": line.answer,
        "setting": line.setting,
        "chosen": line.value,
        "chosen_on": "validation" if len(line.candidates) > 1 else None,
        "metrics": {metric: dataclasses.asdict(line.chosen.spread(metric)) for metric in METRICS},
        "differences": {},
        "best_on_test": line.value_on_test,
        "metrics_best_on_test": {metric: dataclasses.asdict(line.on_test.spread(metric)) for metric in METRICS},
        "candidates": [],
        **({"stopping": line.chosen.stopping} if line.chosen.stopping else {}),
    }
    for metric in METRICS:
        difference = line.chosen.against(reference_of(study, line), metric)
        found["differences"][metric] = None if difference is None else dataclasses.asdict(difference)
    for entry in line.candidates if line.setting else ():
        splits = {split: spread(entry.values(study.by, split)).mean for split in entry.scores[0]}
        found["candidates"].append({"value": getattr(entry.recipe, line.setting or ""), study.by: splits})
    return found


def as_csv(study: Study) -> str:
    """Return a row for each line, with numbers in full and shares as fractions."""
    rows = []
    for line in study.lines:
        found: dict[str, Any] = {"label_noise": line.level, "method": line.method, "answer": line.answer}
        found |= {"setting": line.setting, "chosen": line.value, "n": len(line.chosen.seeds)}
        found |= tables.numbers(line.chosen, reference_of(study, line))
        rows.append(found | _best_on_test(line))
    return forms.rows_as_csv(rows)


def _best_on_test(line: Line) -> dict[str, float | None]:
    """Return what the test set would choose, for a row of a CSV file; empty where there was nothing to choose from."""
    chose = len(line.candidates) > 1
    found: dict[str, float | None] = {"best_on_test": line.value_on_test if chose else None}
    for metric in METRICS:
        values = line.on_test.spread(metric)
        for part in ("mean", "std"):
            found[f"{metric}_{part}_best_on_test"] = getattr(values, part) if chose else None
    return found


def cells(study: Study, line: Line) -> list[str]:
    """Return the cells of a line, with the difference to the reference on a line of its own."""
    numbers = []
    for metric in METRICS:
        difference = line.chosen.against(reference_of(study, line), metric)
        lines = [tables.shown(line.chosen.spread(metric), metric)]
        numbers.append("\n".join(lines + ([tables.shown_difference(difference, metric)] if difference else [])))
    chosen = "–" if line.value is None else f"{line.value:g}"
    marked = ["–", "–"]
    if line.value_on_test is not None and len(line.candidates) > 1:
        accuracy = tables.shown(line.on_test.spread("accuracy"), "accuracy")
        marked = [f"{line.value_on_test:g} {MARK}", f"{accuracy} {MARK}"]
    if line.chosen.stopping:
        chosen, _ = tables.stopped(line.chosen, "validation")
        marked = [f"{text} {MARK}" for text in tables.stopped(line.chosen, "test")]
    return [f"{100 * line.level:g}", line.method, line.answer, chosen, *numbers, *marked]


def heading(study: Study) -> str:
    """Return what all methods share."""
    return headed(study, "label noise")


def headed(study: Study, told: str) -> str:
    """Return what all methods share, and what is told of them over the levels of noise."""
    first = study.comparisons[0]
    return forms.heading([entry.recipe for entry in first.entries], first.test_images, told)


def notes(study: Study) -> list[str]:
    """Return what a reader has to know to judge the numbers."""
    recipe = study.comparisons[0].recipe
    reported = [
        dataclasses.replace(one, entries=[line.chosen for line in study.lines if line.level == level])
        for level, one in zip(study.levels, study.comparisons, strict=True)
    ]
    found = list(dict.fromkeys(note for one in reported for note in tables.notes(one, alone=False)))
    if any(len(line.candidates) > 1 for line in study.lines):
        found.append(
            f"“chosen” is the setting with the best {study.by} on {recipe.validation:,} held-out images, mean over "
            f"seeds, at that level. {MARK} is the best on the test set itself, as the paper chooses: it flatters."
        )
    if any(line.chosen.recipe.method == "early-stopping" for line in study.lines):
        found.append(
            "early-stopping always chooses its epoch by the accuracy on held-out images, whatever metric chooses "
            f"settings (here {study.by})."
        )
    found.append("Label noise is in the training labels alone, the same for every method; held-out and test are clean.")
    return found


def as_markdown(study: Study) -> str:
    """Return the table with its notes."""
    return forms.markdown(heading(study), COLUMNS, [cells(study, line) for line in study.lines], notes(study), left=3)


def own_lines(study: Study) -> dict[str, Sequence[Line]]:
    """Return the lines of each method's own answer, and of ensembles of runs, over the levels."""
    found: dict[str, list[Line]] = {}
    for line in study.lines:
        first = next(each for each in study.lines if (each.level, each.method) == (line.level, line.method))
        ensemble = any(len(seeds) > 1 for seeds in line.chosen.seeds)
        if line is first or ensemble:
            name = f"{line.method}: {line.answer}" if ensemble else line.method
            found.setdefault(name, []).append(line)
    return dict(found)
