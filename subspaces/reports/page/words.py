"""The summary in words, whichever way the numbers point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from subspaces.evaluation.cache import Measured
from subspaces.evaluation.record import Description
from subspaces.evaluation.statistics import Spread, shown, signed
from subspaces.reports.answers import Answer, alone, compare, own, scaled, standard_for, together
from subspaces.reports.measures import places
from subspaces.reports.reading import Group
from subspaces.text import listed, number

MISSING = "No standard training of the same setting is among these runs. "


@dataclass(frozen=True)
class Told:
    """A metric of the summary, and how many decimal places it is told with."""

    metric: Description
    digits: int

    @property
    def name(self) -> str:
        """Its name."""
        return self.metric.name

    def text(self, values: Spread, alone: bool = False) -> str:
        """Return mean and standard deviation, or the mean alone, with the unit."""
        given = replace(values, std=None) if alone else values
        unit = " %" if self.metric.percent else ""
        return f"{shown(given, self.metric.scale, self.digits)}{unit}".replace(" ", "\u00a0")

    def good(self, text: str) -> str:
        """Say how good something is."""
        return f"is right on {text}" if self.name == "accuracy" else f"has {self.metric.label} {text}"

    @property
    def on(self) -> str:
        """What stands before another one's number."""
        return "on " if self.name == "accuracy" else ""


def told(groups: Sequence[Group], count: int) -> tuple[Told, Told]:
    """Return the two metrics of the summary: accuracy and calibration of classifiers, else the first two."""
    known = {each.name: each for each in groups[0].runs[0].described}
    names = [name for name in ("accuracy", "ece") if name in known]
    first, second = (names if len(names) == 2 else list(known) * 2)[:2]
    return Told(known[first], places(known[first], count)), Told(known[second], places(known[second], count))


def summary(
    groups: Sequence[Group], split: str, images: int, measured: Sequence[Measured] = ()
) -> list[dict[str, Any]]:
    """Return label, figures and paragraphs for each method of several networks, or for all where there is none."""
    several = [group for group in groups if not group.runs[0].single]
    both = told(groups, images)
    return [_Part(group, groups, split, measured, both).shown() for group in several or groups]


