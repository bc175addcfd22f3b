"""The processes that train a run together, started by `torchrun --nproc-per-node 4 -m subspaces train …`.

Each has a device of its own, a part of the vertices (`distribute`) and a share of every batch. All of them make the
same decisions: what one alone can know, such as whether a run is finished, whether a signal has come and what the
clock says, is asked here, by all of them in the same order.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from subspaces.core import distributed
from subspaces.errors import ArgumentError, UserError
from subspaces.experiments.data import Share
from subspaces.experiments.training.execution import Execution

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

EVERY = 10  # steps between two moments at which processes tell each other of signals and of the time
PATIENCE = timedelta(hours=4)  # with a process that works alone, such as one that reads a data set for the first time
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo/transport", "NCCL")
T = TypeVar("T")


class LostError(UserError, RuntimeError):
    """A process that trained a part of a run, or all of it, is gone."""


@dataclass(frozen=True)
class World:
    """One of the processes that train together; alone, it is the first and the only one."""

    rank: int = 0
    size: int = 1
    mesh: "DeviceMesh | None" = None
    words: Any = None  # the group over which processes talk, on the CPU

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and shows progress."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other."""
        return self.mesh is None

    def share(self, whole: bool = False, most: int | None = None) -> Share:
        """Return what this process takes of the batches."""
        return Share(self.rank, self.size, whole, most)

    def on_first(self, work: Callable[[], T]) -> T:
        """Let the first process do something; all return what came of it, or raise its error."""
        return distributed.on_first(self.mesh, work)

    def largest(self, number: int) -> int:
        """Return the largest of the numbers that the processes have."""
        if self.alone:
            return number
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.words)
        return int(found)

    def total(self, sums: Tensor) -> Tensor:
        """Return the sum of what the processes have."""
        if self.mesh is None:
            return sums
        found = sums.clone()
        dist.all_reduce(found, group=self.mesh.get_group())
        return found

    def every(self, value: Tensor) -> Tensor:
        """Return what each process has, in a row for each; alone, what it has."""
        if self.alone:
            return value
        rows = [torch.empty_like(value) for _ in range(self.size)]
        dist.all_gather(rows, value, group=self.words)
        return torch.stack(rows)


ALONE = World()


def started() -> tuple[int, int]:
    """Return which process this is and how many were started together, as torchrun says; (0, 1) without it."""
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    return (int(rank), int(size)) if rank.isdecimal() and size.isdecimal() and int(size) > 1 else (0, 1)


@contextmanager
def joined(execution: Execution) -> Iterator[tuple[World, Execution]]:
    """Meet the processes that were started together; yield this one's part, and where it trains."""
    rank, size = started()
    if execution.ray is None:
        execution = placed(execution)
    if size == 1:
        yield ALONE, execution
        return
    if execution.device.startswith("cuda"):
        torch.cuda.set_device(execution.device)
    ours = not dist.is_initialized()
    if ours:
        backend = "cpu:gloo,cuda:nccl" if execution.device.startswith("cuda") else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield _world(execution), execution
    except Exception as error:
        if not _lost(error):
            raise
        raise LostError(
            f"process {rank} of {size} has lost another one: see its error above, or what ended it (memory, a "
            "machine); the same command continues from the last checkpoint"
        ) from None
    finally:
        if ours:
            leave()


def leave() -> None:
    """Destroy all process groups of this process, so that it can end.

    A group that is freed joins its threads, which wait for ever if one of them needs the GIL meanwhile.
    """
    _wait_for_threads()
    with suppress(RuntimeError):  # of a process that is gone
        dist.destroy_process_group()
    gc.collect()
    _wait_for_threads()


def _wait_for_threads() -> None:
    """Wait until gloo's threads have dropped the tensors of the last collectives; two seconds at most.

    A thread of gloo needs the GIL to drop a tensor, which may be after the collective has returned. Before Python 3.14
    one that asks for it while the interpreter ends aborts the process. So the GIL is free here until all of them have
    slept for an interval.
    """
    before: list[str] = []
    for _ in range(100):
        now = _thread_states()
        if now is None:
            time.sleep(0.3)
            return
        if now == before and all("(sleeping)" in state for state in now):
            return
        before = now
        time.sleep(0.02)


