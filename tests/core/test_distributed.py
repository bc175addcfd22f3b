"""Two processes train one family: the same points, the same gradients and weights as one process."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from processes import CONTEXT
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

import subspaces as ss
from subspaces.experiments.training.world import leave

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)

RANKS = 2
STEPS = 4
OPTIONS = {
    "line": {"shape": ss.Line()},
    "simplex": {"shape": ss.Simplex(3)},
    "layerwise": {"shape": ss.Simplex(3), "layerwise": True},
    "samples": {"shape": ss.Bezier(1), "samples": 2},
}


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def setting(name: str, seed: int) -> tuple[ss.Subspace, int]:
    """Return a family that starts from its own global seed, and the number of samples."""
    options: dict[str, Any] = dict(OPTIONS[name])
    samples = options.pop("samples", 1)
    torch.manual_seed(seed)
    return ss.Subspace(make, **options), samples


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(RANKS * step + rank)
    return torch.randn(6, 5, generator=generator), torch.randint(3, (6,), generator=generator)


def objective(module: nn.Module, family: ss.Subspace, step: int, rank: int, samples: int) -> Tensor:
    x, y = batch(step, rank)
    return F.cross_entropy(module(x, samples=samples), y) + family.penalty(beta=0.5)


def state(family: ss.Subspace) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in family.state_dict().items()}


def gradients(family: ss.Subspace) -> dict[str, Tensor]:
    return {name: omega.grad.clone() for name, omega in family.omega.items()}


def worker(rank: int, folder: str) -> None:
    """Train every setting as one of the ranks, and write what happened at each step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    history: dict[str, Any] = {}
    for name in OPTIONS:
        family, samples = setting(name, seed=rank)
        started = state(family)
        parallel = DistributedDataParallel(family)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        steps = []
        for step in range(STEPS):
            optimizer.zero_grad()
            objective(parallel, family, step, rank, samples).backward()
            optimizer.step()
            steps.append({"state": state(family), "gradients": gradients(family)})
        history[name] = {"started": started, "steps": steps}
    torch.save(history, f"{folder}/rank{rank}.pt")
    leave()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("processes")
    mp.start_processes(worker, (str(folder),), nprocs=RANKS, start_method=CONTEXT.get_start_method())
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("name", OPTIONS)
def test_ranks_that_start_differently_become_the_same(ranks: list[dict[str, Any]], name: str):
    first, second = (rank[name] for rank in ranks)
    assert not torch.equal(first["started"]["rng"], second["started"]["rng"])
    assert not torch.equal(first["started"]["omega.weights"], second["started"]["omega.weights"])
    for mine, other in zip(first["steps"], second["steps"], strict=True):
        assert mine["gradients"].keys() == other["gradients"].keys()
        for key, value in mine["gradients"].items():
            assert torch.equal(value, other["gradients"][key])
        for key, value in mine["state"].items():  # the same random numbers, too: the points were the same
            assert torch.equal(value, other["state"][key])


@pytest.mark.parametrize("name", OPTIONS)
def test_two_processes_are_one_with_the_whole_batch(ranks: list[dict[str, Any]], name: str):
    family, samples = setting(name, seed=0)
    for key, value in ranks[0][name]["started"].items():
        assert torch.equal(value, family.state_dict()[key])
    optimizer = torch.optim.SGD(family.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for step, expected in enumerate(ranks[0][name]["steps"]):
        optimizer.zero_grad()
        if samples == 1:
            batches = [batch(step, rank) for rank in range(RANKS)]
            x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
            loss = F.cross_entropy(family(x), y) + family.penalty(beta=0.5)
        else:  # each rank cuts its own batch, at the same points
            start = family.rng.clone()
            loss = torch.zeros(())
            for rank in range(RANKS):
                family.rng.copy_(start)
                loss = loss + objective(family, family, step, rank, samples) / RANKS
        loss.backward()
        for key, omega in family.omega.items():
            assert omega.grad.abs().max() > 1e-3
            assert_close(expected["gradients"][key], omega.grad, rtol=1e-4, atol=1e-6)
        optimizer.step()
        assert torch.equal(family.rng, expected["state"]["rng"])
        assert_close(expected["state"], dict(family.state_dict()), rtol=1e-5, atol=1e-6)
