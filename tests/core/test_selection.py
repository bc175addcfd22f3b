"""`family.select`: the planted point is found on every shape, and the family stays as it was."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import Wrapped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import subspaces as ss

N = 120


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))


def family_of(shape: ss.Shape, make: Callable[[], nn.Module] = net, **options: Any) -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(make, shape, seed=0, **options)


def inputs(n: int = N, seed: int = 1) -> Tensor:
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))


def batched(*tensors: Tensor, size: int = 50) -> list[Any]:
    return list(zip(*(each.split(size) for each in tensors), strict=True))


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean(1)


def planted(family: ss.Subspace, alpha: Any, noise: float = 0.05) -> list[Any]:
    """Return what the network at a point says, with noise."""
    x = inputs()
    with torch.no_grad():
        said = family.at(alpha).eval()(x)
    return [(x, said + noise * torch.randn(said.shape, generator=torch.Generator().manual_seed(2)))]


LAYERS = [0.2, 0.8]
CORNERS = [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]


@pytest.mark.parametrize(
    ("shape", "alpha", "options"),
    [
        (ss.Line(), 0.2, {}),
        (ss.Bezier(), 0.75, {}),
        (ss.Simplex(3), [0.7, 0.2, 0.1], {}),
        (ss.Line(), LAYERS, {"per": "layer"}),
        (ss.Simplex(3), CORNERS, {"per": "layer"}),
    ],
)
def test_the_planted_point_is_found(shape: ss.Shape, alpha: Any, options: Any) -> None:
    family = family_of(shape)
    folds = 5 if options == {} and not shape.point else 0
    selection = family.select(planted(family, alpha), by=squared, folds=folds, **options)
    assert selection.moved
    assert type(selection.alpha) is type(alpha)
    found, wanted = (_numbers(each) for each in (selection.alpha, alpha))
    assert found == pytest.approx(wanted, abs=0.06 if "per" not in options else 0.12)
    assert selection.gain is None or selection.gain > 3 * selection.error
    assert selection.best.value <= selection.value < selection.midpoint <= selection.worst.value
    x = inputs(4)
    with torch.no_grad():
        assert torch.allclose(family.at(selection.alpha).eval()(x), family.eval()(x, alpha=selection.alpha), atol=1e-6)


def _numbers(alpha: Any) -> list[float]:
    found: list[float] = torch.tensor(alpha).flatten().tolist()
    return found


def test_values_are_those_of_the_networks() -> None:
    family = family_of(ss.Line())
    x = inputs()
    y = family.at(0.1).eval()(x).argmax(1)
    selection = family.select(batched(x, y))
    with torch.no_grad():
        along = [float(F.cross_entropy(family.at(step / 20).eval()(x), y)) for step in range(21)]
    assert selection.midpoint == pytest.approx(along[10], rel=1e-5)
    assert selection.best.value == pytest.approx(min(along), rel=1e-5)
    assert selection.worst.value == pytest.approx(max(along), rel=1e-5)
    assert selection.best.alpha == along.index(min(along)) / 20
    right = family.select(batched(x, y), by="accuracy")
    with torch.no_grad():
        assert right.midpoint == pytest.approx(float((family.midpoint().eval()(x).argmax(1) == y).double().mean()))
    assert right.worst.value <= right.midpoint < right.value <= right.best.value


def state(family: ss.Subspace) -> list[Any]:
    held = {name: value.clone() for name, value in family.state_dict().items()}
    modes = [part.training for part in family.modules()]
    return [held, modes, [value.grad for value in family.parameters()], torch.get_rng_state()]


@pytest.mark.parametrize("options", [{}, {"per": "layer", "steps": 2}], ids=["grid", "gradient"])
def test_the_family_is_left_as_it_was(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reseeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", reseeded.append)  # the random numbers of all GPUs
    family = family_of(ss.Line(), normed)
    family.template[1].eval()
    x, y = inputs(), torch.arange(N) % 3
    loader = DataLoader(TensorDataset(x), batch_size=40, shuffle=True)
    held, modes, grads, random = state(family)
    reseeded.clear()
    family.select(batched(x, y), statistics=loader, folds=2, **options)
    after = state(family)
    assert held.keys() == after[0].keys()
    assert all(torch.equal(held[name], after[0][name]) for name in held)
    assert modes == after[1]
    assert grads == after[2] == [None] * len(grads)
    assert torch.equal(random, after[3])
    assert reseeded == []


def test_statistics_are_those_of_every_point() -> None:
    family = family_of(ss.Line(), normed)
    x, y = inputs(), torch.arange(N) % 3
    training = batched(3 * inputs(seed=5))
    selection = family.select(batched(x, y), statistics=training, points=3, folds=0)
    networks = [ss.recalibrate(family.at(alpha), training).eval() for alpha in (0, 0.5, 1)]
    expected = [float(F.cross_entropy(network(x), y).detach()) for network in networks]
    found = [selection.midpoint, selection.best.value, selection.worst.value]
    assert found == pytest.approx([expected[1], min(expected), max(expected)], rel=1e-5)
    fewer = family.select(batched(x, y), statistics=training, batches=1, points=3, folds=0)
    assert fewer.midpoint != selection.midpoint


def test_without_labels() -> None:
    family = family_of(ss.Line())
    x = inputs()
    plain = family.select([x[:50], x[50:]], by="entropy")
    assert not plain.labelled
    assert "without labels" in str(plain)
    assert plain == family.select(batched(x, torch.zeros(N).long()), by="entropy")
    with torch.no_grad():
        p = family.midpoint().eval()(x).softmax(1)
    assert plain.midpoint == pytest.approx(float(-(p * p.log()).sum(1).mean()), rel=1e-5)
    with pytest.raises(TypeError, match=r"a batch is a Tensor: expected \(inputs, target\).*by='entropy'"):
        family.select([x])


def test_points_without_a_finite_loss_are_the_worst() -> None:
    family = family_of(ss.Line())
    ((x, y),) = planted(family, 0.2)
    calls = iter(range(21))  # from one end of the grid to the other

    def spoiled(output: Tensor, target: Tensor) -> Tensor:
        return squared(output, target) * (math.nan if next(calls) < 2 else 1)

    selection = family.select([(x, y)], by=spoiled, folds=0)
    assert selection.best.alpha == pytest.approx(0.2, abs=0.051)
    assert selection.worst.alpha in (0, 0.05)
    assert math.isnan(selection.worst.value)
    assert "nan" in str(selection)


@pytest.mark.gpu
def test_a_family_on_a_gpu_chooses_the_same() -> None:
    training = batched(inputs(seed=5))
    for options in ({}, {"per": "layer", "steps": 5}):
        family = family_of(ss.Line(), normed)
        data = planted(family, 0.2)
        here = family.select(data, by=squared, statistics=training, folds=0, **options)
        there = family.cuda().select(data, by=squared, statistics=training, folds=0, **options)
        assert _numbers(there.alpha) == pytest.approx(_numbers(here.alpha), abs=1e-3)
        assert there.value == pytest.approx(here.value, rel=1e-3)


GOOD = batched(inputs(), torch.arange(N) % 3)


@pytest.mark.parametrize("by", ["nll", "accuracy", "entropy"])
@pytest.mark.parametrize(
    ("outputs", "end", "classes"),
    [
        ("probabilities", lambda x: x.softmax(1), 3),
        ("log_probabilities", lambda x: x.log_softmax(1), 3),
        ("probabilities", torch.sigmoid, 1),
    ],
)
def test_networks_that_end_in_probabilities(by: Any, outputs: Any, end: Any, classes: int) -> None:
    """They choose as those without that end do; unsaid, probabilities are refused."""
    ends = (Wrapped(end), nn.Identity())
    families = [family_of(ss.Line(), lambda end=end: nn.Sequential(nn.Linear(5, classes), end)) for end in ends]
    examples = [(inputs(), torch.arange(N) % max(classes, 2))]
    if outputs == "probabilities":
        with pytest.raises(ValueError, match=r"look like probabilities.*pass outputs='probabilities'"):
            families[0].select(examples, by=by)
    how: dict[str, Any] = {"by": by, "folds": 0, "points": 5}
    found, wanted = families[0].select(examples, outputs=outputs, **how), families[1].select(examples, **how)
    for name in ("alpha", "midpoint", "value"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "nnl"}, r"by='nnl': did you mean 'nll'"),
        ({"family": family_of(ss.Point())}, r"Point\(\) has one point"),
        ({"by": 3}, r"by=3: expected one of nll, accuracy, entropy, or a function"),
        ({"per": "weight"}, r"per='weight': expected one of 'network', 'layer'"),
        ({"outputs": "softmax"}, r"outputs='softmax': expected one of 'logits', 'probabilities'"),
        ({"outputs": "probabilities"}, r"outputs='probabilities': the network's outputs are none"),
        ({"outputs": "logits", "by": squared}, r"outputs='logits': a function by= gets outputs as they are"),
        ({"points": 1}, r"points=1: expected at least 2"),
        ({"folds": -1}, r"folds=-1: expected at least 0"),
        ({"level": 1}, r"level=1: expected a probability between 0 and 1"),
        ({"loader": []}, r"a loader without examples"),
        ({"loader": 5}, r"loader=5: expected something that yields batches"),
        ({"by": lambda output, target: output.sum()}, r"returned \(\) for a batch of 50: expected a loss for each"),
        ({"loader": [(inputs(), torch.rand(N))]}, r"targets of dtype torch.float32.*expected a class number"),
        ({"loader": [(inputs() * math.nan, torch.arange(N) % 3)]}, r"nll is not finite at the midpoint for 120 of 120"),
        ({"per": "layer", "by": lambda output, target: output.argmax(1).float()}, r"the loss has no gradient"),
    ],
)
def test_what_does_not_fit_is_refused(options: Any, message: str) -> None:
    family = family_of(ss.Line())
    with pytest.raises((TypeError, ValueError), match=message):
        ss.Subspace.select(**{"family": family, "loader": GOOD, **options})


def test_batch_norm_without_statistics_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the network has batch norm \(1\).*pass statistics=, the training loader"):
        family_of(ss.Line(), normed).select(GOOD)
    with pytest.raises(TypeError, match=r"statistics=.*expected batches that can be walked over again"):
        family_of(ss.Line(), normed).select(GOOD, statistics=iter(GOOD))
