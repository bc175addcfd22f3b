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
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from subspaces.core import distributed
from subspaces.errors import ArgumentError, UserError
from subspaces.experiments.data import Share
from subspaces.experiments.training.execution import Execution

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

EVERY = 10  # steps between two moments at which processes tell each other of signals and of the time
PATIENCE = timedelta(hours=4)  # with a process that works alone, such as one that reads a data set for the first time
LEAVE = 0.3  # seconds for the threads of gloo to end
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
        why = "see its error above, or what ended it (memory, a machine)"
        told = f"process {rank} of {size} has lost another one: {why}"
        raise LostError(f"{told}; the same command continues from the last checkpoint") from None
    finally:
        if ours:
            leave()


def leave() -> None:
    """Destroy all process groups of this process, so that it can end.

    A thread of gloo needs the GIL to drop a tensor, which may be after the collective has returned, and before Python
    3.14 one that asks for it while the interpreter ends aborts the process: so the GIL is free here for a moment.
    """
    time.sleep(LEAVE)
    with suppress(RuntimeError):  # of a process that is gone
        dist.destroy_process_group()
    gc.collect()
    time.sleep(LEAVE)


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
    plain = type(error) is RuntimeError and any(words in str(error) for words in LOST)
    return plain or isinstance(error, dist.DistError)
