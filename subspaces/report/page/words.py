"""The summary in words, whichever way the numbers point."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from subspaces.evaluation.record import Record
from subspaces.report.page.ways import HIGHER_IS_BETTER, SMALL, Way, standard_for, ways
from subspaces.report.reading import Group


def summary(groups: Sequence[Group], split: str, images: int) -> list[dict[str, Any]]:
    """Return label, figures and paragraphs for each subspace, or for single networks where there is nothing else."""
    digits = places(images)
    subspaces = [group for group in groups if not group.runs[0].single]
    parts = []
    for group in subspaces or groups:
        found = {way.kind: way for way in reversed(ways(group, split))}  # the first of each kind
        first = found.get("midpoint") or found.get("network")
        baseline = standard_for(group, groups)
        standard = ways(baseline, split)[0] if baseline else None
        paragraphs = []
        if "network" in found:
            accuracy, ece = (spread(found["network"], metric, digits) for metric in ("accuracy", "ece"))
            paragraphs.append(("Network", f"It is right on {accuracy}. Its ECE is {ece}."))
        if "midpoint" in found:
            paragraphs.append(("Midpoint", _midpoint(found, standard, digits)))
        if "ensemble" in found and "midpoint" in found:
            paragraphs.append(("Ensemble", _ensemble(found, standard, digits)))
        paragraphs.append(("Cost", _cost(group, found)))
        parts.append(
            {
                "label": group.label[:1].upper() + group.label[1:],
                "figures": _figures(first, digits) if first else [],
                "paragraphs": paragraphs,
            }
        )
    return parts


def _figures(way: Way, digits: int) -> list[tuple[str, str]]:
    return [
        (f"{way.kind} {label}", f"{100 * way.mean(metric):.{digits}f}\u00a0%")
        for label, metric in (("accuracy", "accuracy"), ("ECE", "ece"))
    ]


def _midpoint(found: dict[str, Way], standard: Way | None, digits: int) -> str:
    """Compare the midpoint with standard training, or with the ends where there is none among the runs."""
    midpoint, other = found["midpoint"], standard or found.get("ends")
    right = f"It is right on {spread(midpoint, 'accuracy', digits)}"
    calibration = f"Its ECE is {spread(midpoint, 'ece', digits)}"
    if other is None:
        return f"{right}. {calibration}."
    what = "standard training" if standard else f"its {other.name.replace(',', '')}"  # ends or vertices on average
    missing = "" if standard else "No standard training of the same setting is among these runs. "
    return (
        f"{missing}{right}, {what} on {spread(other, 'accuracy', digits)}: "
        f"{verdict(midpoint, other, 'accuracy', digits)}. "
        f"{calibration}, against {spread(other, 'ece', digits)}: {verdict(midpoint, other, 'ece', digits)}."
    )


def _ensemble(found: dict[str, Way], standard: Way | None, digits: int) -> str:
    """Compare the ensemble with the midpoint, and with standard training where it is among the runs."""
    ensemble, others = found["ensemble"], [(found["midpoint"], "the midpoint")]
    if standard:
        others.append((standard, "standard training"))
    accuracy, ece = (
        " and ".join(verdict(ensemble, other, metric, digits, name) for other, name in others)
        for metric in ("accuracy", "ece")
    )
    words = [
        f"The {ensemble.name} is right on {spread(ensemble, 'accuracy', digits)}, {accuracy}.",
        f"Its ECE is {spread(ensemble, 'ece', digits)}: {ece}.",
    ]
    if more := found.get("random"):
        words.append(
            f"The {more.name} is right on {spread(more, 'accuracy', digits)}, its ECE {spread(more, 'ece', digits)}."
        )
    return " ".join(words)


def _cost(group: Group, found: dict[str, Way]) -> str:
    passes = group.runs[0].recipe.training_cost
    run = "One training run" if passes == 1 else f"One training run of {SMALL.get(int(passes), passes)} passes a step"
    if "network" in found:
        return f"{run}, one network at test."
    vertices = SMALL.get(group.runs[0].vertices, str(group.runs[0].vertices))
    trained = f"{run}, which holds the weights of {vertices} networks"
    if "ensemble" not in found:
        return f"{trained}; one network at test."
    counts = [found[kind].networks for kind in ("ensemble", "random") if kind in found]
    networks = " or ".join(SMALL.get(count, str(count)) for count in dict.fromkeys(counts))
    return f"{trained}. At test, one network for the midpoint and {networks} for the ensemble."


def spread(way: Way, metric: str, digits: int) -> str:
    """Return mean and standard deviation of a share in percent."""
    deviation = way.std(metric)
    around = "" if deviation is None else f"\u00a0±\u00a0{100 * deviation:.{digits}f}"
    return f"{100 * way.mean(metric):.{digits}f}{around}\u00a0%"


def verdict(first: Way, second: Way, metric: str, digits: int, other: str = "") -> str:
    """Say how much better or worse the first way is than the other, and in how many of the seeds that both have.

    It is so on average only, where the seeds do not agree.
    """
    better = 1 if metric in HIGHER_IS_BETTER else -1
    seeds = [seed for seed in first.by_seed if seed in second.by_seed]
    paired = len(seeds) == len(first.by_seed) == len(second.by_seed)
    difference = better * 100 * (first.mean(metric) - second.mean(metric))
    if round(abs(difference), digits) == 0:
        return f"no different{other and f' from {other}'}"
    word = "better" if difference > 0 else "worse"
    text = f"{abs(difference):.{digits}f} points {word}{other and f' than {other}'}"
    if not paired or len(seeds) == 1:
        return text
    each = better * (np.array(first.values(metric, seeds)) - np.array(second.values(metric, seeds)))
    agreeing = int((each * math.copysign(1, difference) > 0).sum())
    return f"{text}{'' if agreeing == len(seeds) else ' on average'} (in {agreeing} of {len(seeds)} seeds)"


def places(images: int) -> int:
    """Return the decimal places of a percentage that a split of so many images can tell apart."""
    return 1 if images < 5000 else 2


def notes(groups: Sequence[Group], split: str, images: int) -> list[str]:
    """Return what a reader has to know to judge the numbers."""
    runs = [run for group in groups for run in group.runs]
    found = [f"All numbers are on the {split} split, {images:,} images; ECE has 20 bins of equal width."]
    if split == "validation":
        found.append("The validation images were held out of training; choices may have been made on them.")
    found.append(_seeds(groups))
    if all(len(group.runs) == 1 for group in groups):
        accuracy = float(np.mean([way.mean("accuracy") for group in groups for way in ways(group, split)]))
        margin = 196 * math.sqrt(2 * accuracy * (1 - accuracy) / images)
        found.append(
            f"With one seed and {images:,} images, accuracies less than about {margin:.1f} points apart "
            "may differ by chance (95 %, independent errors)."
        )
    statistics = sorted({int(run.record.statistics["images"]) for run in runs if run.record.statistics.get("images")})
    if statistics:
        counts = " or ".join(f"{count:,}" for count in statistics)
        tried = "".join(f" {text}" for run in runs if (text := statistics_check(run.record, "points", images)))
        found.append(f"Batch-norm statistics are of {counts} training images, anew at every point.{tried}")
    if any(run.interval for run in runs):
        found.append(
            "The pair of points that stands for a line or curve, the nearest to α = 0.1 and 0.9, was fixed beforehand."
        )
    if any(choice.on_test for run in runs for choice in run.record.choices):
        found.append(
            "Some points were chosen on the test set itself, as the paper does; they are listed under Choices, "
            "marked “chosen on the test set”, flatter the method, and are not used in this summary."
        )
    return found


def _seeds(groups: Sequence[Group]) -> str:
    seeds = groups[0].seeds
    if any(group.seeds != seeds for group in groups):
        return "± is the standard deviation over training runs with different seeds; without it there is one run."
    text = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    if len(seeds) == 1:
        return f"Everything was trained once ({text})."
    return (
        f"± is the standard deviation over {len(seeds)} training runs with different seeds ({text}); "
        "a difference that is not much larger may be chance."
    )


def statistics_check(record: Record, where: str, images: int) -> str:
    """Say how much accuracies differ where they were measured with batch-norm statistics of other numbers of images."""
    checks = sorted((one for one in record.checks if one.where == where), key=lambda one: one.statistics_images)
    if len(checks) < 2:
        return ""
    *fewer, most = checks
    away = max(abs(a - b) for one in fewer for a, b in zip(one.accuracy, most.accuracy, strict=True))
    counts = " or ".join(f"{one.statistics_images:,}" for one in fewer)
    what = f"{len(most.at)} {'points' if where == 'points' else 'cells'} of {record.run}"
    return (
        f"With batch-norm statistics of {counts} instead of {most.statistics_images:,} images, "
        f"the accuracies of {what} differ by at most {100 * away:.{places(images)}f} points."
    )
