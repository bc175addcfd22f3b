"""The table of the Integral study, as JSON, CSV and Markdown, and its figure."""

import dataclasses
from pathlib import Path
from typing import Any

from subspaces import files
from subspaces.experiments import forms, noise_tables, tables
from subspaces.experiments.integral import TOLERANCE, Identity, IntegralStudy
from subspaces.experiments.noise import Line

SCHEMA = 1
COLUMNS = ("noise %", "method", "answer", *tables.TITLES.values())
CHECKED = ("noise %", "seed", "rounding", "accuracy % of g(1)", "of the mean of f", "disagree %", "TV")


def write_all(made: IntegralStudy, folder: Path) -> IntegralStudy:
    """Write the table in every form and the figure, and return what was made and what was not."""
    files.write_json(folder / "integral.json", summary(made))
    files.write(folder / "integral.csv", noise_tables.as_csv(made.study).encode())
    files.write(folder / "identity.csv", as_csv(made.identities).encode())
    files.write(folder / "integral.md", as_markdown(made).encode())
    written = [folder / name for name in ("integral.json", "integral.csv", "identity.csv", "integral.md")]
    left_out = []
    try:
        figures = tables.drawing()
        written += figures.write(figures.noise(made.study), folder / "integral")
    except ImportError as error:  # the numbers are there nevertheless
        left_out.append(f"no figure: {error}")
    return dataclasses.replace(made, files=written, left_out=left_out)


def summary(made: IntegralStudy) -> dict[str, Any]:
    """Return everything, for a JSON file; the same runs give the same."""
    return {
        "schema": SCHEMA,
        "tolerance": TOLERANCE,
        "identities": [{**dataclasses.asdict(one), "holds": one.holds} for one in made.identities],
        "study": noise_tables.summary(made.study),
    }


def as_csv(identities: list[Identity]) -> str:
    """Return a row for each Integral run."""
    return forms.rows_as_csv([dataclasses.asdict(one) for one in identities])


def cells(made: IntegralStudy, line: Line) -> list[str]:
    """Return the cells of a line; nothing was chosen."""
    level, method, answer, _, *numbers = noise_tables.cells(made.study, line)
    return [level, method, answer, *numbers[: len(tables.TITLES)]]


def checked(one: Identity) -> list[str]:
    """Return the cells of the closed form in one run."""
    return [
        f"{100 * one.label_noise:g}",
        str(one.seed),
        f"{one.rounding:.1e}" + ("" if one.holds else " !"),
        f"{100 * one.accuracy:.2f}",
        f"{100 * one.accuracy_mean:.2f}",
        f"{100 * one.disagreement:.2f}",
        f"{one.total_variation:.4f}",
    ]


def heading(made: IntegralStudy) -> str:
    """Return what all methods share."""
    return noise_tables.heading(made.study).replace("label noise", f"Integral, ε = {made.identities[0].epsilon:g}")


def notes(made: IntegralStudy) -> list[str]:
    """Return what a reader has to know to judge the numbers."""
    one, held = made.identities[0], sum(each.holds for each in made.identities)
    recipe = made.study.comparisons[0].recipe
    return [
        *noise_tables.notes(made.study),
        f"All methods: {recipe.epochs} epochs, learning rate {recipe.learning_rate:g}, batches of {recipe.batch}; a "
        "step of integral is three network-steps, of the others one.",
        f"The closed form: over the {one.nodes // 2} steps of ε the mean of f is g(1) within {TOLERANCE:g} of the "
        f"largest output in {held} of {len(made.identities)} runs (rounding in float32). Over all of [0, 1] "
        f"(midpoint rule, {one.nodes} nodes) it differs from g(1) by ε/2 (g'(1) − g'(0)) + O(ε²), on the first "
        f"{one.images:,} test images as shown.",
    ]


def as_markdown(made: IntegralStudy) -> str:
    """Return both tables with their notes."""
    lines = [cells(made, line) for line in made.study.lines]
    first = forms.markdown(heading(made), COLUMNS, lines, notes(made), left=3)
    rows = [checked(one) for one in made.identities]
    return first + "\n" + forms.markdown("The closed form in each line", CHECKED, rows, [], left=1)
