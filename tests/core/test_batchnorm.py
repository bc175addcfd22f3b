"""Recalibration of batch norm, against statistics computed by hand in float64."""

import copy
import itertools
import math
from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from subspaces import Bezier, Ensemble, Line, Simplex, Subspace, recalibrate
from subspaces.core.batchnorm import renew
from subspaces.errors import ArgumentError


class Net(nn.Module):
    """Two batch norms of different kinds, in float64 so that sums by hand agree to the last digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm1 = nn.BatchNorm2d(3, momentum=0.3)
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(3, 4)
        self.norm2 = nn.BatchNorm1d(4, momentum=None)
        nn.init.normal_(self.norm1.weight)
        nn.init.normal_(self.norm1.bias)
        for norm in (self.norm1, self.norm2):  # what an earlier training may have left
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            norm.num_batches_tracked.fill_(17)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(F.relu(self.norm1(self.conv(x)))).mean((2, 3))
        return self.norm2(self.head(y))


def by_hand(net: nn.Module, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return the mean over batches of the mean and of the unbiased variance that enter each norm of a `Net`."""
    weights = {name: value.detach().double() for name, value in net.named_parameters()}
    found: dict[str, list[Tensor]] = {}
    for x in batches:
        y = F.conv2d(x, weights["conv.weight"], weights["conv.bias"])
        rows = y.transpose(0, 1).flatten(1)  # [channels, values]
        found.setdefault("norm1.running_mean", []).append(rows.mean(1))
        found.setdefault("norm1.running_var", []).append(rows.var(1, correction=1))
        mean, deviation = rows.mean(1), (rows.var(1, correction=0) + 1e-5).sqrt()
        scale = weights["norm1.weight"] / deviation
        shift = weights["norm1.bias"] - mean * scale
        y = (y * scale[:, None, None] + shift[:, None, None]).clamp_min(0).mean((2, 3))
        y = y @ weights["head.weight"].T + weights["head.bias"]
        found.setdefault("norm2.running_mean", []).append(y.mean(0))
        found.setdefault("norm2.running_var", []).append(y.var(0, correction=1))
    return {name: torch.stack(values).mean(0) for name, values in found.items()}


def check_statistics(net: nn.Module, expected: dict[str, Tensor]) -> None:
    state = net.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=1e-10, atol=1e-12)


def images(count: int = 3, size: int = 5) -> list[Tensor]:
    return [index + (1 + index) * torch.randn(size + index, 2, 4, 4, dtype=torch.float64) for index in range(count)]


def family(shape: Any = None, **options: Any) -> Subspace:
    return Subspace(Net, shape or Line(), **options)


kinds = pytest.mark.parametrize(
    "make",
    [Net, lambda: Ensemble([Net(), Net()]), family, lambda: family(Simplex(3), layerwise=True)],
    ids=["network", "ensemble", "family", "layerwise"],
)


def snapshot(module: nn.Module) -> dict[str, Any]:
    """Return everything that must be as before: modes, momenta, weights and buffers."""
    modes = {name: part.training for name, part in module.named_modules()}
    momenta = {name: part.momentum for name, part in module.named_modules() if hasattr(part, "momentum")}
    return {"modes": modes, "momenta": momenta, **{name: value.clone() for name, value in module.state_dict().items()}}


def same(first: dict[str, Any], second: dict[str, Any], skip: tuple[str, ...] = ()) -> bool:
    def equal(name: str) -> bool:
        one, other = first[name], second[name]
        return torch.equal(one, other) if isinstance(one, Tensor) else one == other

    return first.keys() == second.keys() and all(equal(name) for name in first if not name.endswith(skip))


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


# The statistics


def test_the_statistics_of_a_network_are_the_average_over_batches():
    net, batches = Net(), images()
    assert recalibrate(net, batches) is net
    check_statistics(net, by_hand(net, batches))
    assert net.norm1.num_batches_tracked == 3


@pytest.mark.parametrize(
    ("shape", "alpha"),
    [
        (Line(), 0.1),
        (Bezier(1), torch.tensor(0.9)),
        (Simplex(3), [0.7, 0.2, 0.1]),
        (Line(), torch.tensor([0.9, 0.2, 0.5, 0.1])),
        (Line(), [0.1, 0.5, 0.9, 0.3]),
    ],
    ids=["line", "curve", "simplex", "names", "layers"],
)
def test_a_family_at_a_point_is_the_recalibrated_network_at_that_point(shape, alpha):
    net, batches = family(shape), images()
    recalibrate(net, batches, alpha=alpha)
    point = recalibrate(net.at(alpha), batches)
    check_statistics(net.template, by_hand(point, batches))
    x = images(1)[0]
    assert torch.equal(net.eval()(x, alpha=alpha), point.eval()(x))


