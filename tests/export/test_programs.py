"""Programs without their files: anchors, families at every anchor, and what points may be called."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from helpers import quick
from hypothesis import given
from hypothesis import strategies as st
from production_cases import Truth
from torch import nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.core.shapes import Shape
from subspaces.evaluation.answers import Family
from subspaces.experiments.evaluating.run_subject import run_subjects
from subspaces.experiments.training import Execution, Run
from subspaces.export import anchors
from subspaces.export.choosing import choose
from subspaces.export.errors import ExportError
from subspaces.export.making import make, make_own
from subspaces.export.sources import RunSource, own_source

SHAPES = [ss.Line(), ss.Bezier(), ss.Simplex(2), ss.Simplex(3), ss.Simplex(5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_anchor_is_its_own(shape: ss.Shape) -> None:
    places = anchors.anchors(shape)
    found = torch.stack([anchors.basis(shape, torch.tensor(place, dtype=torch.float64)) for place in places])
    assert_close(found, torch.eye(len(places), dtype=torch.float64))


@quick
@given(st.sampled_from(SHAPES), st.integers(0, 2**31))
def test_weights_of_anchors_sum_to_one(shape: ss.Shape, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    alpha = shape.sample((), lambda size: torch.rand(size, generator=generator, dtype=torch.float64))
    assert_close(anchors.basis(shape, alpha).sum(), torch.ones((), dtype=torch.float64))
    assert_close(anchors.inside(shape, alpha), alpha)


def test_a_basis_is_exact_for_what_bends_no_more_than_it_does() -> None:
    """Straight between the points of a line, and quadratic on a simplex."""
    line, triangle = ss.Line(), ss.Simplex(3)
    marks = torch.tensor(anchors.anchors(line), dtype=torch.float64)
    assert_close(
        anchors.basis(line, torch.tensor(0.234, dtype=torch.float64)) @ (3 * marks - 1),
        torch.tensor(3 * 0.234 - 1).double(),
    )
    marks = torch.tensor(anchors.anchors(triangle), dtype=torch.float64)
    alpha = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

    def bent(x: torch.Tensor) -> torch.Tensor:
        return x[..., 0] ** 2 + 2 * x[..., 0] * x[..., 1] - 3 * x[..., 2] ** 2 + x[..., 1]

    assert_close(anchors.basis(triangle, alpha) @ bent(marks), bent(alpha))


def test_a_point_off_the_family_is_moved_onto_it() -> None:
    assert float(anchors.inside(ss.Line(), torch.tensor(1.5))) == 1.0
    assert anchors.inside(ss.Simplex(2), torch.tensor([3.0, -1.0])).tolist() == [1.0, 0.0]


def test_a_simplex_is_its_networks_at_vertices_and_on_the_middles_of_edges(
    trained: Callable[[str], Path], truth: Callable[[str], Truth]
) -> None:
    """It was trained with one alpha for each layer, and takes one for all."""
    source = RunSource(run_subjects(None, Execution(device="cpu"))(Run.open(trained("simplex"))), None)
    made = make(source, choose("family", source.terms, source.answers), lambda *_: None)
    right = truth("simplex")
    for place in ([0.0, 1.0, 0.0], [0.5, 0.0, 0.5]):
        with torch.no_grad():
            found = made.program(right.images, torch.tensor(place))  # type: ignore[misc]
        assert_close(found, right.probabilities(place), atol=1e-6, rtol=0)
    assert made.deviation is not None
    assert made.about.anchors == 6
    assert 0 < made.deviation.mean < made.deviation.largest < 0.2


def test_a_family_without_batch_norm_is_exact_everywhere() -> None:
    family = ss.Subspace(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), ss.Bezier())
    x = torch.rand(3, 1, 2, 2)
    source = own_source(family, example=x)
    made = make(source, choose("family", source.terms, source.answers), lambda *_: None)
    with torch.no_grad():
        for alpha in (0.0, 0.123, 0.77):
            assert_close(made.program(x, torch.tensor(alpha)), family.at(alpha)(x).softmax(-1))
    assert (made.deviation, made.about.anchors) == (None, 0)


def test_an_ensemble_that_averages_logits_says_their_probabilities() -> None:
    networks = [nn.Sequential(nn.Flatten(), nn.Linear(4, 3)) for _ in range(2)]
    ensemble, x = ss.Ensemble(networks, "logits"), torch.rand(3, 1, 2, 2)
    program = make_own(own_source(ensemble, example=x)).program
    with torch.no_grad():
        said, expected = program(x), ensemble.predict(x)  # type: ignore[misc]
    assert_close(said[0], expected.output.softmax(-1))
    assert_close(said[1], expected.disagreement)


@dataclass(frozen=True)
class Square(Shape):
    """Four networks at the corners of a square, whose alpha has two coordinates."""

    domain: ClassVar[str] = "two numbers in [0, 1]"
    vertices, point = 4, (2,)  # type: ignore[assignment]

    def sample(self, size: tuple[int, ...] = (), random: Any = torch.rand) -> torch.Tensor:
        return random((*size, 2))  # type: ignore[no-any-return]

    def coefficients(self, alpha: torch.Tensor) -> torch.Tensor:
        x, y = alpha.unbind(-1)
        return torch.stack([(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y], -1)

    def midpoint(self) -> torch.Tensor:
        return torch.tensor([0.5, 0.5])

    def inside(self, alpha: torch.Tensor) -> torch.Tensor:
        return ((alpha >= 0) & (alpha <= 1)).all(-1)

    def separation(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return (first - second).abs().mean(-1)


def test_a_shape_of_ones_own_is_exported_at_a_point_only_where_its_alpha_is_another() -> None:
    assert choose([0.2, 0.9], Family(Square()), ()).kind == "network"
    with pytest.raises(ExportError, match="not barycentric"):
        choose("family", Family(Square()), ())


@pytest.mark.parametrize(
    ("point", "shape", "places"),
    [
        ("midpoint", ss.Line(), (0.5,)),
        ("0.3", ss.Line(), (0.3,)),
        (0.3, ss.Bezier(), (0.3,)),
        (["0.1", "0.9"], ss.Line(), (0.1, 0.9)),
        ([0.1, 0.5, 0.9], ss.Line(), (0.1, 0.5, 0.9)),
        ("0.2,0.3,0.5", ss.Simplex(3), ((0.2, 0.3, 0.5),)),
        ([0.2, 0.3, 0.5], ss.Simplex(3), ((0.2, 0.3, 0.5),)),
        (torch.tensor([0.25, 0.75]), ss.Simplex(2), ((0.25, 0.75),)),
        (["1,0", "0,1"], ss.Simplex(2), ((1.0, 0.0), (0.0, 1.0))),
        ([[1, 0], [0, 1]], ss.Simplex(2), ((1.0, 0.0), (0.0, 1.0))),
    ],
)
def test_points_as_one_may_write_them(point: Any, shape: ss.Shape, places: tuple[Any, ...]) -> None:
    chosen = choose(point, Family(shape), ())
    assert chosen.places == places
    assert chosen.kind == ("network" if len(places) == 1 else "ensemble")


@pytest.mark.parametrize(
    ("shape", "answers", "places", "words"),
    [
        (ss.Line(), ("midpoint", "pair"), (0.1, 0.9), "ensemble of 0.1 and 0.9"),
        (ss.Simplex(2), ("midpoint", "vertices"), ((1.0, 0.0), (0.0, 1.0)), "ensemble of 2 vertices"),
        (ss.Simplex(2), ("midpoint", "dropout", "vertices"), ((1.0, 0.0), (0.0, 1.0)), "ensemble of 2 vertices"),
    ],
)
def test_an_ensemble_is_the_methods_own(shape: ss.Shape, answers: Any, places: Any, words: str) -> None:
    chosen = choose("ensemble", Family(shape), answers)
    assert (chosen.places, chosen.words, chosen.average) == (places, words, "probabilities")
