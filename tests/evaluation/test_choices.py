"""What is chosen: the best points and the best pair on held-out examples, the first among equals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation_cases import evaluate
from family_cases import LOADERS, family

import subspaces as ss
from subspaces.core import randomness
from subspaces.evaluation import points
from subspaces.evaluation.evaluation import choice
from subspaces.evaluation.metrics import METRICS
from subspaces.evaluation.rows import Row

BEST: dict[tuple[str, str], Any] = {("point", "accuracy"): max, ("point", "nll"): min, ("pair", "accuracy"): max}


def test_the_best_of_each_kind_on_held_out_examples() -> None:
    found = ss.evaluate(family(ss.Line()), **LOADERS)
    assert [(one.what, one.by) for one in found.choices] == list(BEST)
    for one in found.choices:
        kind = "ensemble" if one.what == "pair" else "point"
        rows = [row for row in found.rows if row.kind == kind and row.average != "logits" and row.alphas != [0.5, 0.5]]
        best = BEST[one.what, one.by](
            (row for row in rows if row.data == "validation"), key=lambda row: row.metrics[one.by]
        )
        assert (one.value if one.what == "pair" else [one.value]) == best.alphas
        assert (one.chosen_on, one.on_test) == ("validation", False)
        assert one.reported == {row.data: row.metrics for row in rows if row.alphas == best.alphas}
        assert one.reported.keys() == {"test", "validation"}


def test_the_first_among_equals_and_never_nan() -> None:
    accuracies = {0.0: float("nan"), 0.2: 0.7, 0.4: 0.9, 0.6: 0.9}
    rows = [Row("point", "along", [at], [], "test", 9, {"accuracy": value}) for at, value in accuracies.items()]
    found = choice("point", METRICS["accuracy"], rows, rows, "test")
    assert found is not None
    assert found.value == 0.4
    assert choice("point", METRICS["accuracy"], rows, rows[:1], "test") is None


def test_a_run_chooses_on_its_held_out_images_alone(runs: Callable[..., list[Path]]) -> None:
    held_out, line, standard = runs("held-out", "line", "standard")
    first, *others = evaluate(held_out, line, standard, grid=(0.0, 0.4))
    assert [(one.chosen_on, one.on_test) for one in first.choices] == [("validation", False)] * 3
    assert [one.choices for one in others] == [[], []]


@pytest.mark.parametrize("seed", [0, 3])
def test_random_points_are_none_that_training_draws(seed: int) -> None:
    shape = ss.Simplex(3)
    (item,) = (one for one in points.plan(shape, random=6, seed=seed) if one.role == "random")
    state = randomness.new_state(seed)  # that of the family
    family = ss.Subspace(lambda: torch.nn.Linear(2, 2), shape, seed=seed)
    assert torch.equal(family.rng, state)
    training = shape.sample((500,), lambda size: randomness.uniform(state, size))
    assert not {tuple(one) for one in training.tolist()} & set(item.places)
