"""A family under torch.compile: one graph, the same numbers, no recompilation while alpha varies."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch.testing import assert_close

import subspaces as ss

kinds = pytest.mark.parametrize(("shape", "layerwise"), [(ss.Line(), False), (ss.Simplex(3), True)], ids=repr)


@pytest.fixture(autouse=True)
def _forget_graphs() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def make() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))


def family(shape: ss.Shape, **options: bool) -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(make, shape, seed=0, **options)


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 1, 4, 4, generator=generator), torch.randint(4, (6,), generator=generator)


def assert_same_state(actual: ss.Subspace, expected: ss.Subspace) -> None:
    """Compare weights, batch-norm statistics and random numbers."""
    states = [module.state_dict() for module in (actual, expected)]
    assert torch.equal(actual.rng, expected.rng)
    assert_close(states[0], states[1])


@kinds
def test_training_is_one_graph_and_the_same_as_eager(shape: ss.Shape, layerwise: bool):
    counter = CompileCounterWithBackend("aot_eager")
    eager = family(shape, layerwise=layerwise)
    original = copy.deepcopy(eager)

    def loss_of(module: ss.Subspace, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(module(x), y) + module.penalty(beta=2.0)

    compiled = torch.compile(loss_of, backend=counter, fullgraph=True)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (eager, original)]
    losses = []
    for step in range(4):
        for function, module, optimizer in zip((loss_of, compiled), (eager, original), optimizers, strict=True):
            loss = function(module, *batch(step))
            losses.append(loss.detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert_close(losses[-1], losses[-2])
        for name, omega in eager.omega.items():
            assert_close(original.omega[name].grad, omega.grad)
    assert_same_state(original, eager)
    assert counter.frame_count == 1


@kinds
def test_given_alpha_varies_without_recompilation(shape: ss.Shape, layerwise: bool):
    eager, forward_counter = family(shape, layerwise=layerwise).eval(), CompileCounter()
    compiled = torch.compile(eager, backend=forward_counter, fullgraph=True)
    x, _ = batch(0)
    outputs = []
    for _ in range(4):
        alpha = eager.sample()
        outputs.append(compiled(x, alpha=alpha))
        assert_close(outputs[-1], eager(x, alpha=alpha))
    assert forward_counter.frame_count == 1
    assert not torch.allclose(outputs[0], outputs[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it imports the compiler
def test_inductor():
    """The backend that users get, with a real compiler."""
    eager = family(ss.Simplex(3), layerwise=True)
    original = copy.deepcopy(eager)
    compiled = torch.compile(original, fullgraph=True)
    for step in range(3):
        x, y = batch(step)
        for module in (eager, compiled):
            F.cross_entropy(module(x), y).backward()
    for name, omega in eager.omega.items():
        assert_close(original.omega[name].grad, omega.grad, rtol=1e-4, atol=1e-5)
    assert_same_state(original, eager)