def _thread_states() -> list[str] | None:
    """Return what Linux says of each of gloo's threads: asleep or not, and how often it ran; None elsewhere."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return None
    found = []
    for task in sorted(tasks.iterdir()):
        with suppress(OSError):  # of a thread that has ended
            status = (task / "status").read_text()
            if "gloo_runloop" in status.partition("\n")[0]:
                found.append(status)
    return found


def _world(execution: Execution) -> World:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(torch.device(execution.device).type, (dist.get_world_size(),))
    return World(dist.get_rank(), dist.get_world_size(), mesh, dist.new_group(backend="gloo", timeout=PATIENCE))


def placed(execution: Execution) -> Execution:
    """Return the same on the device of this process, after refusing what it, or several processes, cannot do."""
    _, size = started()
    if size == 1:
        return execution.resolved()
    for name in ("compile", "graph", "at_once", "stack"):
        if (value := getattr(execution, name)) not in (None, False, 1) or value is True:
            why = "train one run at a time together, step by step; leave it out, or start one process"
            raise ArgumentError(f"{name}={value}: {size} processes {why}")
    kind, _, number = execution.device.partition(":")
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        if number:
            raise ArgumentError(f"device={execution.device!r}: {size} processes take a GPU each; expected cuda")
        kind = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return replace(execution, device=kind, compile=False, graph=False).resolved()


def _lost(error: Exception) -> bool:
    """Say whether an error is that of talking to a process that is gone."""
    if isinstance(error, dist.DistError):
        return True
    return type(error) is RuntimeError and any(words in str(error) for words in LOST)


# Batch norm over the batch of all processes

ORDINARY = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _Total(torch.autograd.Function):
    """The sum over all processes; so is its gradient, as what each made of the sum depends on every part."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        found = value.clone()
        dist.all_reduce(found)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        found = gradients[0].contiguous().clone()
        dist.all_reduce(found)
        return found


def _total(value: Tensor) -> Tensor:
    found: Tensor = _Total.apply(value)  # type: ignore[no-untyped-call]
    return found


class Synchronised(_BatchNorm):
    """A batch norm that, while it keeps no statistics, normalises with those of the batches of all processes.

    While it keeps statistics, as networks that are taken out of a family do, it is an ordinary one: processes may
    then run different numbers of batches.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        """The network was made with a norm that checked it."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.track_running_stats:
            return super().forward(input)
        return synchronised(input, self.weight, self.bias, self.eps)


def synchronised(x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float) -> Tensor:
    """Return (x - mean) / √(variance + epsilon) · weight + bias, of the batches of all processes."""
    others = [dimension for dimension in range(x.ndim) if dimension != 1]
    shape = [1, -1] + [1] * (x.ndim - 2)
    with torch.autocast(x.device.type, enabled=False):
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        count = values.new_tensor([x.numel() / x.shape[1]])
        sums = _total(torch.cat([values.sum(others), count]))
        mean, n = sums[:-1] / sums[-1], sums[-1]
        centred = values - mean.view(shape)
        variance = _total(centred.square().sum(others)) / n
        scale = torch.rsqrt(variance + epsilon)
        result = centred * (scale if weight is None else scale * weight).view(shape)
        return (result if bias is None else result + bias.view(shape)).to(x.dtype)


def synchronise(network: nn.Module) -> nn.Module:
    """Return the network with torch's batch norms replaced by synchronised ones, which share their parameters."""
    made: dict[nn.Module, Synchronised] = {}
    for name, part in list(network.named_modules(remove_duplicate=False)):
        if type(part) in ORDINARY:
            norm = made.setdefault(part, _like(part))
            parent, _, own = name.rpartition(".")
            if not own:
                return norm
            setattr(network.get_submodule(parent), own, norm)
    return network


def _like(norm: Any) -> Synchronised:
    """Return a synchronised norm with the settings, parameters, statistics and mode of another."""
    made = Synchronised(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    made.weight, made.bias = norm.weight, norm.bias
    for name, value in norm.named_buffers():
        made.register_buffer(name, value)
    return made.train(norm.training)
