"""What is chosen among numbers that were drawn: the best by each metric on its split, thresholds, ties, streams."""

import dataclasses
import zlib
from typing import Any

import numpy as np
import pytest
import torch

import subspaces as ss
from subspaces.core import randomness
from subspaces.evaluation import choices, points
from subspaces.evaluation.examples import Predictions, said
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.record import Choice, Record, Row

SPLITS = ("test", "validation")
BY = ("accuracy", "nll")


def drawn(*words: object) -> dict[str, float]:
    """A number for each metric, fixed by the words."""
    random = np.random.default_rng(zlib.crc32(repr(words).encode()))
    return {each.name: float(random.uniform(0.4, 0.9)) for each in of_task("classification")}


@pytest.fixture(scope="module")
def record() -> Record:
    """A line whose numbers are each drawn on their own."""
    metrics = [each.described for each in of_task("classification")]
    dataset = {"name": "drawn", "classes": [], "splits": dict.fromkeys(SPLITS, 20)}
    made = Record("line", {"kind": "interval"}, "classification", metrics, [], {}, dataset, {})
    for split in SPLITS:
        for alpha in (0.0, 0.1, 0.15, 0.5, 0.85, 0.9, 1.0):
            role = "midpoint" if alpha == 0.5 else "along"
            made.add([Row("point", role, [alpha], [[1 - alpha, alpha]], split, 20, drawn("point", split, alpha))])
        for alpha in (0.0, 0.1, 0.15, 0.5):
            for average in ("probabilities", "logits"):
                pair = [alpha, 1 - alpha]
                numbers = drawn("pair", split, pair, average)
                made.add([Row("ensemble", "along", list(pair), [], split, 20, numbers, average=average, networks=2)])
    return made


def answers(record: Record, sizes: tuple[int, int] = (200, 150)) -> Predictions:
    """Answers of the midpoint alone, with accuracies that are those of the record's rows."""
    random = np.random.default_rng(1)
    labels = {split: torch.tensor(random.integers(0, 4, size)) for split, size in zip(SPLITS, sizes, strict=True)}
    found = Predictions("0123456789", "made up")
    logits = {split: torch.tensor(2 * random.normal(size=(len(labels[split]), 4))) for split in SPLITS}
    for split in SPLITS:
        logits[split][torch.arange(len(labels[split])), labels[split]] += 2
        found.add(0.5, split, said(*logits[split].softmax(1).max(1)), labels[split])
    for at, row in enumerate(record.rows):
        if row.role == "midpoint":
            right = float((logits[row.split].argmax(1) == labels[row.split]).double().mean())
            record.rows[at] = dataclasses.replace(row, metrics={**row.metrics, "accuracy": right})
    return found


def by_name(found: list[Choice]) -> dict[tuple[str, str], Choice]:
    return {(choice.what, choice.by): choice for choice in found}


def rows_of(record: Record, split: str, what: str) -> list[Any]:
    rows = [row for row in record.rows if row.split == split and row.average != "logits"]
    if what == "point":
        return [row for row in rows if row.kind == "point"]
    return [row for row in rows if row.kind == "ensemble" and row.alphas != [0.5, 0.5]]


@pytest.mark.parametrize("split", SPLITS)
def test_the_best_of_each_kind_on_its_split(split: str, record: Record) -> None:
    found = by_name(choices.choose(record, answers(record), split, BY))
    best = {
        ("point", "accuracy"): max(rows_of(record, split, "point"), key=lambda row: row.metrics["accuracy"]),
        ("point", "nll"): min(rows_of(record, split, "point"), key=lambda row: row.metrics["nll"]),
        ("pair", "accuracy"): max(rows_of(record, split, "pair"), key=lambda row: row.metrics["accuracy"]),
    }
    assert list(found) == [*best, ("threshold", "risk")]
    assert len({repr(row.alphas) for row in best.values()}) == 3  # they differ, so that each is its own
    for key, row in best.items():
        choice = found[key]
        assert (choice.value if key[0] == "pair" else [choice.value]) == row.alphas
        assert (choice.chosen_on, choice.on_test) == (split, split == "test")
        both = {
            one.split: one.metrics
            for name in SPLITS
            for one in rows_of(record, name, key[0])
            if one.alphas == row.alphas
        }
        assert choice.reported == both
        assert both.keys() == {*SPLITS}
    other = by_name(choices.choose(record, answers(record), SPLITS[split == "test"], BY))
    assert other["point", "nll"].value != found["point", "nll"].value


@pytest.mark.parametrize("split", SPLITS)
def test_the_threshold_halves_the_error_on_its_split_and_is_applied_to_both(split: str, record: Record) -> None:
    predictions = answers(record)
    choice = by_name(choices.choose(record, predictions, split, BY))["threshold", "risk"]
    assert (choice.chosen_on, choice.on_test) == (split, split == "test")

    def kept(name: str, threshold: float) -> tuple[float, float]:
        told = predictions.points[0.5][name]
        wrong = (told.predicted != predictions.labels[name]).numpy()
        inside = told.confidence.numpy() >= threshold
        return float(inside.mean()), float(wrong[inside].mean())

    allowed = [1 - row.metrics["accuracy"] for row in record.rows if row.role == "midpoint" and row.split == split]
    candidates = predictions.points[0.5][split].confidence.tolist()
    assert choice.value == min(one for one in candidates if kept(split, one)[1] <= allowed[0] / 2)
    for name in SPLITS:
        coverage, risk = kept(name, choice.value)
        assert choice.reported[name] == {"coverage": pytest.approx(coverage), "risk": pytest.approx(risk)}
    assert 0 < choice.reported[split]["risk"] <= allowed[0] / 2


def test_the_first_among_equals(record: Record) -> None:
    same = dataclasses.replace(record)
    same.rows = [dataclasses.replace(row, metrics=drawn("same", row.split)) for row in record.rows]
    found = by_name(choices.choose(same, answers(same), "test", BY))
    for key in (("point", "nll"), ("pair", "accuracy")):
        first = rows_of(same, "test", key[0])[0].alphas
        assert found[key].value == (first if key[0] == "pair" else first[0])


def test_a_midpoint_without_errors_needs_no_threshold(record: Record) -> None:
    perfect = dataclasses.replace(record)
    predictions = answers(perfect)
    perfect.rows = [dataclasses.replace(row, metrics={**row.metrics, "accuracy": 1.0}) for row in perfect.rows]
    assert [one.what for one in choices.choose(perfect, predictions, "test", BY)] == ["point", "point", "pair"]


def test_one_point_is_no_choice(record: Record) -> None:
    alone = dataclasses.replace(record)
    alone.rows = [row for row in record.rows if row.role == "midpoint"]
    predictions = answers(alone)
    assert [one.what for one in choices.choose(alone, predictions, "test", BY)] == ["threshold"]


def test_choices_on_other_splits_are_made_again_and_not_kept(record: Record) -> None:
    again = dataclasses.replace(record)
    predictions = answers(again)
    again.choices = [Choice("point", "accuracy", "test", True, 0.123, {})]
    found = choices.renew(again, predictions, ["validation"], BY)
    expected = [each for split in SPLITS for each in choices.choose(again, predictions, split, BY)]
    assert found == expected
    assert choices.renew(again, predictions, ["test"], BY) == expected[:4]


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