@dataclass(frozen=True)
class _Part:
    """What is said of one group; `groups` are all that it may be compared with."""

    group: Group
    groups: Sequence[Group]
    split: str
    measured: Sequence[Measured]
    told: tuple[Told, Told]

    def shown(self) -> dict[str, Any]:
        mine, baseline = own(self.group, self.split), standard_for(self.group, self.groups)
        standard = own(baseline, self.split)[0] if baseline else None
        other, what = standard, "standard training"
        if other is None and (other := alone(self.group, self.split)) is not None:
            what = f"its {other.name.replace(',', '')}"
        paragraphs = []
        if mine:
            missing = MISSING if standard is None and other is not None and self.group.recipe is not None else ""
            paragraphs.append((mine[0].short.capitalize(), missing + self._lead(mine[0], other, what)))
        if mine[1:]:
            others = [(mine[0], f"the {mine[0].short}"), *([(standard, what)] if standard else [])]
            paragraphs.append(("Ensemble", self._ensembles(mine[1:], others)))
        for one in together(baseline, self.measured, self.split) if baseline else []:
            paragraphs.append(("Independent networks", self._independent(one, mine)))
        paragraphs += self._temperatures(baseline)
        return {
            "label": self.group.label[:1].upper() + self.group.label[1:],
            "figures": [self._figure(answer, other, what, each) for answer in mine[:1] for each in self.told],
            "paragraphs": [*paragraphs, ("Cost", cost(self.group, mine))],
        }

    def _figure(self, answer: Answer, other: Answer | None, what: str, each: Told) -> dict[str, str]:
        """Return a number, and beside it what it is compared with over the same seeds, and the difference."""
        return {
            "name": f"{answer.short} {each.metric.label}",
            "value": each.text(answer.spread(each.name), alone=True),
            "against": self._beside(answer, other, what, each),
        }

    def _beside(self, answer: Answer, other: Answer | None, what: str, each: Told) -> str:
        if other is None:
            return "nothing among these runs to compare it with"
        found = compare(answer, other, each.name)
        if found is None:
            return f"{what} {each.text(other.spread(each.name), alone=True)}, with other seeds: not compared"
        difference = f"difference {signed(each.metric.scale * found.difference.mean, each.digits)}{_points(each)}"
        against = f"{what} {each.text(found.second, alone=True)}, {difference}"
        if found.complete:
            return against
        return f"with {seeded(found.seeds)}, which both have: {each.text(found.first, alone=True)}, {against}"

    def _lead(self, answer: Answer, other: Answer | None, what: str) -> str:
        """Say how good the method's own answer is, beside what it is compared with over the seeds that both have."""
        it = f"The {answer.name}" if answer.networks > 1 else "It"
        first, second = self.told
        mine = [each.text(answer.spread(each.name)) for each in self.told]
        alone = f"{it} {first.good(mine[0])}. Its {second.metric.label} is {mine[1]}."
        if other is None:
            return alone
        found = compare(answer, other, first.name), compare(answer, other, second.name)
        if found[0] is None or found[1] is None:
            theirs = [each.text(other.spread(each.name)) for each in self.told]
            seeds = seeded(sorted(other.seeds))
            has = f"has {theirs[0]} and an {second.metric.label} of {theirs[1]}"
            return f"{alone} {what[:1].upper()}{what[1:]} {has}, with other seeds ({seeds}): not compared."
        pairs = list(zip(self.told, found, strict=True))
        ours, against = ([each.text(getattr(one, side)) for each, one in pairs] for side in ("first", "second"))
        verdicts = [verdict(answer, other, each) for each in self.told]
        paired = (
            f"{first.good(ours[0])}, {what} {first.on}{against[0]}: {verdicts[0]}. "
            f"Its {second.metric.label} is {ours[1]}, against {against[1]}: {verdicts[1]}."
        )
        if found[0].complete:
            return f"{it} {paired}"
        return f"{alone} With {seeded(found[0].seeds)}, which both have, it {paired}"

    def _ensembles(self, answers: Sequence[Answer], others: Sequence[tuple[Answer, str]]) -> str:
        """Compare the first with others, and say how good those after it are."""
        lead, *more = answers
        first, second = self.told
        good, calibrated = (
            " and ".join(verdict(lead, other, each, name) for other, name in others) for each in self.told
        )
        ours = [each.text(lead.spread(each.name)) for each in self.told]
        words = [
            f"{_subject(lead)} {first.good(ours[0])}, {good}. Its {second.metric.label} is {ours[1]}: {calibrated}."
        ]
        for one in more:
            values = [each.text(one.spread(each.name)) for each in self.told]
            words.append(f"{_subject(one)} {first.good(values[0])}, its {second.metric.label} {values[1]}.")
        return " ".join(words)

    def _independent(self, answer: Answer, mine: Sequence[Answer]) -> str:
        """Say how good an ensemble of independent runs is, and how the method's own ensemble does against it."""
        first, second = self.told
        values = [each.text(answer.spread(each.name)) for each in self.told]
        text = (
            f"{_subject(answer)}, after {number(answer.runs)} training runs, {first.good(values[0])}, its "
            f"{second.metric.label} {values[1]}."
        )
        ours = next((one for one in mine if one.networks > 1), None)
        if ours is None or compare(ours, answer, first.name) is None:
            return text
        said = [f"{verdict(ours, answer, each)} in {each.metric.label}" for each in self.told]
        return f"{text} Against it, the {ours.name} is {' and '.join(said)}."

    def _temperatures(self, baseline: Group | None) -> list[tuple[str, str]]:
        """Say what is left of a better calibration when both sides have a temperature fitted on held-out examples."""
        second = self.told[1]
        mine = scaled(self.group, self.split)
        if not mine:
            return []
        text = f"After temperature scaling its {second.metric.label} is {second.text(mine[0].spread(second.name))}"
        theirs = scaled(baseline, self.split) if baseline else []
        if theirs:
            standard = second.text(theirs[0].spread(second.name))
            text += f", that of standard training {standard}: {verdict(mine[0], theirs[0], second)}"
        return [("Temperature", f"{text}. The temperature is fitted on held-out examples; no answer changes.")]


def _points(each: Told) -> str:
    return " points" if each.metric.percent else ""


def _subject(answer: Answer) -> str:
    return f"The {answer.name}" if answer.name.startswith("ensemble") else answer.name


def cost(group: Group, mine: Sequence[Answer]) -> str:
    """Say what training and answering take."""
    run = group.runs[0]
    passes = 1 if run.recipe is None else run.recipe.training_cost
    trained = "One training run" if passes == 1 else f"One training run of {number(int(passes))} passes a step"
    if not run.single and not run.subspace and run.recipe is None:
        trained = f"{number(run.vertices).capitalize()} networks"
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


def seeded(seeds: Sequence[int]) -> str:
    """Return seeds in words."""
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {listed(map(str, seeds))}"


def verdict(first: Answer, second: Answer, told: Told, other: str = "") -> str:
    """Say how much better or worse the first answer is than the other, and in how many of the seeds that both have.

    It is so on average only, where the seeds do not agree.
    """
    found = compare(first, second, told.name)
    if found is None:
        return f"not compared{other and f' with {other}'} (no seed in common)"
    metric, pairs = told.metric, zip(found.first.values, found.second.values, strict=True)
    each = [metric.scale * (metric.merit(a) - metric.merit(b)) for a, b in pairs]
    difference = sum(each) / len(each)
    if round(abs(difference), told.digits) == 0:
        return f"no different{other and f' from {other}'}"
    word = "better" if difference > 0 else "worse"
    text = f"{abs(difference):.{told.digits}f}{_points(told)} {word}{other and f' than {other}'}"
    agree = [one * difference > 0 for one in each]
    if len(each) == 1:
        return text
    average, units = "" if all(agree) else " on average", "seeds" if len(each) == len(found.seeds) else "ensembles"
    return f"{text}{average} (in {sum(agree)} of {len(each)} {units})"
