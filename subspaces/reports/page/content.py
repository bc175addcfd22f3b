"""What the page is of, in numbers and a few notes."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from subspaces.errors import UserError
from subspaces.evaluation.comparing import Group, compare, place, standard_for
from subspaces.evaluation.curves import shared, usual
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.group_answers import GroupAnswer, each_answer
from subspaces.evaluation.rows import Description
from subspaces.evaluation.statistics import signed
from subspaces.reports.page.numbers import places, seeded, shown, trained_with, unit
from subspaces.text import listed
from subspaces.version import __version__


@dataclass(frozen=True)
class Page:
    """What all parts of the page are of."""

    groups: list[Group]
    split: str
    images: int
    what: str  # of which there are so many: images, examples, tokens or pixels
    metrics: list[Description]
    told: list[Description]  # the two that come first

    @classmethod
    def of(cls, groups: list[Group]) -> "Page":
        """Find what all evaluations have in common: a split, test before others, and metrics."""
        every = [each for group in groups for each in group.evaluations]
        counts = [{row.data: row.count for row in each.rows if row.kind == "point" and not row.group} for each in every]
        for each, found in zip(every, counts, strict=True):
            if not found or not each.answers:
                raise UserError(f"{place(each)} has no evaluated point: run `subspaces evaluate {place(each)}`")
        common = [split for split in counts[0] if all(split in found for found in counts)]
        if not common:
            raise UserError("the runs were evaluated on different splits: evaluate them alike")
        split = "test" if "test" in common else common[0]
        if not (metrics := shared(every)):
            raise UserError("the evaluations have no metric in common: expected those of one task")
        own = [group.evaluations[0] for group in groups if group.training is None]
        what = "images" if not own else own[0].task if own[0].task in ("tokens", "pixels") else "examples"
        return cls(groups, split, counts[0][split], what, metrics, usual(groups))

    @property
    def evaluations(self) -> list[tuple[Group, Evaluation]]:
        """Every evaluation with its group."""
        return [(group, each) for group in self.groups for each in group.evaluations]

    @property
    def several(self) -> bool:
        """Whether there are several seeds of anything."""
        return any(len(group.evaluations) > 1 for group in self.groups)

    @property
    def trained(self) -> bool:
        """Whether any of it is a run."""
        return any(group.training is not None for group in self.groups)

    @property
    def common(self) -> set[int]:
        """The seeds that most groups were trained with; of several such sets the largest."""
        sets = [set(group.seeds) for group in self.groups]
        return max(sets, key=lambda seeds: (sets.count(seeds), len(seeds)))

    @property
    def title(self) -> str:
        """The data set and the methods."""
        names = [group.label if group.training is None else group.training.settings["method"] for group in self.groups]
        dataset = str(self.groups[0].evaluations[0].dataset["name"])
        return ": ".join(part for part in (dataset, listed(dict.fromkeys(names))) if part)

    @property
    def subtitle(self) -> str:
        """How it was trained and measured."""
        runs = [group.training for group in self.groups if group.training is not None]
        networks, epochs = (
            listed(dict.fromkeys(str(getattr(one, name)) for one in runs)) for name in ("network", "epochs")
        )
        noise = listed(dict.fromkeys(f"{one.label_noise:.0%}" for one in runs if one.label_noise))
        count = len(self.evaluations)
        parts = [
            *([f"network {networks}", f"{epochs} epochs"] if runs else []),
            *([f"{noise} of the training labels random"] if noise else []),
            f"{count} {'run' if runs else 'evaluation'}{'s' if count > 1 else ''}",
            f"{self.split} split, {self.images:,} {self.what}",
            f"made {datetime.now(UTC):%Y-%m-%d} by subspaces {__version__}",
        ]
        return " · ".join(parts)


def trained_on(one: Evaluation) -> str:
    """Return what a data set consists of."""
    return "examples" if one.training is None else "images"


def notes(page: Page) -> list[str]:
    """Return what a reader has to know to judge the numbers."""
    every = [one for _, one in page.evaluations]
    apart = ", except under Shifted data and Outliers" * any(g.frame["group"].ne("").any() for g in page.groups)
    found = [f"All numbers are on the {page.images:,} {page.what} of the {page.split} split{apart}."]
    if page.split == "validation":
        found.append(f"These {page.what} were held out of training; choices may have been made on them.")
    others = [f"{group.label} ({trained_with(group)})" for group in page.groups if set(group.seeds) != page.common]
    if page.several:
        found.append("± is the standard deviation over training runs with different seeds (n − 1).")
    elif page.trained:
        found.append("One seed each: small differences may be chance.")
    if others and page.trained:
        found.append(f"Bold: only what has {seeded(page.common)}. Not compared: {listed(others)}.")
    if any(one.training is not None and one.training.seconds is not None for one in every):
        found.append("Training time is that of the training steps alone, on average over seeds.")
    counts = sorted({int(one.statistics["images"]) for one in every if one.statistics.get("images")})
    if counts:
        text = f"{' or '.join(f'{count:,}' for count in counts)} training {trained_on(every[0])}"
        found.append(f"Batch-norm statistics of every network: from {text}.")
    found += [text for one in every if (text := statistics_check(one, "points", page.images))]
    if any(each.name == "pair" for one in every for each in one.answers):
        found.append("The pair of a line or curve was fixed beforehand: 0.1 and 0.9, or the nearest measured points.")
    if any(choice.on_test for one in every for choice in one.choices):
        found.append("Choices marked “chosen on the test set” look better than they are.")
    return found


def statistics_check(one: Evaluation, where: str, images: int) -> str:
    """Return how much a metric differs where it was measured with batch-norm statistics of fewer images."""
    checks = sorted((each for each in one.checks if each.where == where), key=lambda each: each.statistics_images)
    if len(checks) < 2:
        return ""
    *fewer, most = checks
    name = next(iter(most.values))
    metric = one.metric(name)
    away = max(abs(a - b) for each in fewer for a, b in zip(each.values[name], most.values[name], strict=True))
    counts = " or ".join(f"{each.statistics_images:,}" for each in fewer)
    return (
        f"With batch-norm statistics of {counts} instead of {most.statistics_images:,} {trained_on(one)}, the "
        f"{metric.label} of {len(most.at)} {'points' if where == 'points' else 'cells'} of {one.name} differs by at "
        f"most {metric.scale * away:.{places(metric, images)}f}{' points' if metric.percent else ''}."
    )


def tiles(page: Page) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the first two metrics of each subspace, beside standard training or the vertices on average."""
    found = []
    for group in [each for each in page.groups if not each.single] or page.groups:
        mine, standard = each_answer(group, page.split), standard_for(group, page.groups)
        ends = [one for one in each_answer(group, page.split, alone=True) if one.kind == "alone"]
        other, what = [*ends, None][0], f"its {group.shape['members']} on average"
        if standard is not None:
            other, what = each_answer(standard, page.split)[0], "standard training"
        parts = [_tile(page, answer, other, what, metric) for answer in mine[:1] for metric in page.told]
        found.append((group.label[:1].upper() + group.label[1:], parts))
    return found


def _tile(
    page: Page, answer: GroupAnswer, other: GroupAnswer | None, what: str, metric: Description
) -> tuple[str, str, str]:
    """Return a number, and beside it what it is compared with over the same seeds."""

    def text(value: float) -> str:
        return shown(value, metric, page.images) + unit(metric)

    value, against = text(answer.spread(metric.name).mean), ""
    if other is not None:
        found = compare(answer.frame, other.frame, metric.name)
        against = f"{what} {text(other.spread(metric.name).mean)}, with other seeds"
        if found is not None and found.complete and not math.isnan(found.difference.mean):
            difference = signed(metric.scale * found.difference.mean, places(metric, page.images))
            against = f"{what} {text(found.second.mean)}, difference {difference}{' points' if metric.percent else ''}"
    return f"{answer.short} {metric.label}", value, against
