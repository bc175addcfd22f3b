"""What is chosen, where, and how it is marked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_cases import Independent, evaluate, softmax

from subspaces.evaluation import Record, Row


def by_split(record: Record, split: str, kind: str) -> list[Row]:
    return [r for r in record.rows if r.split == split and r.kind == kind and r.average != "logits"]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_choices_are_the_best_on_their_split(split: str, runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("held-out")
    (record,) = evaluate(folder, choose_on=split, grid=np.linspace(0, 1, 11))
    assert {choice.chosen_on for choice in record.choices} == {split}
    assert {choice.on_test for choice in record.choices} == {split == "test"}
    points = by_split(record, split, "point")
    pairs = by_split(record, split, "ensemble")[:-1]  # not the midpoint with itself
    best = {
        ("point", "accuracy"): max(points, key=lambda row: row.metrics["accuracy"]),
        ("point", "nll"): min(points, key=lambda row: row.metrics["nll"]),
        ("pair", "accuracy"): max(pairs, key=lambda row: row.metrics["accuracy"]),
    }
    found = {(choice.what, choice.by): choice for choice in record.choices}
    assert found.keys() == {*best, ("threshold", "risk")}
    for key, row in best.items():
        value = found[key].value
        assert (value if key[0] == "pair" else [value]) == row.alphas
        same = [other for other in record.rows if (other.alphas, other.average) == (row.alphas, row.average)]
        assert found[key].reported == {other.split: other.metrics for other in same}
        assert len(same) == 2
    check_threshold(found["threshold", "risk"], Independent(folder), split)


def check_threshold(choice: Any, truth: Independent, split: str) -> None:
    answers = {}
    for name in choice.reported:
        p = softmax(truth.predict(0.5, name)[0])
        answers[name] = (p.max(1), p.argmax(1) != truth.labels(name))
    for name, (confidence, wrong) in answers.items():
        kept = confidence >= choice.value - 1e-6
        assert choice.reported[name]["coverage"] == pytest.approx(kept.mean(), abs=1e-9)
        assert choice.reported[name]["risk"] == pytest.approx(wrong[kept].mean(), abs=1e-9)
    confidence, wrong = answers[split]
    risks = {t: wrong[confidence >= t].mean() for t in confidence}
    assert choice.value == pytest.approx(min(t for t, risk in risks.items() if risk <= wrong.mean() / 2), abs=1e-6)


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
