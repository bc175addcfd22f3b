"""A family cut over several processes is the family of one process, for one network's traffic."""

import math
import os
import re
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torch.nn.functional as F
from processes import CONTEXT
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.profiler import profile
from torch.testing import assert_close

import subspaces as ss
from subspaces.experiments.training.execution import leave

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)

EXAMPLES = 12
STEPS = 3
BETA = 0.5
SETTINGS: dict[str, dict[str, Any]] = {
    "line": {"shape": ss.Line()},
    "simplex": {"shape": ss.Simplex(3), "optimizer": "adam"},
    "six": {"shape": ss.Simplex(6)},
    "layerwise": {"shape": ss.Simplex(3), "layerwise": True},
    "samples": {"shape": ss.Bezier(1), "samples": 2, "optimizer": "adam"},
}
SHAPES = {1: ss.Point(), 2: ss.Line(), 6: ss.Simplex(6)}
NUMBERS = {"weights": 64, "others": 27}  # of the trainable parameters of `make`: 27 is uneven for 2 and 4
HOW: dict[str, Callable[[ss.Subspace], nn.Module]] = {
    "sharded": ss.distribute,
    "plain": DistributedDataParallel,
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


def make() -> nn.Module:
    """Return a network with a frozen layer."""
    net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    net[0].requires_grad_(False)
    return net


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def started(name: str, seed: int = 0) -> tuple[ss.Subspace, int, str]:
    """Return a family that starts from its own global seed, the number of samples and the optimiser's name."""
    options = dict(SETTINGS[name])
    samples, optimizer = options.pop("samples", 1), options.pop("optimizer", "sgd")
    torch.manual_seed(seed)
    return ss.Subspace(make(), **options), samples, optimizer


def batch(step: int, rank: int, world: int, samples: int = 1) -> tuple[Tensor, Tensor]:
    """Return a rank's share of the batch of a step; it takes its part of each sample's share."""
    generator = torch.Generator().manual_seed(step)
    whole = torch.randn(EXAMPLES, 5, generator=generator), torch.randint(3, (EXAMPLES,), generator=generator)
    each = EXAMPLES // samples
    x, y = (torch.cat([part.chunk(world)[rank] for part in tensor.split(each)]) for tensor in whole)
    return x, y


def step(
    module: nn.Module, family: ss.Subspace, optimizer: torch.optim.Optimizer, data: tuple[Tensor, Tensor], samples: int
) -> dict[str, Any]:
    """Take a step, and return what it made of the family."""
    optimizer.zero_grad()
    x, y = data
    loss = F.cross_entropy(module(x, samples=samples), y) + family.penalty(beta=BETA)
    loss.backward()
    norm = clip_grad_norm_(family.parameters(), 0.5)
    gradients = {name: whole(omega.grad) for name, omega in family.omega.items()}
    optimizer.step()
    omega = {name: whole(value) for name, value in family.omega.items()}
    return {"norm": whole(norm), "gradients": gradients, "omega": omega, "rng": family.rng.clone()}


def whole(value: Any) -> Tensor:
    found: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return found.detach().clone()


def numbers_moved(work: Callable[[], object]) -> Counter[str]:
    """Return how many numbers each kind of collective was about, each counted as the gathered or summed whole."""
    with profile(record_shapes=True) as found:
        work()
    moved: Counter[str] = Counter()
    for event in found.events():
        if event.name == "c10d::_allgather_base_":
            moved["gathered"] += math.prod(event.input_shapes[0])
        elif event.name == "c10d::_reduce_scatter_base_":
            moved["scattered"] += math.prod(event.input_shapes[1])
        elif event.name == "gloo:all_reduce":
            moved["reduced"] += math.prod(event.input_shapes[0])
    moved["reduced"] -= moved["scattered"]  # gloo scatters what it has reduced for all
    return +moved


# What each process does


def trains(rank: int, world: int, name: str, how: str) -> list[dict[str, Any]]:
    family, samples, optimizer = started(name, seed=rank)
    module = HOW[how](family)
    stepping = OPTIMIZERS[optimizer](family.parameters())
    return [step(module, family, stepping, batch(i, rank, world, samples), samples) for i in range(STEPS)]


def asked(family: ss.Subspace, path: Path) -> dict[str, Any]:
    """Ask a family for all that it has."""
    points = [[0.2, 0.3, 0.5], [0.7, 0.1, 0.2]]
    x = batch(0, 0, 1)[0]
    return {
        "at": family.at(points[0]).state_dict(),
        "midpoint": family.midpoint().state_dict(),
        "vertices": [family.vertex(i) for i in range(3)],
        "ensemble": family.ensemble(points)(x).detach(),
        "output": family.eval()(x).detach(),
        "distances": tuple(family.distances()),
        "checksum": saved_in_inference(family, path),
    }


def saved_in_inference(family: ss.Subspace, path: Path) -> str:
    with torch.inference_mode():
        return ss.save(family, path)


def looks(rank: int, world: int, folder: str) -> dict[str, Any]:
    family = ss.distribute(started("simplex", seed=rank)[0])
    found = asked(family, Path(folder) / f"family{world}of{rank}.safetensors")
    family.save_pretrained(Path(folder) / f"pretrained{world}of{rank}", card=False)
    return found


def measures(rank: int, world: int) -> dict[str, Any]:
    """Count what a step moves and what a rank holds, for families of 1, 2 and 6 vertices."""
    found: dict[str, Any] = {}
    for m, shape in SHAPES.items():
        data = batch(0, rank, world)
        family = ss.distribute(ss.Subspace(make(), shape))
        found[f"sharded {m}"] = numbers_moved(lambda f=family, d=data: f(d[0]).sum().backward())
        found[f"penalty {m}"] = numbers_moved(lambda f=family: f.penalty())
        plain = DistributedDataParallel(ss.Subspace(make(), shape))
        found[f"parallel {m}"] = numbers_moved(lambda p=plain, d=data: p(d[0]).sum().backward())
    return found


def batches(rank: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(6, 5, generator=generator) for _ in range(3 - rank)]


def recalibrates(rank: int) -> dict[str, Any]:
    """Make statistics from loaders of different lengths, and keep them fresh while training."""
    torch.manual_seed(rank)
    family = ss.distribute(ss.Subspace(normed, ss.Line()))
    ss.recalibrate(family, batches(rank))
    made = family.midpoint().state_dict()
    torch.manual_seed(rank)
    fresh = ss.distribute(ss.Subspace(normed, ss.Line(), statistics_every=2))
    for x in batches(1):
        fresh(x + rank)
    return {
        "made": made,
        "calibrated": family.is_calibrated,
        "fresh": fresh.midpoint().state_dict(),
    }


def refuses(rank: int, world: int, folder: str) -> dict[str, str]:
    """Do what is wrong, and return what is said of it."""
    family = ss.distribute(started("line")[0])
    plain = started("line")[0]
    parallel = DistributedDataParallel(plain)
    square = init_device_mesh("cpu", (1, world), mesh_dim_names=("rows", "data"))
    wrong: dict[str, Callable[[], object]] = {
        "again": lambda: ss.distribute(family),
        "square": lambda: ss.distribute(plain, square),
        "no mesh": lambda: ss.distribute(plain, 2),
        "wrapped": lambda: ss.distribute(parallel),
        "a network": lambda: ss.distribute(make()),
        "apart": lambda: family(batch(0, 0, 1)[0], alpha=0.1 * rank),
        "at apart": lambda: family.at(0.1 * rank),
        "drawn alone": lambda: (family.sample() if rank else None, family.midpoint()),
        "no folder": lambda: ss.save(family, f"{folder}/nowhere/family.safetensors"),
        "fully sharded": lambda: fully_shard(started("line")[0]).midpoint(),
        "select": lambda: family.select([batch(0, 0, 1)]),
    }
    said: dict[str, str] = {}
    for name, call in wrong.items():
        with pytest.raises((TypeError, ValueError, OSError)) as error:
            call()
        said[name] = str(error.value)
    assert ss.distribute(started("line")[0], square["data"]).mesh == square["data"]
    frozen = started("line")[0]
    frozen.omega["others"].requires_grad_(False)
    assert not ss.distribute(frozen).omega["others"].requires_grad
    return said


def learns_alpha(family: ss.Subspace, rank: int, world: int) -> dict[str, Tensor]:
    """Return the gradient of alpha, one for the network and one for each layer."""
    x, y = batch(0, rank, world)
    found = {}
    for name, alpha in {"network": torch.tensor(0.3), "layers": torch.tensor([0.2, 0.5, 0.7])}.items():
        F.cross_entropy(family(x, alpha=alpha.requires_grad_()), y).backward()
        found[name] = alpha.grad
    return found


def checkpoint_of(family: ss.Subspace, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model, state = get_state_dict(family, optimizer)
    return {"model": model, "optimizer": state}


def writes_checkpoint(rank: int, world: int, folder: str) -> None:
    family, samples, optimizer = started("simplex")
    ss.distribute(family)
    stepping = OPTIMIZERS[optimizer](family.parameters())
    step(family, family, stepping, batch(0, rank, world), samples)
    dcp.save(checkpoint_of(family, stepping), checkpoint_id=f"{folder}/checkpoint")


def continues(folder: Path) -> list[dict[str, Any]]:
    """Load the checkpoint of two ranks in one process, and take the steps after it."""
    family, samples, optimizer = started("simplex", seed=5)
    stepping = OPTIMIZERS[optimizer](family.parameters())
    state = checkpoint_of(family, stepping)
    dcp.load(state, checkpoint_id=f"{folder}/checkpoint")
    set_state_dict(family, stepping, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return [step(family, family, stepping, batch(i, 0, 1), samples) for i in range(1, STEPS)]


def reads_the_page(rank: int, world: int, folder: str, port: int) -> dict[str, Any]:
    """Run the lines of the documents as `torchrun` would."""
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "many-gpus.md").read_text()
    (code,) = re.findall(r"```python torchrun\n(.*?)```", text, re.DOTALL)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    os.chdir(folder)
    names: dict[str, Any] = {"ss": ss, "torch": torch, "F": F, "make_net": normed, "device": "cpu"}
    names["loader"] = [batch(i, rank, world) for i in range(2)]
    exec(code, names)
    state: dict[str, Any] = names["net"].state_dict()
    return state


def worker(rank: int, world: int, folder: str, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=world)
    found: dict[str, Any] = {"looked": looks(rank, world, folder)}
    found["trained"] = {(name, how): trains(rank, world, name, how) for name in SETTINGS for how in HOW}
    found["measured"] = measures(rank, world)
    found["statistics"] = recalibrates(rank)
    found["alpha"] = learns_alpha(ss.distribute(started("line", seed=rank)[0]), rank, world)
    found["said"] = refuses(rank, world, folder)
    writes_checkpoint(rank, world, folder)
    leave()
    found["page"] = reads_the_page(rank, world, folder, port)
    torch.save(found, f"{folder}/rank{rank}.pt")


# What has to come of it

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> Ranks:
    """What each of two ranks found."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    mp.start_processes(worker, (2, str(folder), port), nprocs=2, start_method=CONTEXT.get_start_method())
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def alone() -> dict[str, list[dict[str, Any]]]:
    """What one process with the batches of all ranks makes of each setting."""
    found = {}
    for name in SETTINGS:
        family, samples, optimizer = started(name)
        stepping = OPTIMIZERS[optimizer](family.parameters())
        found[name] = [step(family, family, stepping, batch(i, 0, 1, samples), samples) for i in range(STEPS)]
    return found


def check_steps(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert all(gradient.abs().max() > 1e-3 for gradient in expected[0]["gradients"].values())
    assert torch.equal(found[-1]["rng"], expected[-1]["rng"])
    assert_close(found, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", SETTINGS)
def test_processes_are_one_with_the_whole_batch(ranks: Ranks, alone: dict[str, Any], name: str, how: str) -> None:
    first, second = (rank["trained"][name, how] for rank in ranks)
    check_steps(first, alone[name])
    for mine, other in zip(first, second, strict=True):  # not almost: they would drift apart
        assert_close(mine, other, rtol=0, atol=0)


def test_a_distributed_family_has_all_that_a_family_has(ranks: Ranks, folder: Path) -> None:
    family = started("simplex")[0]
    expected = asked(family, folder / "alone.safetensors")
    for rank in ranks:
        assert rank["looked"].pop("checksum") == expected["checksum"]
        assert_close(rank["looked"]["vertices"], expected["vertices"], rtol=0, atol=0)
        assert_close(rank["looked"], {name: value for name, value in expected.items() if name != "checksum"})
    (written,) = folder.glob("family2of*")  # by one rank, under the name that it was given
    assert written.read_bytes() == (folder / "alone.safetensors").read_bytes()
    (pretrained,), alone = folder.glob("pretrained2of*"), family.save_pretrained(folder / "alone", card=False)
    for name in ("config.json", "model.safetensors"):
        assert (pretrained / name).read_bytes() == (alone / name).read_bytes()


@pytest.mark.parametrize("m", SHAPES)
def test_a_step_moves_the_numbers_of_one_network(ranks: Ranks, m: int) -> None:
    numbers = sum(NUMBERS.values())
    padded = sum(2 * math.ceil(n / 2) for n in NUMBERS.values())
    for rank in ranks:
        measured = rank["measured"]
        assert measured[f"parallel {m}"] == {"reduced": m * numbers}  # which are gathered and scattered at once
        assert measured[f"sharded {m}"] == {"gathered": padded, "scattered": padded}
        assert measured[f"penalty {m}"] == ({"reduced": 3} if m > 1 else {})


def test_statistics_are_of_the_batches_of_all_ranks(ranks: Ranks) -> None:
    torch.manual_seed(0)
    family = ss.Subspace(normed, ss.Line())
    ss.recalibrate(family, [*batches(0), *batches(1)])
    for rank in ranks:
        assert rank["statistics"]["calibrated"]
        assert_close(rank["statistics"]["fresh"], ranks[0]["statistics"]["fresh"], rtol=0, atol=0)
        assert_close(rank["statistics"]["made"], family.midpoint().state_dict())


def test_the_gradient_of_alpha_is_of_all_columns_and_batches(ranks: Ranks) -> None:
    for rank in ranks:
        assert_close(rank["alpha"], learns_alpha(started("line")[0], 0, 1))


@pytest.mark.filterwarnings("ignore:.*torch.distributed.*:UserWarning")
def test_a_checkpoint_of_two_is_continued_by_one(ranks: Ranks, folder: Path, alone: dict[str, Any]) -> None:
    check_steps(continues(folder), alone["simplex"][1:])


SAID = {
    "again": "sharded already",
    "square": r"mesh=DeviceMesh.*: expected a DeviceMesh with one dimension",
    "no mesh": "expected a DeviceMesh",
    "wrapped": "a DistributedDataParallel: expected a Subspace, before anything wraps it",
    "a network": "expected a Subspace",
    "apart": "alpha.* is not the same on all ranks",
    "at apart": "alpha.* is not the same on all ranks",
    "drawn alone": "how many random numbers were drawn, is not the same on all ranks",
    "no folder": "No such file or directory: could not be written",
    "fully sharded": "as fully_shard does: expected a family that subspaces.distribute has cut",
    "select": "save it",
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_wrong_is_refused_on_all_ranks(ranks: Ranks, name: str) -> None:
    for rank in ranks:
        assert rank["said"].keys() == SAID.keys()
        assert re.search(SAID[name], rank["said"][name])


def test_the_lines_of_the_page_train_and_write_a_family(ranks: Ranks, folder: Path) -> None:
    family = ss.load(folder / "family.safetensors", normed)
    assert family.shape == ss.Simplex(6)
    assert family.is_calibrated
    for rank in ranks:
        assert_close(rank["page"], dict(family.midpoint().state_dict()))


def test_without_a_process_group_it_says_what_to_write() -> None:
    family = started("line")[0]
    with pytest.raises(RuntimeError, match=r"init_process_group\(\).*torchrun"):
        ss.distribute(family)
    assert family.mesh is None
