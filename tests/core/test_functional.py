"""Networks that are cut out of a family: what they share with it, and what is their own."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from subspaces import Line, Simplex, Subspace
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


# Private names of torch


WITHOUT = """
import torch
gone = (
    (torch._C._functorch, "is_functorch_wrapped_tensor"), (torch._C._functorch, "is_batchedtensor"),
    (torch._C, "_current_graph_task_id"), (torch.nn.utils.parametrizations, "_SpectralNorm"),
)
kept = [getattr(module, name) for module, name in gone]
for module, name in gone:
    delattr(module, name)
import subspaces as ss
for (module, name), value in zip(gone, kept):  # torch itself uses them
    setattr(module, name, value)
make = lambda: torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 2))
family = ss.Subspace(make, ss.Simplex(3))
loss = family(torch.randn(4, 3)).sum() + family.penalty()
loss.backward()
"""


def test_without_private_names_the_rest_works():
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT], check=True)
