"""Metrics and their numbers over seeds, as the scripts of the page read them."""

from collections.abc import Sequence
from typing import Any

from subspaces.evaluation.record import Description
from subspaces.evaluation.statistics import Spread
from subspaces.reports.answers import Answer
from subspaces.reports.measures import places


def described(one: Description, images: int) -> dict[str, Any]:
    """Return a metric in words, with the decimal places that so many images can tell apart."""
    told = {name: getattr(one, name) for name in ("name", "meaning", "percent", "goal")}
    label = one.label[:1].upper() + one.label[1:]
    return {**told, "label": label, "digits": places(one, images), "higher": not one.lower_is_better}


def numbers(answer: Answer, metrics: Sequence[str]) -> dict[str, Any]:
    """Return some metrics of an answer."""
    return columns([answer.spread(metric) for metric in metrics])


def columns(spreads: Sequence[Spread]) -> dict[str, Any]:
    """Return means and standard deviations, each in a list."""
    return {"mean": [one.mean for one in spreads], "std": [one.std for one in spreads]}
