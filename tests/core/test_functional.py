"""Networks that are cut out of a family: what they share with it, and what is their own."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from subspaces import Line, Simplex, Subspace, recalibrate
from subspaces.core import functional


class Adapted(nn.Module):
    """A frozen base with tied weights and a recurrent part, and a norm and a head that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(40, 40).requires_grad_(False)
        self.again = nn.Linear(40, 40, bias=False)
        self.again.weight = self.base.weight
        self.cells = nn.GRU(40, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.cells(self.again(self.base(x)))[0]))


def frozen(network: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in network.named_parameters(remove_duplicate=False) if not p.requires_grad}


CUTS: dict[str, Any] = {
    "at": lambda family, **options: [family.at([0.2, 0.3, 0.5], **options)],
    "midpoint": lambda family, **options: [family.midpoint(**options)],
    "ensemble": lambda family, **options: list(family.ensemble(torch.eye(3), **options).members),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_network_shares_frozen_parameters_on_request_and_nothing_else(cut):
    family, x = Subspace(Adapted, Simplex(3), init="point").eval(), torch.randn(6, 40)
    with torch.no_grad():
        for omega in family.omega.values():
            omega.add_(torch.randn_like(omega))
    own = frozen(family.template)
    assert len(own) == 7
    taken = {tensor.data_ptr() for tensor in (*family.omega.values(), *family.buffers()) if tensor.numel()}
    for network, copied in zip(CUTS[cut](family, share=True), CUTS[cut](family), strict=True):
        assert frozen(network).keys() == frozen(copied).keys() == own.keys()
        assert all(parameter is own[name] for name, parameter in frozen(network).items())
        memory = {parameter.data_ptr() for parameter in own.values()}
        assert memory.isdisjoint(parameter.data_ptr() for parameter in copied.parameters())
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        assert len(trained) == 4
        assert taken.isdisjoint(tensor.data_ptr() for tensor in (*trained, *network.buffers()))
        assert torch.equal(network.eval()(x), copied.eval()(x))


def test_the_trained_part_of_a_network_that_shares_is_independent():
    family, x = Subspace(Adapted, Line(), init="point").eval(), torch.randn(6, 40)
    before = family(x)
    network = recalibrate(family.midpoint(share=True), [torch.randn(6, 40)])
    optimizer = torch.optim.SGD(network.parameters(), lr=1)
    network(x).square().sum().backward()
    optimizer.step()
    assert torch.equal(family(x), before)
    assert not torch.equal(network(x), before)


class Keeping(nn.Linear):
    """Keeps what it made of its last inputs, as a mixture of experts keeps its losses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        self.losses, self.named = [y.mean()], {"y": (y,)}
        return y


def test_results_that_a_part_keeps_in_a_container_are_copied_without_their_graph():
    family = Subspace(lambda: Keeping(3, 2), Line())
    y = family(torch.randn(4, 3))
    network = family.midpoint()
    assert torch.equal(network.named["y"][0], y)
    assert not network.losses[0].requires_grad


def held(network: nn.Module) -> list[Any]:
    """Return all parameters and buffers with their places, also where there is nothing."""
    parts = network.named_modules(remove_duplicate=False)
    return [
        (name, key, value) for name, part in parts for key, value in (*part._parameters.items(), *part._buffers.items())
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_is_that_of_torch_and_leaves_all_as_it_was(fails):
    family = Subspace(Adapted, Line(), init="point").eval()
    weights = {name: torch.randn_like(value) for name, value in family.vertex(0).items()}
    weights["norm.running_mean"] = torch.randn(8)
    before = held(family.template)
    x = torch.randn(5, 40)
    if fails:
        with pytest.raises(RuntimeError, match="shapes"):
            functional.call(family.template, weights, (x[:, :3],), {})
    else:
        expected = functional_call(family.template, dict(weights), (x,))
        assert torch.equal(functional.call(family.template, weights, (), {"x": x}), expected)
    assert all(a[:2] == b[:2] and a[2] is b[2] for a, b in zip(held(family.template), before, strict=True))


def test_a_part_that_was_exchanged_gets_its_weights():
    family = Subspace(Adapted, Line(), init="point").eval()
    x = torch.randn(5, 40)
    before = family(x, alpha=0.3)

    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    family.template.head = Scaled(8, 2)
    functional.fill(family.template, {"head.weight": None, "head.bias": None})
    assert torch.equal(family(x, alpha=0.3), 2 * before)


class Plain(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def loaded(family: Subspace) -> Subspace:
    family.load_state_dict(Subspace(Plain, Line(), seed=1).state_dict(), assign=True)
    return family


def replaced(family: Subspace) -> Subspace:
    family.omega["weights"] = nn.Parameter(torch.randn_like(family.omega["weights"]))
    return family


CHANGES: dict[str, Any] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda family: pickle.loads(pickle.dumps(family)),
    "bfloat16": lambda family: family.to(torch.bfloat16).float(),
    "loaded": loaded,
    "replaced": replaced,
    "synchronised norms": nn.SyncBatchNorm.convert_sync_batchnorm,
}


@pytest.mark.parametrize("change", CHANGES)
def test_places_that_a_call_has_looked_up_are_those_of_the_network_at_any_time(change):
    family, x = Subspace(Plain, Line(), seed=0).eval(), torch.randn(5, 4)
    family(x)
    changed = CHANGES[change](family)
    torch.manual_seed(0)
    for omega in changed.omega.values():
        omega.data.normal_()
    changed(x).sum().backward()
    assert all(omega.grad is not None for omega in changed.omega.values())
    assert torch.equal(changed(x, alpha=0.3), changed.at(0.3)(x))
    assert all(value is None for _, key, value in held(changed.template) if key in ("weight", "bias"))
    if changed is not family and change != "copy":
        assert all(omega.grad is None for omega in family.omega.values())


def test_other_vertices_by_functional_call_are_taken_after_a_call_too():
    family, x = Subspace(Plain, Line(), seed=0).eval(), torch.randn(5, 4)
    family(x)
    other = Subspace(Plain, Line(), seed=1).eval()
    found = functional_call(family, dict(other.named_parameters()), (x,), {"alpha": 0.3})
    assert torch.equal(found, other(x, alpha=0.3))
    slopes = torch.func.grad(lambda omega: functional_call(family, omega, (x,), {"alpha": 0.3}).sum())(
        dict(family.named_parameters())
    )
    family(x, alpha=0.3).sum().backward()
    assert all(torch.equal(slopes[name], value.grad) for name, value in family.named_parameters())