def test_renewed_statistics_are_the_same_each_time_and_all_else_stays():
    net = nn.Sequential(nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Flatten(), nn.BatchNorm1d(32)).double()
    net.register_buffer("count", torch.zeros(()))

    def forward(module: nn.Module, x: Tensor) -> Tensor:
        net.count += 1
        return module(x)

    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(torch.cat(images()), batch_size=5, shuffle=True, generator=generator)
    net.eval()
    before, torchs, loaders = snapshot(net), torch.get_rng_state(), generator.get_state()
    found = []
    for _ in range(2):
        renew(net, loader, forward, batches=2, seed=7)
        found.append(snapshot(net))
    assert same(found[0], found[1])
    assert same(before, found[0], skip=STATISTICS)
    assert not torch.equal(before["3.running_mean"], found[0]["3.running_mean"])
    assert torch.equal(torch.get_rng_state(), torchs)
    assert torch.equal(generator.get_state(), loaders)
    renew(nn.Linear(2, 2), Untouchable(), forward)


# What is restored


@kinds
def test_modes_and_momenta_are_restored(make):
    module = make()
    next(part for part in module.modules() if isinstance(part, nn.BatchNorm2d)).eval()  # one frozen on its own
    next(part for part in module.modules() if isinstance(part, nn.Dropout)).eval()
    before = snapshot(module)
    recalibrate(module, images())
    assert same(before, snapshot(module), skip=(*STATISTICS, "calibrated"))
    assert set(before["modes"].values()) == {True, False}
    frozen = next(part for part in module.modules() if isinstance(part, nn.BatchNorm2d))
    assert frozen.num_batches_tracked == 3


def failing(batches: list[Tensor], error: BaseException) -> Iterator[Tensor]:
    yield from batches
    raise error


@kinds
@pytest.mark.parametrize(
    ("error", "place"), [(RuntimeError("stop"), "network"), (KeyboardInterrupt(), "network"), (OSError(), "loader")]
)
def test_everything_is_as_before_after_an_error(make, error, place):
    module = make().eval()
    next(part for part in module.modules() if isinstance(part, nn.Linear)).train()
    before = snapshot(module)
    calls = itertools.count()

    def fail_late(*_: Any) -> None:
        if next(calls) == 2:
            raise error

    if place == "network":
        linear = next(part for part in module.modules() if isinstance(part, nn.Linear))
        linear.register_forward_hook(fail_late)
    with pytest.raises(type(error)):
        recalibrate(module, failing(images(2), error) if place == "loader" else images(4))
    assert same(before, snapshot(module))
    assert torch.is_grad_enabled()


# Loaders


@pytest.mark.parametrize(
    "wrap",
    [
        lambda batches: [[x, "label"] for x in batches],
        lambda batches: [UserDict(x=x) for x in batches],
        lambda batches: (x for x in batches),
        lambda batches: DataLoader(batches, batch_size=None),
    ],
    ids=["pairs", "mappings", "generator", "DataLoader"],
)
@pytest.mark.parametrize("make", [Net, family], ids=["network", "family"])
@pytest.mark.parametrize("cap", [None, 2, 9])
def test_loaders(make, wrap, cap):
    module, batches = make(), images()
    recalibrate(module, wrap(batches), batches=cap)
    net = module.template if isinstance(module, Subspace) else module
    weights = module.midpoint() if isinstance(module, Subspace) else module
    check_statistics(net, by_hand(weights, batches[:cap]))


@pytest.mark.gpu
@kinds
def test_on_a_gpu(make):
    torch.manual_seed(0)
    module, batches = make(), images()
    expected = recalibrate(module, batches).state_dict()
    expected = {name: value.clone() for name, value in expected.items()}
    found = recalibrate(module.to("cuda"), batches).state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name].cpu(), value)


# Other modules


class Untouchable:
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the loader was touched")


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(),
        nn.BatchNorm1d(2, track_running_stats=False),
        nn.Sequential(nn.GroupNorm(1, 2), nn.LayerNorm(2), nn.InstanceNorm1d(2)),
        Subspace(lambda: nn.Linear(2, 2), Line()),
        Ensemble([nn.Linear(2, 2)]),
    ],
    ids=["empty", "untracked", "other norms", "family", "ensemble"],
)
def test_without_statistics_the_loader_is_not_touched(module):
    assert recalibrate(module, Untouchable()) is module


