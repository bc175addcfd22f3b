"""The summary in words, whichever way the numbers point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from subspaces.evaluation.cache import Measured
from subspaces.evaluation.record import Description
from subspaces.evaluation.statistics import Spread, shown, signed
from subspaces.reports.answers import Answer, alone, compare, own, scaled, standard_for, together
from subspaces.reports.measures import places, usual
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

    @property
    def points(self) -> str:
        """What a difference is counted in."""
        return " points" if self.metric.percent else ""

    def text(self, values: Spread, alone: bool = False) -> str:
        """Return mean and standard deviation, or the mean alone, with the unit."""
        given = replace(values, std=None) if alone else values
        unit = " %" if self.metric.percent else ""
        return f"{shown(given, self.metric.scale, self.digits)}{unit}".replace(" ", "\u00a0")

    def good(self, text: str) -> str:
        """Say how good something is."""
        return f"is right on {text}" if self.name == "accuracy" else f"has {self.metric.label} {text}"


def summary(
    groups: Sequence[Group], split: str, images: int, measured: Sequence[Measured] = ()
) -> list[dict[str, Any]]:
    """Return label, figures and paragraphs for each method of several networks, or for all where there is none."""
    several = [group for group in groups if not group.runs[0].single]
    both = [Told(each, places(each, images)) for each in (usual(groups) * 2)[:2]]
    return [_Part(group, groups, split, measured, *both).shown() for group in several or groups]


@dataclass(frozen=True)
class _Part:
    """What is said of one group by two metrics; `groups` are all that it may be compared with."""

    group: Group
    groups: Sequence[Group]
    split: str
    measured: Sequence[Measured]
    first: Told
    second: Told

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
            "figures": [self._figure(one, other, what, each) for one in mine[:1] for each in (self.first, self.second)],
            "paragraphs": [*paragraphs, ("Cost", cost(self.group, mine))],
        }

    def _figure(self, answer: Answer, other: Answer | None, what: str, each: Told) -> dict[str, str]:
        """Return a number, and beside it what it is compared with over the same seeds, and the difference."""
        found = None if other is None else compare(answer, other, each.name)
        if other is None:
            against = "nothing among these runs to compare it with"
        elif found is None:
            against = f"{what} {each.text(other.spread(each.name), alone=True)}, with other seeds: not compared"
        else:
            difference = f"difference {signed(each.metric.scale * found.difference.mean, each.digits)}{each.points}"
            against = f"{what} {each.text(found.second, alone=True)}, {difference}"
            if not found.complete:
                ours = each.text(found.first, alone=True)
                against = f"with {seeded(found.seeds)}, which both have: {ours}, {against}"
        value = each.text(answer.spread(each.name), alone=True)
        return {"name": f"{answer.short} {each.metric.label}", "value": value, "against": against}

    def _both(self, answer: Answer) -> tuple[str, str]:
        """Return how good an answer is, and its second metric."""
        texts = [each.text(answer.spread(each.name)) for each in (self.first, self.second)]
        return self.first.good(texts[0]), texts[1]

    def _lead(self, answer: Answer, other: Answer | None, what: str) -> str:
        """Say how good the method's own answer is, beside what it is compared with over the seeds that both have."""
        it = f"The {answer.name}" if answer.networks > 1 else "It"
        first, second, label = self.first, self.second, self.second.metric.label
        good, value = self._both(answer)
        alone = f"{it} {good}. Its {label} is {value}."
        if other is None:
            return alone
        one, two = compare(answer, other, first.name), compare(answer, other, second.name)
        if one is None or two is None:
            theirs = [each.text(other.spread(each.name)) for each in (first, second)]
            has = f"has {theirs[0]} and an {label} of {theirs[1]}, with other seeds ({seeded(sorted(other.seeds))})"
            return f"{alone} {what[:1].upper()}{what[1:]} {has}: not compared."
        on = "on " if first.name == "accuracy" else ""
        paired = (
            f"{first.good(first.text(one.first))}, {what} {on}{first.text(one.second)}: "
            f"{verdict(answer, other, first)}. Its {label} is {second.text(two.first)}, against "
            f"{second.text(two.second)}: {verdict(answer, other, second)}."
        )
        return f"{it} {paired}" if one.complete else f"{alone} With {seeded(one.seeds)}, which both have, it {paired}"

    def _ensembles(self, answers: Sequence[Answer], others: Sequence[tuple[Answer, str]]) -> str:
        """Compare the first with others, and say how good those after it are."""
        lead, *more = answers
        good, value = self._both(lead)
        better, calibrated = (
            " and ".join(verdict(lead, other, each, name) for other, name in others)
            for each in (self.first, self.second)
        )
        label = self.second.metric.label
        words = [f"{_subject(lead)} {good}, {better}. Its {label} is {value}: {calibrated}."]
        for one in more:
            good, value = self._both(one)
            words.append(f"{_subject(one)} {good}, its {label} {value}.")
        return " ".join(words)

    def _independent(self, answer: Answer, mine: Sequence[Answer]) -> str:
        """Say how good an ensemble of independent runs is, and how the method's own ensemble does against it."""
        good, value = self._both(answer)
        runs = f"after {number(answer.runs)} training runs"
        text = f"{_subject(answer)}, {runs}, {good}, its {self.second.metric.label} {value}."
        ours = next((one for one in mine if one.networks > 1), None)
        if ours is None or compare(ours, answer, self.first.name) is None:
            return text
        said = [f"{verdict(ours, answer, each)} in {each.metric.label}" for each in (self.first, self.second)]
        return f"{text} Against it, the {ours.name} is {' and '.join(said)}."

    def _temperatures(self, baseline: Group | None) -> list[tuple[str, str]]:
        """Say what is left of a better calibration when both sides have a temperature fitted on held-out examples."""
        mine = scaled(self.group, self.split)
        if not mine:
            return []
        text = f"After temperature scaling its {self.second.metric.label} is {self._both(mine[0])[1]}"
        for theirs in scaled(baseline, self.split)[:1] if baseline else []:
            against = verdict(mine[0], theirs, self.second)
            text += f", that of standard training {self._both(theirs)[1]}: {against}"
        return [("Temperature", f"{text}. The temperature is fitted on held-out examples; no answer changes.")]


