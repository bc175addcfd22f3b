"""The summary in words, whichever way the numbers point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from subspaces.evaluation.measured import Measured
from subspaces.evaluation.statistics import Spread, shown, signed
from subspaces.report.answers import Answer, alone, compare, own, standard_for, together
from subspaces.report.measures import measure
from subspaces.report.reading import Group
from subspaces.text import listed, number

TOLD = ("accuracy", "ece")  # both in percent
MISSING = "No standard training of the same setting is among these runs. "


def summary(
    groups: Sequence[Group], split: str, images: int, measured: Sequence[Measured] = ()
) -> list[dict[str, Any]]:
    """Return label, figures and paragraphs for each method of several networks, or for all where there is none."""
    several = [group for group in groups if not group.runs[0].single]
    digits = measure("accuracy").digits(images)
    return [_Part(group, groups, split, measured, digits).shown() for group in several or groups]


@dataclass(frozen=True)
class _Part:
    """What is said of one group; `groups` are all that it may be compared with."""

    group: Group
    groups: Sequence[Group]
    split: str
    measured: Sequence[Measured]
    digits: int

    def shown(self) -> dict[str, Any]:
        mine, baseline = own(self.group, self.split), standard_for(self.group, self.groups)
        standard = own(baseline, self.split)[0] if baseline else None
        other, what = standard, "standard training"
        if other is None and (other := alone(self.group, self.split)) is not None:
            what = f"its {other.name.replace(',', '')}"
        paragraphs = []
        if mine:
            missing = MISSING if standard is None and other is not None else ""
            paragraphs.append((mine[0].short.capitalize(), missing + self._lead(mine[0], other, what)))
        if mine[1:]:
            others = [(mine[0], f"the {mine[0].short}"), *([(standard, what)] if standard else [])]
            paragraphs.append(("Ensemble", self._ensembles(mine[1:], others)))
        for one in together(baseline, self.measured, self.split) if baseline else []:
            paragraphs.append(("Independent networks", self._independent(one, mine)))
        return {
            "label": self.group.label[:1].upper() + self.group.label[1:],
            "figures": [self._figure(answer, other, what, metric) for answer in mine[:1] for metric in TOLD],
            "paragraphs": [*paragraphs, ("Cost", cost(self.group, mine))],
        }

    def _figure(self, answer: Answer, other: Answer | None, what: str, metric: str) -> dict[str, str]:
        """Return a number, and beside it what it is compared with over the same seeds, and the difference."""
        return {
            "name": f"{answer.short} {measure(metric).label}",
            "value": self._mean(answer.spread(metric)),
            "against": self._beside(answer, other, what, metric),
        }

    def _mean(self, values: Spread) -> str:
        return percent(replace(values, std=None), self.digits)

    def _beside(self, answer: Answer, other: Answer | None, what: str, metric: str) -> str:
        if other is None:
            return "nothing among these runs to compare it with"
        found = compare(answer, other, metric)
        if found is None:
            return f"{what} {self._mean(other.spread(metric))}, with other seeds: not compared"
        difference = f"difference {signed(100 * found.difference.mean, self.digits)} points"
        against = f"{what} {self._mean(found.second)}, {difference}"
        if found.complete:
            return against
        return f"with {seeded(found.seeds)}, which both have: {self._mean(found.first)}, {against}"

    def _lead(self, answer: Answer, other: Answer | None, what: str) -> str:
        """Say how good the method's own answer is, beside what it is compared with over the seeds that both have."""
        it = f"The {answer.name}" if answer.networks > 1 else "It"
        accuracy, ece = (percent(answer.spread(metric), self.digits) for metric in TOLD)
        alone = f"{it} is right on {accuracy}. Its ECE is {ece}."
        if other is None:
            return alone
        found = compare(answer, other, "accuracy"), compare(answer, other, "ece")
        if found[0] is None or found[1] is None:
            theirs = " and an ECE of ".join(percent(other.spread(metric), self.digits) for metric in TOLD)
            seeds = seeded(sorted(other.seeds))
            return f"{alone} {what[:1].upper()}{what[1:]} has {theirs}, with other seeds ({seeds}): not compared."
        ours, against = ([percent(getattr(one, side), self.digits) for one in found] for side in ("first", "second"))
        verdicts = [verdict(answer, other, metric, self.digits) for metric in TOLD]
        paired = (
            f"right on {ours[0]}, {what} on {against[0]}: {verdicts[0]}. "
            f"Its ECE is {ours[1]}, against {against[1]}: {verdicts[1]}."
        )
        if found[0].complete:
            return f"{it} is {paired}"
        return f"{alone} With {seeded(found[0].seeds)}, which both have, it is {paired}"

    def _ensembles(self, answers: Sequence[Answer], others: Sequence[tuple[Answer, str]]) -> str:
        """Compare the first with others, and say how good those after it are."""
        first, *more = answers
        accuracy, ece = (
            " and ".join(verdict(first, other, metric, self.digits, name) for other, name in others) for metric in TOLD
        )
        ours = [percent(first.spread(metric), self.digits) for metric in TOLD]
        words = [f"{_subject(first)} is right on {ours[0]}, {accuracy}. Its ECE is {ours[1]}: {ece}."]
        for one in more:
            values = [percent(one.spread(metric), self.digits) for metric in TOLD]
            words.append(f"{_subject(one)} is right on {values[0]}, its ECE {values[1]}.")
        return " ".join(words)

    def _independent(self, answer: Answer, mine: Sequence[Answer]) -> str:
        """Say how good an ensemble of independent runs is, and how the method's own ensemble does against it."""
        accuracy, ece = (percent(answer.spread(metric), self.digits) for metric in TOLD)
        text = f"{_subject(answer)}, after {number(answer.runs)} training runs, is right on {accuracy}, its ECE {ece}."
        ours = next((one for one in mine if one.networks > 1), None)
        if ours is None or compare(ours, answer, "accuracy") is None:
            return text
        said = [f"{verdict(ours, answer, name, self.digits)} in {measure(name).label}" for name in TOLD]
        return f"{text} Against it, the {ours.name} is {' and '.join(said)}."


