"""What a reader has to know to judge the numbers of the page."""

import math
from collections.abc import Sequence

from subspaces.evaluation.record import Record
from subspaces.reports.answers import Answer
from subspaces.reports.measures import places
from subspaces.reports.page.words import seeded
from subspaces.reports.reading import Group, Reading
from subspaces.text import listed


def notes(groups: Sequence[Group], answers: Sequence[Answer], split: str, images: int) -> list[str]:
    """Return the notes on some groups and on how they answer."""
    runs, what = [run for group in groups for run in group.runs], examples_of(groups)
    records = [run.record for run in runs]
    elsewhere = ["Shifted data"] * any(one.shifts for one in records) + ["Outliers"] * any(o.outliers for o in records)
    apart = f", except under {listed(elsewhere)}" if elsewhere else ""
    found = [f"All numbers are on the {images:,} {what} of the {split} split{apart}."]
    if split == "validation":
        found.append(f"These {what} were held out of training; choices may have been made on them.")
    found += [*_seeds(groups), *_by_chance(groups, answers, images), *_independent(groups, answers), *_time(runs)]
    statistics = sorted({int(run.record.statistics["images"]) for run in runs if run.record.statistics.get("images")})
    if statistics:
        counts = f"{' or '.join(f'{count:,}' for count in statistics)} training {trained_on(runs[0].record)}"
        tried = "".join(f" {text}" for run in runs if (text := statistics_check(run.record, "points", images)))
        found.append(f"Every network has its own batch-norm statistics, from {counts}.{tried}")
    if any(each.name == "pair" for run in runs for each in run.record.answers):
        found.append(
            "A line or curve is shown by the ensemble of 0.1 and 0.9, or the nearest points that were measured: "
            "a pair that was fixed beforehand, not the best one."
        )
    if any(choice.on_test for run in runs for choice in run.record.choices):
        found.append(
            "Some points were chosen on the test set itself, as in the paper, which makes them look better than they "
            "are. They are listed under Choices, marked “chosen on the test set”; the summary does not use them."
        )
    return found


def examples_of(groups: Sequence[Group]) -> str:
    """Return what was asked about, in all groups."""
    others = [group.runs[0].record for group in groups if group.recipe is None]
    return asked(others[0]) if others else "images"


def asked(record: Record) -> str:
    """Return what was asked about: images of data sets, else examples, tokens or pixels."""
    return record.task if record.task in ("tokens", "pixels") else trained_on(record)


def trained_on(record: Record) -> str:
    """Return what a data set consists of."""
    return "examples" if record.recipe is None else "images"


def _by_chance(groups: Sequence[Group], answers: Sequence[Answer], images: int) -> list[str]:
    """Say how far apart accuracies of one run each may be without a reason."""
    accuracy = sum(answer.spread("accuracy").mean for answer in answers) / len(answers)
    if any(len(group.runs) > 1 for group in groups) or not 0 <= accuracy <= 1:
        return []
    margin = 196 * math.sqrt(2 * accuracy * (1 - accuracy) / images)
    once = "one seed and " if any(group.recipe is not None for group in groups) else ""
    return [
        f"With {once}{images:,} {examples_of(groups)}, accuracies less than about {margin:.1f} points apart may "
        "differ by chance (95 %, if the two make their errors independently)."
    ]


def common_seeds(groups: Sequence[Group]) -> set[int]:
    """Return the seeds that most groups were trained with; of several such sets the largest."""
    sets = [set(group.seeds) for group in groups]
    return max(sets, key=lambda seeds: (sets.count(seeds), len(seeds)))


def trained_with(group: Group) -> str:
    """Return the seeds of a group in words; a family that is no run has none that is known."""
    return "no run" if group.recipe is None else seeded(group.seeds)


def _seeds(groups: Sequence[Group]) -> list[str]:
    """Say what ± is over, and which groups were trained with other seeds than most."""
    seeds, common = groups[0].seeds, common_seeds(groups)
    others = [f"{group.label} ({trained_with(group)})" for group in groups if set(group.seeds) != common]
    if all(group.recipe is None for group in groups):
        return []
    if others:
        return [
            "± is the standard deviation over training runs with different seeds; without it there is one run.",
            f"Bold goes only to what was measured with {seeded(sorted(common))}. Trained with other seeds, and so not "
            f"comparable in the table: {listed(others)}. The summary compares over the seeds that both sides have.",
        ]
    if len(seeds) == 1:
        return [f"Everything was trained once ({seeded(seeds)})."]
    return [
        f"± is the standard deviation over {len(seeds)} training runs with different seeds "
        f"({seeded(seeds)}); a difference that is not much larger may be chance."
    ]


def _independent(groups: Sequence[Group], answers: Sequence[Answer]) -> list[str]:
    """Say how ensembles of independent networks are measured where they are missing."""
    there = {answer.group.label for answer in answers if answer.kind == "runs"}
    return [
        f"The ensemble of the independent networks of {group.label} was not measured. In Python: "
        "from subspaces.experiments.evaluating.ensembles import evaluate_together; evaluate_together([["
        + ", ".join(f'"runs/{run.name}"' for run in group.runs[:2])
        + ']], to="runs"); then write this page again.'
        for group in groups
        if group.recipe is not None and group.recipe.method == "standard" and len(group.runs) > 1
        if group.label not in there
    ]


def _time(readings: Sequence[Reading]) -> list[str]:
    """Say what the training time is of, and where it was measured."""
    runs = {reading: run for reading in readings if (run := reading.run) is not None}
    timed = [run for reading, run in runs.items() if reading.training_seconds is not None]
    if runs and not timed:
        return ["The training time is not known: the number of training images is not in these files."]
    machines = dict.fromkeys(str(start["hardware"]) for run in timed for start in run.starts() if "hardware" in start)
    lacking = "" if len(timed) == len(readings) else " “–”: not known."
    return [
        "Training time is that of the training steps alone, on average over seeds; start-up and evaluation are not in "
        f"it. Hardware: {listed(machines)}.{lacking}"
    ][: len(runs)]


def statistics_check(record: Record, where: str, images: int) -> str:
    """Say how much accuracies differ where they were measured with batch-norm statistics of other numbers of images."""
    checks = sorted((one for one in record.checks if one.where == where), key=lambda one: one.statistics_images)
    if len(checks) < 2:
        return ""
    *fewer, most = checks
    name = next(iter(most.values))
    metric = record.metric(name)
    away = max(abs(a - b) for one in fewer for a, b in zip(one.values[name], most.values[name], strict=True))
    counts = " or ".join(f"{one.statistics_images:,}" for one in fewer)
    what = f"{len(most.at)} {'points' if where == 'points' else 'cells'} of {record.name}"
    return (
        f"With batch-norm statistics of {counts} instead of {most.statistics_images:,} {trained_on(record)}, "
        f"the {metric.label} of {what} differs by at most {metric.scale * away:.{places(metric, images)}f}"
        f"{' points' if metric.percent else ''}."
    )
