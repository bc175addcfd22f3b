"""The table of the Integral study, as JSON, CSV and Markdown, and its figure."""

import dataclasses
from pathlib import Path
from typing import Any

from subspaces.studies import forms, noise_tables, tables
from subspaces.studies.integral import TOLERANCE, Identity, IntegralStudy
from subspaces.studies.noise import Line

SCHEMA = 1
COLUMNS = ("noise %", "method", "answer", *tables.TITLES.values())
CHECKED = ("noise %", "seed", "ε", "rounding", "accuracy % of g(1)", "of the mean of f", "disagree %", "TV")


def write_all(made: IntegralStudy, folder: Path) -> IntegralStudy:
    """Write the table in every form and the figure, and return what was made and what was not."""
    path, draw = folder / "integral", lambda: noise_tables.figure(made.study)
    csvs = {"integral": noise_tables.as_csv(made.study), "identity": as_csv(made.identities)}
    written, left_out = forms.write(path, summary(made), csvs, as_markdown(made), draw)
    return dataclasses.replace(made, files=written, left_out=left_out)


def summary(made: IntegralStudy) -> dict[str, Any]:
    """Return everything, for a JSON file; the same runs give the same."""
    return {
        "schema": SCHEMA,
        "tolerance": TOLERANCE,
        "environments": noise_tables.environments(made.study),
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
        f"{one.epsilon:g}",
        f"{one.rounding:.1e}" + ("" if one.holds else " !"),
        f"{100 * one.accuracy:.2f}",
        f"{100 * one.accuracy_mean:.2f}",
        f"{100 * one.disagreement:.2f}",
        f"{one.total_variation:.4f}",
    ]


def heading(made: IntegralStudy) -> str:
    """Return what all methods share."""
    return noise_tables.headed(made.study, f"Integral, {epsilons(made)}")


def epsilons(made: IntegralStudy) -> str:
    """Return every ε that there is."""
    return f"ε = {', '.join(f'{value:g}' for value in sorted({one.epsilon for one in made.identities}))}"


def notes(made: IntegralStudy) -> list[str]:
    """Return what a reader has to know to judge the numbers."""
    held, images = sum(one.holds for one in made.identities), max(one.images for one in made.identities)
    recipe = made.study.comparisons[0].recipe
    return [
        *noise_tables.notes(made.study),
        f"All methods: {recipe.epochs} epochs, learning rate {recipe.learning_rate:g}, batches of {recipe.batch}; a "
        "step of integral is three network-steps, of the others one.",
        f"The closed form, {epsilons(made)}: the sum of ε f over the 1/ε steps of ε telescopes to g(1) for any network "
        "g, trained or not, so it checks the computation and not the training. It is g(1) within "
        f"{TOLERANCE:g} of the largest output in {held} of {len(made.identities)} runs (rounding in float32).",
        "What tells about a trained line is the mean of f over all of [0, 1] (midpoint rule, 2/ε nodes), which differs "
        "from g(1) by ε/2 (g'(1) − g'(0)) + O(ε²): its accuracy, how often it disagrees with g(1), and the total "
        f"variation (TV) between the two, on the first {images:,} test images.",
    ]


def as_markdown(made: IntegralStudy) -> str:
    """Return both tables with their notes."""
    lines = [cells(made, line) for line in made.study.lines]
    first = forms.markdown(heading(made), COLUMNS, lines, notes(made), left=3)
    rows = [checked(one) for one in made.identities]
    return first + "\n" + forms.markdown("The closed form in each line", CHECKED, rows, [], left=1)
