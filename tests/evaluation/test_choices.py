"""What is chosen, where, and how it is marked."""

from collections.abc import Callable
from pathlib import Path

from evaluation_cases import evaluate

from subspaces.evaluation import Evaluation, Row


def by_split(record: Evaluation, split: str, kind: str) -> list[Row]:
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
