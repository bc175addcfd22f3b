"""Where a recipe is trained, and how fast."""

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Literal

import torch

from subspaces.errors import ArgumentError
from subspaces.experiments.methods import fields
from subspaces.experiments.methods.fields import NATURAL, POSITIVE, Limit, setting

Precision = Literal["auto", "float32", "bfloat16"]
WORKERS = 1024
SHARE = Limit("more than 0 and at most 1, as a run is trained on one GPU", lambda value: 0 < value <= 1)
ADDRESS = r"auto|local|[^\s/]+:\d+"  # of a Ray cluster


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
