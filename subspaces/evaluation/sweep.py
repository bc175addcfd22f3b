"""Measuring points and their ensembles, one item after the other."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from subspaces.ensembles import Average
from subspaces.evaluation import metrics, selective
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.points import Item, Place, coefficients, to_alpha
from subspaces.evaluation.predictor import Prediction, Predictor
from subspaces.evaluation.record import Kind, Role, Row
from subspaces.shapes import Shape

AVERAGES: tuple[Average, ...] = get_args(Average)
Tick = Callable[[int], None]


def sweep(journal: Journal, items: Sequence[Item], predictor: Predictor, tick: Tick) -> None:
    """Measure items and add them to the journal; `tick` is told how many points each one had."""
    bench = journal.bench
    journal.record.statistics["images"] = predictor.statistics_images
    for item in items:
        answers = {place: predictor(bench.weights(place)) for place in item.points}
        for place, answer in answers.items():
            journal.predictions.add(place, {split: answer[split].logits for split in answer})
        for split, labels in predictor.labels.items():
            journal.add(rows_of(item, {place: answers[place][split] for place in answers}, labels, split, bench.shape))
        tick(len(item.points))


@torch.no_grad()
def rows_of(item: Item, answers: Mapping[Place, Prediction], labels: Tensor, split: str, shape: Shape) -> list[Row]:
    """Return the rows of an item on one split: each point, and both averages of their ensemble."""

    def row(kind: Kind, role: Role, places: Sequence[Place], mean: Average, **more: Any) -> Row:
        found = metrics.log_mean(torch.stack([answers[place].logits for place in places]), mean)
        probabilities = found.exp()
        return Row(
            kind=kind,
            role=role,
            alphas=[to_alpha(place) for place in places],
            coefficients=[coefficients(shape, place) for place in places],
            split=split,
            images=len(labels),
            metrics=metrics.summary(found, labels),
            reliability=metrics.reliability(probabilities, labels),
            risk_coverage=selective.risk_coverage(probabilities, labels),
            **more,
        )

    rows = [row("point", item.role, [place], "probabilities") for place in item.points]
    if item.ensemble:
        spread = diversity([answers[place] for place in item.places])
        for average in AVERAGES:
            rows.append(row("ensemble", item.ensemble, item.places, average, average=average, diversity=spread))
    return rows


def diversity(members: Sequence[Prediction]) -> dict[str, float]:
    """Return how differently networks answer, as the mean over all pairs of them."""
    pairs = list(itertools.combinations([(member.logits.softmax(1), member.features) for member in members], 2))
    found = {
        "tv": [metrics.total_variation(a, b) for (a, _), (b, _) in pairs],
        "disagreement": [metrics.disagreement(a, b) for (a, _), (b, _) in pairs],
        "feature_cosine": [metrics.feature_cosine(a, b) for (_, a), (_, b) in pairs],
    }
    return {name: sum(values) / len(values) for name, values in found.items()}
