"""What the page is of, and its numbers as text."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from subspaces.errors import UserError
from subspaces.evaluation.comparing import Group, each_answer, heading, place, standard_for
from subspaces.evaluation.curves import shared, usual
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.statistics import Spread
from subspaces.text import listed
from subspaces.version import __version__

NONE = "–"


@dataclass(frozen=True)
class Page:
    """What all parts of the page are of."""

    groups: list[Group]
    split: str
    images: int
    what: str  # of which there are so many: images, examples, tokens or pixels
    metrics: list[Metric]
    headline: list[Metric]  # the two that come first

    @classmethod
    def of(cls, groups: list[Group]) -> "Page":
        """Find what all evaluations have in common: a split, test before others, and metrics."""
        every = [each for group in groups for each in group.evaluations]
        counts = [{row.data: row.count for row in each.rows if row.kind == "point" and not row.group} for each in every]
        for each, found in zip(every, counts, strict=True):
            if not found or not each.answers:
                raise UserError(f"{place(each)} has no evaluated point: run `subspaces evaluate {place(each)}`")
        common = [split for split in counts[0] if all(split in found for found in counts)]
        metrics = shared(every)
        if not common or not metrics:
            what = "metric in common: expected those of one task" if common else "split in common: evaluate them alike"
            raise UserError(f"the evaluations have no {what}")
        split = "test" if "test" in common else common[0]
        own = [group.evaluations[0].task for group in groups if group.training is None]
        what = "images" if not own else own[0] if own[0] in ("tokens", "pixels") else "examples"
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
    def statistics(self) -> str:
        """From how many training examples the batch-norm statistics are."""
        counts = {int(one.statistics["images"]) for _, one in self.evaluations if one.statistics.get("images")}
        return " or ".join(f"{count:,}" for count in sorted(counts))

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
        epochs = listed(str(each) for each in dict.fromkeys(one.epochs for one in runs))
        count = len(self.evaluations)
        parts = [
            heading(runs if len(runs) == len(self.groups) else []),
            f"{epochs} epochs" if runs else "",
            f"{count} {'run' if runs else 'evaluation'}{'s' if count > 1 else ''}",
            f"{self.split} split, {self.images:,} {self.what}",
            f"made {datetime.now(UTC):%Y-%m-%d} by subspaces {__version__}",
        ]
        return " · ".join(filter(None, parts))

    def shown(self, values: Spread | float | None, metric: Metric) -> str:
        """Return mean ± standard deviation without the unit; a dash of what is not known."""
        found = values if isinstance(values, Spread) else Spread([], math.nan if values is None else values, None)
        if math.isnan(found.mean):
            return NONE
        digits = self.places(metric)
        around = "" if found.std is None else f" ± {metric.scale * found.std:.{digits}f}"
        return f"{metric.scale * found.mean:.{digits}f}{around}"

    def places(self, metric: Metric) -> int:
        """Return the decimal places that a split of so many examples can tell apart."""
        return (1 if self.images < 5000 else 2) if metric.percent else 3

    def tiles(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """Return the first two metrics of each subspace, beside standard training or the vertices on average."""
        found = []
        for group in [each for each in self.groups if not each.single] or self.groups:
            mine, standard = each_answer(group, self.split)[0], standard_for(group, self.groups)
            ends = [one for one in each_answer(group, self.split, alone=True) if one.kind == "alone"]
            others, what = ends[:1], f"its {group.shape['members']} on average"
            if standard is not None:
                others, what = each_answer(standard, self.split)[:1], "standard training"
            parts = []
            for metric in self.headline:
                values = [self.shown(each.spread(metric.name).mean, metric) + unit(metric) for each in (mine, *others)]
                against = f"{what} {values[1]}" if others else ""
                parts.append((f"{mine.short} {metric.label}", values[0], against))
            found.append((capital(group.label), parts))
        return found


def capital(text: str) -> str:
    """Return text with a capital letter."""
    return text[:1].upper() + text[1:]


def unit(metric: Metric) -> str:
    """Return the unit of a metric after a space that does not break."""
    return "\u00a0%" if metric.percent else ""


def better(metric: Metric) -> str:
    """Return which way a metric is good; nothing where it has a goal."""
    return "" if metric.goal is not None else f"; {'lower' if metric.lower_is_better else 'higher'} is better"


def seeded(seeds: Iterable[int]) -> str:
    """Return seeds in words."""
    several = sorted(seeds)
    return f"{'seed' if len(several) == 1 else 'seeds'} {listed(map(str, several))}"


def rounded(value: Any, digits: int = 6) -> Any:
    """Return numbers with so many digits, however deep they lie; what is not finite becomes None."""
    if isinstance(value, dict):
        return {name: part if name == "alpha" else rounded(part, digits) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part, digits) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
