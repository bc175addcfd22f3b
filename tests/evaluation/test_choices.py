"""What is chosen: among drawn numbers the best by each metric, thresholds and ties; of runs, on which split."""

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_cases import evaluate

import subspaces as ss
from subspaces.core import randomness
from subspaces.evaluation import points, results
from subspaces.evaluation.evaluation import merged
from subspaces.evaluation.examples import Predicted
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.rows import Choice, Row

SPLITS = ("test", "validation")


def drawn(*words: object) -> dict[str, float]:
    """A number for each metric, fixed by the words."""
    random = np.random.default_rng(zlib.crc32(repr(words).encode()))
    return {each.name: float(random.uniform(0.4, 0.9)) for each in of_task("classification")}


METRICS = {each.name: each for each in of_task("classification")}
SHOWN = [METRICS["accuracy"], METRICS["nll"]]


def rows() -> list[Row]:
    """A line whose numbers are each drawn on their own."""
    found = []
    for split in SPLITS:
        for alpha in (0.0, 0.1, 0.15, 0.5, 0.85, 0.9, 1.0):
            role = "midpoint" if alpha == 0.5 else "along"
            found.append(Row("point", role, [alpha], [[1 - alpha, alpha]], split, 20, drawn("point", split, alpha)))
        for alpha in (0.0, 0.1, 0.15, 0.5):
            for average in ("probabilities", "logits"):
                pair: list[Any] = [alpha, 1 - alpha]
                numbers = drawn("pair", split, pair, average)
                found.append(Row("ensemble", "along", pair, [], split, 20, numbers, average=average, networks=2))
    return merged([], found)


def answered(found: list[Row], sizes: tuple[int, int] = (200, 150)) -> tuple[list[Row], dict[str, torch.Tensor]]:
    """Predictions of the midpoint, and rows with its accuracies."""
    random = np.random.default_rng(1)
    each = {}
    for split, size in zip(SPLITS, sizes, strict=True):
        labels = torch.tensor(random.integers(0, 4, size))
        logits = torch.tensor(2 * random.normal(size=(size, 4)))
        logits[torch.arange(size), labels] += 3
        predicted = Predicted.of(*logits.softmax(1).max(1))
        assert all(map(torch.equal, Predicted.from_text(predicted.to_text()), predicted))
        each[split] = predicted.each(labels)
    right = {split: {"accuracy": float(each[split][:, 1].mean())} for split in SPLITS}
    middle = [
        dataclasses.replace(row, metrics=row.metrics | right[row.data]) for row in found if row.role == "midpoint"
    ]
    return merged(found, middle), each


def by_name(found: list[Choice]) -> dict[tuple[str, str], Choice]:
    return {(choice.what, choice.by): choice for choice in found}


def those(found: list[Row], split: str, what: str) -> list[Any]:
    some = [row for row in found if row.data == split and row.average != "logits"]
    if what == "point":
        return [row for row in some if row.kind == "point"]
    return [row for row in some if row.kind == "ensemble" and row.alphas != [0.5, 0.5]]


@pytest.mark.parametrize("split", SPLITS)
def test_the_best_of_each_kind_on_its_split(split: str) -> None:
    made, middle = answered(rows())
    found = by_name(results.choose(made, split, SHOWN, middle))
    best = {
        ("point", "accuracy"): max(those(made, split, "point"), key=lambda row: row.metrics["accuracy"]),
        ("point", "nll"): min(those(made, split, "point"), key=lambda row: row.metrics["nll"]),
        ("pair", "accuracy"): max(those(made, split, "pair"), key=lambda row: row.metrics["accuracy"]),
    }
    assert list(found) == [*best, ("threshold", "risk")]
    assert len({repr(row.alphas) for row in best.values()}) == 3  # they differ, so that each is its own
    for key, row in best.items():
        choice = found[key]
        assert (choice.value if key[0] == "pair" else [choice.value]) == row.alphas
        assert (choice.chosen_on, choice.on_test) == (split, split == "test")
        same = [one for name in SPLITS for one in those(made, name, key[0]) if one.alphas == row.alphas]
        assert choice.reported == {one.data: one.metrics for one in same}
        assert choice.reported.keys() == {*SPLITS}


