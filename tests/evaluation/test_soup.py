"""The greedy soup: which vertices it keeps, and that it is measured like any answer."""

import dataclasses
import itertools
import math
import re
from typing import Any

import pytest
import torch
from family_cases import LOADERS, TEST, TRAINING, VALIDATION, family, network
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import subspaces as ss
from subspaces.evaluation.session import greedy
from subspaces.reports.table import outlier_table, shift_table


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.data())
def test_no_vertex_is_kept_that_makes_the_average_worse(count: int, data: st.DataObject) -> None:
    sets = [each for size in range(1, count + 1) for each in itertools.combinations(range(count), size)]
    merit = {each: data.draw(st.integers(0, 3)) for each in sets}
    asked: list[tuple[int, ...]] = []

    def asking(vertices: tuple[int, ...]) -> float:
        asked.append(vertices)
        return merit[vertices]

    kept = greedy(range(count), asking)
    expected: list[int] = []
    for vertex in sorted(range(count), key=lambda each: (-merit[each,], each)):
        with_it = tuple(sorted([*expected, vertex]))
        if not expected or merit[with_it] >= merit[tuple(sorted(expected))]:
            expected.append(vertex)
    assert kept == tuple(sorted(expected))
    assert merit[kept] >= max(merit[each,] for each in range(count))
    assert len(set(asked)) <= 2 * count - 1


NO, LOW = math.nan, -math.inf  # the merit of what is no number, as a metric and as a record say it


@pytest.mark.parametrize(
    ("alone", "together", "kept"),
    [
        ((NO, 1, 2), {(1, 2): 2}, (1, 2)),  # the first is last, and not tried
        ((1, NO, 2), {(0, 2): 1}, (2,)),
        ((LOW, 1, LOW), {}, (1,)),
        ((1, 2, 2), {(1, 2): NO, (0, 1): 3}, (0, 1)),  # an average that is no number is not kept either
        ((1, 2, 2), {(1, 2): LOW, (0, 1): 3}, (0, 1)),
        ((NO, NO, NO), {}, (0,)),
        ((LOW, LOW, NO), {}, (0,)),
    ],
)
def test_what_is_no_number_is_never_added(alone: Any, together: dict[Any, float], kept: tuple[int, ...]) -> None:
    merit = {(vertex,): value for vertex, value in enumerate(alone)} | together
    assert greedy(range(3), lambda vertices: merit[vertices]) == kept


def trained() -> list[nn.Module]:
    """Four networks, of which the last has nothing to do with the first three, that lie near each other."""
    torch.manual_seed(0)
    first = network()
    optimizer = torch.optim.Adam(first.parameters(), lr=0.02)
    for _ in range(15):
        for x, y in TRAINING:
            optimizer.zero_grad()
            nn.functional.cross_entropy(first(x), y).backward()
            optimizer.step()
    found: list[nn.Module] = []
    for _ in range(3):
        near = network()
        near.load_state_dict(first.state_dict())
        with torch.no_grad():
            for parameter in near.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        found.append(near)
    return [*found, network()]


def validated(average: nn.Module) -> float:
    ss.recalibrate(average, TRAINING)
    with torch.no_grad():
        right = [average.eval()(x).argmax(1) == y for x, y in VALIDATION]
    return float(torch.cat(right).double().mean())


def test_networks_that_are_there_already_become_a_soup() -> None:
    networks = trained()
    four = ss.Subspace.from_modules(networks, ss.Simplex(4))
    found = ss.evaluate(four, **LOADERS, answers=["midpoint", "soup"], random=0, corruptions={"none": TEST})

    def merit(vertices: tuple[int, ...]) -> float:
        return validated(four.at([float(each in vertices) / len(vertices) for each in range(4)]))

    kept = greedy(range(4), merit)
    assert kept != (0, 1, 2, 3)
    assert len(kept) > 1
    row = found["soup"]
    assert row.alphas == [[1 / len(kept) if each in kept else 0.0 for each in range(4)]]
    assert found.answer("soup", "validation").accuracy == pytest.approx(merit(kept))  # type: ignore[union-attr]
    words = next(each.words for each in found.answers if each.name == "soup")
    assert words.startswith(f"greedy soup of {len(kept)} of 4 vertices: {kept[0] + 1}")
    assert re.search(rf"{words} +validation", found.table())
    assert words in found.shift_table()
    assert found.shifted("soup", "none").accuracy == row.accuracy
    found.answers = [dataclasses.replace(each, name="other", role="vertex") for each in found.answers[:1]]
    with pytest.raises(ValueError, match="no answer was measured on shifted data: evaluate with corruptions="):
        found.shift_table()
    with pytest.raises(ValueError, match="no answer was measured against outliers: evaluate with outliers="):
        found.outlier_table()
    assert (shift_table([found]).row_count, outlier_table([found]).row_count) == (0, 0)
    assert (row.kind, row.role, row.networks) == ("point", "soup", 1)


def test_another_task_is_chosen_by_its_own_metric() -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(16, 3), torch.zeros(16, 1)) for _ in range(2)]
    near, far = nn.Linear(3, 1), nn.Linear(3, 1)
    with torch.no_grad():
        near.weight.mul_(0.1)
        near.bias.zero_()
    both = ss.Subspace.from_modules([far, near], ss.Simplex(2))
    loaders: dict[str, Any] = {"test": batches, "validation": batches, "task": "regression", "progress": False}
    assert ss.evaluate(both, answers=["soup"], **loaders)["soup"].alphas == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("what", "without", "said"),
    [
        (lambda: family(ss.Simplex(2)), "validation", "held no images out"),
        (lambda: family(ss.Bezier()), "", "does not hold the average of its vertices"),
        (lambda: family(ss.Point()), "", "does not hold the average of its vertices"),
        (lambda: [network(), network()], "", r"from_modules\(networks, Simplex\(2\)\)"),
    ],
)
def test_what_has_no_soup_is_refused(what: Any, without: str, said: str) -> None:
    loaders = {name: each for name, each in LOADERS.items() if name != without}
    with pytest.raises(ValueError, match=said):
        ss.evaluate(what(), **loaders, answers=["soup"])