def _subject(answer: Answer) -> str:
    return f"The {answer.name}" if answer.name.startswith("ensemble") else answer.name


def cost(group: Group, mine: Sequence[Answer]) -> str:
    """Say what training and answering take."""
    run = group.runs[0]
    passes = 1 if run.recipe is None else int(run.recipe.training_cost)
    trained = "One training run" + ("" if passes == 1 else f" of {number(passes)} passes a step")
    if not run.single and run.recipe is None and run.shape["members"] != "vertices":
        trained = f"{number(run.vertices).capitalize()} networks"
    held = "" if run.single else f", which holds the weights of {number(run.vertices)} networks"
    several = " or ".join(dict.fromkeys(number(answer.networks) for answer in mine if answer.networks > 1))
    if not several:
        test = f"{';' if held else ','} one network at test."
    elif any(answer.networks == 1 for answer in mine):
        test = f". At test, one network for the {mine[0].short} and {several} for the ensemble."
    else:
        test = f". At test, {several} networks."
    known = [seconds for one in group.runs if (seconds := one.training_seconds) is not None]
    each = " a run" if len(group.runs) > 1 else ""
    time = f" Training took {duration(sum(known) / len(known))}{each}." if known else ""
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
    text = f"{abs(difference):.{told.digits}f}{told.points} {word}{other and f' than {other}'}"
    agree = [one * difference > 0 for one in each]
    if len(each) == 1:
        return text
    average, units = "" if all(agree) else " on average", "seeds" if len(each) == len(found.seeds) else "ensembles"
    return f"{text}{average} (in {sum(agree)} of {len(each)} {units})"
