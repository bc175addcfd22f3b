"""Where a recipe is trained, and how fast: a device, and the processes that train a run together.

`torchrun --nproc-per-node 4 -m subspaces train …` starts several. Each has a device of its own, a part of the vertices
(`distribute`) and a share of every batch. All of them make the same decisions: what one alone can know, such as whether
a run is finished, whether a signal has come and what the clock says, is asked here, by all of them in the same order.
"""

import dataclasses
import gc
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from subspaces.core import distributed
from subspaces.errors import ArgumentError, UserError
from subspaces.experiments.data import Share
from subspaces.experiments.methods import fields
from subspaces.experiments.methods.fields import NATURAL, POSITIVE, Limit, setting

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Precision = Literal["auto", "float32", "bfloat16"]
WORKERS = 1024
SHARE = Limit("more than 0 and at most 1, as a run is trained on one GPU", lambda value: 0 < value <= 1)
ADDRESS = r"auto|local|[^\s/]+:\d+"  # of a Ray cluster
EVERY = 10  # steps between two moments at which processes tell each other of signals and of the time
PATIENCE = timedelta(hours=4)  # with a process that works alone, such as one that reads a data set for the first time
LEAVE = 0.3  # seconds for the threads of gloo to end
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo/transport", "NCCL")
T = TypeVar("T")


@dataclass(frozen=True)
class Execution:
    """How a recipe is run; its result is the same within rounding."""

    device: str = setting("auto", "cpu, cuda, cuda:1, …; auto takes a GPU if there is one.")
    precision: Precision = setting("auto", "auto: bfloat16 autocast on a GPU that computes in it.")
    channels_last: bool = setting(True, "Images and weights in channels-last order.")
    compile: bool | None = setting(None, "Use torch.compile; by default on a GPU.")
    graph: bool | None = setting(None, "Capture the step as a CUDA graph; by default on a GPU.")
    resident: bool | None = setting(None, "Keep images on the device; by default if they take at most half of it.")
    workers: int | None = setting(
        None, "Processes that read images that are not on the device; by default one per core.", NATURAL, most=WORKERS
    )
    at_once: int | None = setting(
        None, "Runs trained at once on a GPU; by default as many as fit into its memory.", POSITIVE
    )
    stack: int | None = setting(
        None, "Runs of equal structure trained as one program; by default 16 of a small network on a CPU.", POSITIVE
    )
    evaluate_every: int = setting(
        20, "Epochs between evaluations of the midpoint; 0: at the end; early-stopping: 1.", NATURAL
    )
    evaluate_batches: int = setting(
        50, "Batches for batch-norm statistics of these evaluations; early-stopping: 50.", POSITIVE
    )
    checkpoint_seconds: float = setting(60.0, "Seconds between checkpoints.", NATURAL, most=math.inf)
    ray: str | None = setting(
        None,
        "Train on a Ray cluster. HOST:PORT: that one; auto, or nothing: that of RAY_ADDRESS or of this machine, else a "
        "new one here; local: a new one here.",
        alone="auto",
    )
    cpus_per_run: int | None = setting(
        None, "Cores for each run on a Ray cluster, or for each stack of runs; by default 1.", POSITIVE
    )
    gpus_per_run: float | None = setting(
        None, "GPU for each run on a Ray cluster, or a fraction of one; by default 1, or 1 over --at-once.", SHARE
    )

    def __post_init__(self) -> None:
        fields.check(self, dataclasses.fields(self))
        if self.ray is None:
            for name in ("cpus_per_run", "gpus_per_run"):
                if (value := getattr(self, name)) is not None:
                    raise ArgumentError(f'{name}={value}: it is for runs on a Ray cluster; add --ray (ray="auto")')
            return
        if not re.fullmatch(ADDRESS, self.ray):
            raise ArgumentError(f"ray={self.ray!r}: expected auto, local, or HOST:PORT of a cluster's head")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ArgumentError(f"device={self.device!r} with ray: expected auto, cpu or cuda; Ray says which GPU")
        if self.device == "cpu" and (self.gpus_per_run is not None or self.graph):
            name = "graph" if self.graph else "gpus_per_run"
            raise ArgumentError(f"{name}={getattr(self, name)} with device='cpu': expected one of the two")

    def resolved(self) -> "Execution":
        """Return the same with every choice made, for this machine."""
        name = self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
        except RuntimeError:
            device = torch.device("meta")
        if device.type not in ("cpu", "cuda"):
            raise ArgumentError(f"device={name!r}: expected auto, cpu, cuda or cuda:N")
        gpu, count = device.type == "cuda", torch.cuda.device_count() if torch.cuda.is_available() else 0
        if gpu and (device.index or 0) >= count:
            raise ArgumentError(f"device={name!r}: this machine has {count} CUDA devices; use cpu or auto")
        low = gpu and torch.cuda.get_device_capability(device) >= (8, 0)
        precision = self.precision if self.precision != "auto" else "bfloat16" if low else "float32"
        compiled = gpu if self.compile is None else self.compile
        graph = gpu if self.graph is None else self.graph
        if graph and not gpu:
            raise ArgumentError(f"graph=True on {name}: a CUDA graph needs a CUDA device")
        return dataclasses.replace(self, device=name, precision=precision, compile=compiled, graph=graph)


class LostError(UserError, RuntimeError):
    """A process that trained a part of a run is gone."""


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
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(torch.device(execution.device).type, (dist.get_world_size(),))
        words = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield World(dist.get_rank(), dist.get_world_size(), mesh, words), execution
    except Exception as error:
        lost = type(error) is RuntimeError and any(words in str(error) for words in LOST)
        if not lost and not isinstance(error, dist.DistError):
            raise
        why = "see its error above, or what ended it (memory, a machine)"
        remedy = "the same command continues from the last checkpoint"
        raise LostError(f"process {rank} of {size} has lost another one: {why}; {remedy}") from None
    finally:
        if ours:
            leave()


def leave() -> None:
    """Destroy all process groups of this process, so that it can end.

    A thread of gloo that asks for the GIL while the interpreter ends, to drop a tensor, aborts the process before
    Python 3.14: so the GIL is free here for a moment.
    """
    time.sleep(LEAVE)
    with suppress(RuntimeError):  # of a process that is gone
        dist.destroy_process_group()
    gc.collect()
    time.sleep(LEAVE)


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
