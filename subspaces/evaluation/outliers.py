"""Telling examples of no known class from those of the test: a score of each example, and how well it parts the two.

A score is higher the more familiar an example seems to be. Of two sets of scores, AUROC is the probability that a test
example has the higher one, and FPR95 the share of outliers that are taken for test examples by the highest threshold
that keeps 95 % of these.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.classification import Classes, log_mean
from subspaces.evaluation.measuring import Batch
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import OUTLIERS, About
from subspaces.evaluation.subject import Data, Subject

KEPT = 95  # percent of the test examples


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return P(a > b) + ½ P(a = b) for a score a of the test examples and b of the outliers."""
    inner, outer = _sorted(inside, outside)
    below = torch.searchsorted(outer, inner, side="left")
    not_above = torch.searchsorted(outer, inner, side="right")
    pairs = (below + not_above).sum(dtype=torch.float64) / 2
    return float(pairs / (len(inner) * len(outer)))


def fpr95(inside: Tensor, outside: Tensor) -> float:
    """Return the share of outliers with at least the score that 95 % of the test examples have at least."""
    inner, outer = _sorted(inside, outside)
    lost = (100 - KEPT) * len(inner) // 100  # of the lowest scores
    return float((outer >= inner[lost]).double().mean())


def _sorted(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    for name, scores in (("inside", inside), ("outside", outside)):
        if scores.ndim != 1 or not len(scores) or bool(scores.isnan().any()):
            raise ArgumentError(f"{name} of shape {tuple(scores.shape)}: expected at least one score, none of them NaN")
    return inside.double().sort().values, outside.double().sort().values


@dataclass(frozen=True)
class Score:
    """How familiar each example seems, from what the members of an ensemble say and what they say on average.

    Args:
        name: in files and code.
        label: in tables.
        meaning: what it is, in half a sentence.
        of: of the members' log-probabilities [k, n, classes] and those of their mean [n, classes], -> [n].
        together: whether it takes several members.
    """

    name: str
    label: str
    meaning: str
    of: Callable[[Tensor, Tensor], Tensor]
    together: bool = False


def entropy(logs: Tensor) -> Tensor:
    """Return -sum_y p(y) log p(y) of log-probabilities [..., classes]."""
    found: Tensor = torch.special.entr(logs.exp()).sum(-1)
    return found


def mutual_information(members: Tensor, mean: Tensor) -> Tensor:
    """Return the entropy of the mean minus the mean entropy of the members."""
    return entropy(mean) - entropy(members).mean(0)


SCORES = (
    Score("probability", "max. probability", "the largest probability", lambda members, mean: mean.amax(-1).exp()),
    Score("entropy", "entropy", "minus the entropy of the probabilities", lambda members, mean: -entropy(mean)),
    Score(
        "disagreement",
        "disagreement",
        "how little the members disagree (minus the mutual information of answer and member)",
        lambda members, mean: -mutual_information(members, mean),
        together=True,
    ),
)


class Measure(NamedTuple):
    """A number that says how well scores part two sets."""

    name: str
    label: str
    meaning: str
    lower_is_better: bool
    of: Callable[[Tensor, Tensor], float]


MEASURES = (
    Measure("auroc", "AUROC", "how often a test example scores higher than an outlier", False, auroc),
    Measure(
        "fpr95", "FPR95", "share of outliers that pass a threshold which 95 % of the test examples pass", True, fpr95
    ),
)
METRICS = [
    Metric(
        f"{measure.name}_{score.name}",
        f"{measure.label}, {score.label}",
        f"{measure.meaning}, by {score.meaning}",
        lower_is_better=measure.lower_is_better,
        percent=True,
        headline=score.name != "entropy",
    )
    for score in SCORES
    for measure in MEASURES
]
"""What rows about outliers hold; that of disagreement for ensembles alone."""


def scores(members: Sequence[Classes]) -> dict[str, Tensor]:
    """Return the scores of examples by name, float64 [n], from what networks say that answer together."""
    logits = torch.stack([member.logs for member in members])
    logs, mean = logits.double().log_softmax(-1), log_mean(logits)
    several = len({id(member) for member in members}) > 1  # a point beside itself cannot disagree
    return {each.name: each.of(logs, mean) for each in SCORES if several or not each.together}


def told_apart(inside: dict[str, Tensor], outside: dict[str, Tensor]) -> dict[str, float]:
    """Return all measures of all scores, by the names of `METRICS`; NaN where a score is."""
    known = {name: not bool(inside[name].isnan().any() | outside[name].isnan().any()) for name in inside}
    return {
        f"{measure.name}_{name}": measure.of(inside[name], outside[name]) if known[name] else math.nan
        for name in inside
        for measure in MEASURES
    }


Wanted = dict[str, Iterable[Any] | str | Path]
"""Loaders by name, or what names a data set or a folder, as only a run knows it."""
EXPECTED = (
    "a loader, loaders such as {'letters': loader}, or for a run a data set such as 'mnist', or a folder of images"
)


def wanted(value: Any) -> Wanted:
    """Return what `outliers=` stands for."""
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return {}
    if isinstance(value, Mapping):
        return {str(name): checks.batches(f"outliers={{{name!r}: …}}", loader) for name, loader in value.items()}
    several = list(value) if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(each, (str, os.PathLike)) for each in several):
        return {str(each): each if isinstance(each, str) else Path(each) for each in several}
    if not isinstance(value, Iterable):
        raise ArgumentError(f"outliers={checks.shown(value)}: expected {EXPECTED}")
    return {"outliers": checks.batches("outliers", value)}


def sets_of(subject: Subject, sets: Wanted) -> list[Data]:
    """Return the outliers that are to be measured, or refuse those that cannot be."""
    if sets and subject.task.name != "classification":
        raise ArgumentError(f"outliers=…: the task is {subject.task.name}; expected a classification of examples")
    return [
        subject.named(found) if isinstance(found, (str, Path)) else Data(name, partial(iter, found), 0, OUTLIERS)
        for name, found in sets.items()
    ]


class Scores:
    """The scores of every example, from the networks that answer together."""

    def __init__(self, about: About, members: Sequence[int]) -> None:
        self.about, self.members = about, members
        self._found: list[dict[str, Tensor]] = []

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        self._found.append(scores([batch.members[number] for number in self.members]))

    def found(self) -> dict[str, Tensor]:
        """Return the scores of all examples, by name."""
        if not self._found:
            raise ArgumentError("outliers=…: a loader has no examples; expected at least one batch")
        return {name: torch.cat([one[name] for one in self._found]) for name in self._found[0]}