@pytest.mark.parametrize("alpha", [None, 0.2])
@pytest.mark.parametrize("wrap", [lambda net: torch.compile(net, backend="eager"), AveragedModel])
def test_a_wrapped_family_is_a_family(wrap, alpha):
    wrapped, batches = wrap(family()), images()
    recalibrate(wrapped, batches, alpha=alpha)
    (net,) = wrapped.children()
    check_statistics(net.template, by_hand(net.at(0.5 if alpha is None else alpha), batches))


# Bad input


EMPTY = torch.zeros(0, 2, 4, 4, dtype=torch.float64)
NAN = torch.full((2, 2, 4, 4), torch.nan, dtype=torch.float64)


@pytest.mark.parametrize(
    ("make", "loader", "options", "message"),
    [
        *((family, Untouchable(), {"alpha": alpha}, "alpha") for alpha in (1.5, math.nan, [0.5, 0.5], "half")),
        (Net, Untouchable(), {"alpha": 0.3}, r"alpha=0\.3.*only a Subspace has points"),
        (Net, images(), {"batches": 0}, "batches=0: expected at least 1"),
        (Net, None, {}, "loader=None: expected something that yields batches"),
        (Net, [], {}, "loader without batches"),
        (Net, [EMPTY, (EMPTY, torch.zeros(0))], {}, r"no examples.*expected"),
        (Net, [*images(1), NAN], {}, r"statistics of 'norm1' are not finite"),
        (Net, [images(1)[0], images(1, size=1)[0]], {}, r"one value per channel.*\(drop_last=True\)"),
        (lambda: Ensemble([Net()]), [NAN], {}, r"statistics of 'members.0.norm1' are not finite"),
        (lambda: nn.Sequential(Net(), nn.InstanceNorm1d(4, track_running_stats=True)), images(), {}, r"1 is an Instan"),
    ],
)
def test_what_is_refused_changes_nothing(make, loader, options, message):
    module = make()
    before = snapshot(module)
    with pytest.raises(ArgumentError, match=message):
        recalibrate(module, loader, **options)
    assert same(before, snapshot(module))
    for wrong in (Net, "net"):
        with pytest.raises(TypeError, match=r"expected a network, an Ensemble or a Subspace"):
            recalibrate(wrong, loader, **options)


@kinds
@pytest.mark.parametrize("form", [lambda x: x, lambda x: (x, torch.zeros(len(x))), lambda x: {"x": x}])
def test_empty_batches_do_not_count(make, form):
    module, batches = make(), images()
    expected = recalibrate(copy.deepcopy(module), batches)
    recalibrate(module, [form(x) for x in (EMPTY, batches[0], EMPTY, *batches[1:], EMPTY)])
    assert same(snapshot(expected), snapshot(module))


class Graph(nn.Module):
    """Takes nodes and the edges between them."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.norm(self.part(x).index_add(0, edges[1], self.part(x)[edges[0]]))


@pytest.mark.parametrize("make", [Graph, lambda: Subspace(Graph, Line(), seed=0)], ids=["network", "family"])
def test_a_network_of_two_inputs_is_told_how_to_be_run(make):
    net = make()
    batches = [(torch.randn(6, 3), torch.tensor([[0, 1], [2, 3]]), torch.zeros(6)) for _ in range(3)]
    for given in (batches, [{"x": x, "edge_index": edges} for x, edges, _ in batches]):
        with pytest.raises(TypeError, match=r"does not take the inputs of a batch.*take forward=, a function of"):
            recalibrate(net, given)
    recalibrate(net, batches, forward=lambda net, batch: net(batch[0], batch[1]))
    norm = next(part for part in net.modules() if isinstance(part, nn.BatchNorm1d))
    network = net.midpoint() if isinstance(net, Subspace) else net
    outputs = [network.part(x).index_add(0, edges[1], network.part(x)[edges[0]]) for x, edges, _ in batches]
    torch.testing.assert_close(norm.running_mean, torch.stack([out.mean(0) for out in outputs]).mean(0))


class Routed(nn.Module):
    """Two experts, of which the first has a norm and may get no example of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x[:, 0] > 0
        out = x.clone()
        out[first] = self.norm(x[first])
        return self.head(out)


def test_a_norm_that_gets_no_example_of_a_batch_does_not_count_it():
    hit = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).abs()
    for batches in ([-hit, hit], [hit, -hit], [-hit, hit, -hit]):
        found = recalibrate(Subspace(Routed, Line()).midpoint(), batches).norm
        torch.testing.assert_close(found.running_mean, hit.mean(0))
        torch.testing.assert_close(found.running_var, hit.var(0))
