"""Which points are measured, and which are chosen."""

import itertools
from typing import Any

import numpy as np
import pytest
from evaluation_cases import LOADERS, family

import subspaces as ss
from subspaces.evaluation import points
from subspaces.evaluation.evaluation import choice
from subspaces.evaluation.metrics import METRICS
from subspaces.evaluation.points import plan
from subspaces.evaluation.rows import Row


def test_a_line_is_measured_in_pairs_from_the_ends_to_the_middle() -> None:
    items = plan(ss.Line())
    assert [item.places for item in items] == [(round(k / 20, 9), round(1 - k / 20, 9)) for k in range(11)]
    assert [item.role for item in items] == ["along"] * 10 + ["midpoint"]
    assert {item.ensemble for item in items} == {"along"}
    assert items[-1].points == [0.5]
    assert plan(ss.Bezier(2)) == items


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ([], [0.5]),
        ([0.1, 0.9], [0.1, 0.5, 0.9]),
        ([0.7], [0.3, 0.5, 0.7]),
        ([-0.05, 1.05], [-0.05, 0.5, 1.05]),
        ([1.0, 0.1 + 0.2, 1 - 0.95], [0.0, 0.05, 0.3, 0.5, 0.7, 0.95, 1.0]),
    ],
)
def test_every_point_of_a_grid_comes_with_its_opposite_and_the_middle(grid: list[float], expected: list[float]) -> None:
    found = sorted(place for item in plan(ss.Line(), grid=grid) for place in item.points)
    assert found == expected


def test_a_triangle_is_measured_at_vertices_middle_edges_grid_and_random_points() -> None:
    items = plan(ss.Simplex(3), triangle=6, random=4, seed=3)
    by_role = {role: [p for i in group for p in i.points] for role, group in itertools.groupby(items, lambda i: i.role)}
    assert list(by_role) == ["vertex", "midpoint", "edge", "grid", "random"]
    assert np.allclose(by_role["vertex"], np.eye(3))
    assert by_role["midpoint"] == [(1 / 3, 1 / 3, 1 / 3)]
    assert sorted(by_role["edge"]) == [(0.0, 0.5, 0.5), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0)]
    assert len(by_role["random"]) == 4
    everywhere = {p for role in ("vertex", "midpoint", "edge", "grid") for p in by_role[role]}
    assert len(everywhere) == sum(len(by_role[role]) for role in ("vertex", "midpoint", "edge", "grid")) == 28
    assert {tuple(round(6 * x) for x in p) for p in everywhere} == {
        (i, j, 6 - i - j) for i in range(7) for j in range(7 - i)
    }
    assert [(i.role, i.ensemble) for i in items if i.ensemble] == [("vertex", "vertex"), ("random", "random")]


def test_random_points_are_fixed_by_the_seed_and_begin_alike() -> None:
    def drawn(count: int, seed: int) -> tuple[points.Place, ...]:
        (item,) = (item for item in plan(ss.Simplex(3), random=count, seed=seed) if item.role == "random")
        return item.places

    assert drawn(6, 0) == drawn(6, 0)
    assert drawn(8, 0)[:6] == drawn(6, 0)
    assert not set(drawn(6, 0)) & set(drawn(6, 1))


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
        if one.what == "point":
            assert found.best(by=one.by) == one.value
    best = min((row for row in found.rows if row.kind == "point" and row.data == "test"), key=lambda row: row.nll)
    assert found.best(by="nll", on="test") == best.alphas[0] == found.choices[-1].value
    assert found.choices[-1].on_test


def test_the_first_among_equals_and_never_nan() -> None:
    accuracies = {0.0: float("nan"), 0.2: 0.7, 0.4: 0.9, 0.6: 0.9}
    rows = [Row("point", "along", [at], [], "test", 9, {"accuracy": value}) for at, value in accuracies.items()]
    found = choice("point", METRICS["accuracy"], rows, rows, "test")
    assert found is not None
    assert found.value == 0.4
    assert choice("point", METRICS["accuracy"], rows, rows[:1], "test") is None