def _subject(answer: Answer) -> str:
    return f"The {answer.name}" if answer.name.startswith("ensemble") else answer.name


def cost(group: Group, mine: Sequence[Answer]) -> str:
    """Say what training and answering take."""
    run = group.runs[0]
    passes = run.recipe.training_cost
    trained = "One training run" if passes == 1 else f"One training run of {number(int(passes))} passes a step"
    held = "" if run.single else f", which holds the weights of {number(run.vertices)} networks"
    counts = {kind: [a.networks for a in mine if (a.networks == 1) is (kind == 1)] for kind in (1, 2)}
    several = " or ".join(number(count) for count in dict.fromkeys(counts[2]))
    if not counts[2]:
        test = f"{';' if held else ','} one network at test."
    elif counts[1]:
        test = f". At test, one network for the {mine[0].short} and {several} for the ensemble."
    else:
        test = f". At test, {several} networks."
    seconds = [one.training_seconds for one in group.runs]
    known = [each for each in seconds if each is not None]
    time = f" Training took {duration(sum(known) / len(known))}{' a run' if len(seconds) > 1 else ''}." if known else ""
    return f"{trained}{held}{test}{time}"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    size, unit = (1, "s") if seconds < 100 else (60, "min") if seconds < 6000 else (3600, "h")
    return f"{seconds / size:.2g}\u00a0{unit}" if seconds / size < 10 else f"{seconds / size:.0f}\u00a0{unit}"


def percent(values: Spread, digits: int) -> str:
    """Return mean and standard deviation of a share in percent."""
    return f"{shown(values, 100, digits)} %".replace(" ", "\u00a0")


def seeded(seeds: Sequence[int]) -> str:
    """Return seeds in words."""
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {listed(map(str, seeds))}"


def verdict(first: Answer, second: Answer, metric: str, digits: int, other: str = "") -> str:
    """Say how much better or worse the first answer is than the other, and in how many of the seeds that both have.

    It is so on average only, where the seeds do not agree.
    """
    found = compare(first, second, metric)
    if found is None:
        return f"not compared{other and f' with {other}'} (no seed in common)"
    better = 1 if measure(metric).higher else -1
    difference = 100 * better * found.difference.mean
    if round(abs(difference), digits) == 0:
        return f"no different{other and f' from {other}'}"
    text = f"{abs(difference):.{digits}f} points {'better' if difference > 0 else 'worse'}{other and f' than {other}'}"
    each = [better * one * difference > 0 for one in found.difference.values]
    if len(each) == 1:
        return text
    average, units = "" if all(each) else " on average", "seeds" if len(each) == len(found.seeds) else "ensembles"
    return f"{text}{average} (in {sum(each)} of {len(each)} {units})"