@pytest.mark.parametrize("split", SPLITS)
def test_the_threshold_halves_the_error_on_its_split_and_is_applied_to_both(split: str) -> None:
    made, middle = answered(rows())
    choice = by_name(results.choose(made, split, SHOWN, middle))["threshold", "risk"]
    assert (choice.chosen_on, choice.on_test) == (split, split == "test")

    def kept(name: str, threshold: float) -> tuple[float, float]:
        confidence, right = middle[name].numpy().T
        inside = confidence >= threshold
        return float(inside.mean()), float(1 - right[inside].mean())

    allowed = [1 - row.metrics["accuracy"] for row in made if row.role == "midpoint" and row.data == split]
    candidates = middle[split][:, 0].tolist()
    assert choice.value == min(one for one in candidates if kept(split, one)[1] <= allowed[0] / 2)
    for name in SPLITS:
        coverage, risk = kept(name, choice.value)
        assert choice.reported[name] == {"coverage": pytest.approx(coverage), "risk": pytest.approx(risk)}


def test_the_first_among_equals_and_no_threshold_without_errors() -> None:
    made, middle = answered(rows())
    same = [dataclasses.replace(row, metrics=drawn("same", row.data) | {"accuracy": 1.0}) for row in made]
    found = results.choose(same, "test", SHOWN, middle)
    assert [one.what for one in found] == ["point", "point", "pair"]
    for key in (("point", "nll"), ("pair", "accuracy")):
        first = those(same, "test", key[0])[0].alphas
        assert by_name(found)[key].value == (first if key[0] == "pair" else first[0])
    alone = [row for row in made if row.role == "midpoint"]
    assert [one.what for one in results.choose(alone, "test", SHOWN, middle)] == ["threshold"]


# Runs


def by_split(record: ss.Evaluation, split: str, kind: str) -> list[Row]:
    return [r for r in record.rows if r.split == split and r.kind == kind and r.average != "logits"]


def test_choices_on_both_splits_stay_and_follow_the_rows(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("held-out")
    (first,) = evaluate(folder, grid=(0.0, 0.4))
    assert [(choice.chosen_on, choice.on_test) for choice in first.choices] == [("validation", False)] * 4
    (both,) = evaluate(folder, grid=(0.0, 0.4), choose_on="test")
    assert [choice.chosen_on for choice in both.choices] == ["validation"] * 4 + ["test"] * 4
    assert both.choices[:4] == first.choices
    (more,) = evaluate(folder)
    points = by_split(more, "test", "point")
    assert len(points) == 21
    chosen = next(c for c in more.choices if (c.chosen_on, c.what, c.by) == ("test", "point", "accuracy"))
    assert chosen.reported["test"]["accuracy"] == max(row.metrics["accuracy"] for row in points)


def test_without_held_out_images_nothing_is_chosen_unless_on_the_test_set(runs: Callable[..., list[Path]]) -> None:
    line, standard = runs("line", "standard")
    assert [record.choices for record in evaluate(line, standard, grid=())] == [[], []]
    marked = evaluate(line, standard, grid=(0.0,), choose_on="test")
    assert [[choice.what for choice in record.choices] for record in marked] == [
        ["point", "point", "threshold"],  # one pair only: nothing to choose
        ["threshold"],
    ]
    assert all(choice.on_test for record in marked for choice in record.choices)


# Random numbers that nothing else draws from the same seed


@pytest.mark.parametrize("seed", [0, 3])
def test_random_points_are_none_that_training_draws(seed: int) -> None:
    shape = ss.Simplex(3)
    (item,) = (one for one in points.plan(shape, random=6, seed=seed) if one.role == "random")
    state = randomness.new_state(seed)  # that of the family
    family = ss.Subspace(lambda: torch.nn.Linear(2, 2), shape, seed=seed)
    assert torch.equal(family.rng, state)
    training = shape.sample((500,), lambda size: randomness.uniform(state, size))
    assert not {tuple(one) for one in training.tolist()} & set(item.places)
