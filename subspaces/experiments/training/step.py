"""The step of training, as fast as the device allows.

It is one function for a single network, for every subspace, for every other method, and for several runs at once: take
a batch, run the network at a fresh point, loss and penalty, backward, optimiser; a method's hooks say
what it does otherwise. On a CPU it runs as written. On a GPU,
batch, augmentation, forward, loss and their backward are compiled, and the whole step with the
optimiser is captured once as a CUDA graph, so that a step costs one launch and no Python.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, takewhile
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from subspaces.experiments.data import ResidentLoader, StackedLoader
from subspaces.experiments.methods import Backward, Hooks
from subspaces.experiments.training.batches import Stream
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe

GRAPH_SAFE = ("SGD", "Adam", "AdamW", "RMSprop")  # optimisers whose state may start as zeros
GRAPH_STEPS = 10  # steps in one graph: between two graphs the device waits some microseconds
GRAPH_WARMUP, WARMUP = 2, 3
COMPILED = 2**16  # versions of one function that the compiler may make: some for every engine
R = TypeVar("R")


def many_compiled() -> AbstractContextManager[None]:
    """Let torch.compile make a version of a function for each of many engines, counted over the whole process."""
    most: dict[str, Any] = {"recompile_limit": COMPILED, "accumulated_recompile_limit": COMPILED}
    patch: AbstractContextManager[None] = torch._dynamo.config.patch(most)
    return patch


class Moved(Protocol):
    """A run, or several whose tensors lie side by side."""

    recipe: Recipe
    execution: Execution
    device: torch.device
    stream: torch.cuda.Stream | None
    optimizer: torch.optim.Optimizer
    totals: Tensor
    hooks: Hooks[Any]
    several: bool

    @property
    def loader(self) -> ResidentLoader | StackedLoader | Stream: ...
    def objective(self, x: Tensor, y: Tensor) -> Tensor: ...
    def after_step(self) -> None: ...
    def live(self) -> dict[str, Tensor]: ...


class Step:
    """One step after the other, of a run or of several whose tensors lie side by side."""

    def __init__(self, moved: Moved) -> None:
        self.moved = moved
        self._take, self._objective = moved.loader.take, moved.objective
        self._update: Callable[[], Any] = moved.optimizer.step
        self._dim = 1 if moved.several else 0  # of the images in a batch
        self._groups: list[list[nn.Parameter]] = [group["params"] for group in moved.optimizer.param_groups]
        if moved.execution.compile:
            self._compile()
        resident = not isinstance(moved.loader, Stream)
        self._captures = bool(moved.execution.graph) and moved.recipe.optimizer in GRAPH_SAFE and resident
        self._at_once = GRAPH_STEPS if self._captures or moved.several else 1
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def _compile(self) -> None:
        options: dict[str, Any] | None = {"combo_kernels": True} if self.moved.device.type == "cuda" else None
        self._update = torch.compile(self.moved.optimizer.step, options=options)
        if not isinstance(self.moved.loader, Stream):  # apart from the objective, whose backward must not redo it
            self._take = torch.compile(self.moved.loader.take, dynamic=False, options=options)
        if self.moved.hooks.traced:
            self._objective = torch.compile(self.moved.objective, dynamic=False, options=options)

    def _steps(self, size: int, steps: int = 1) -> None:
        """Make so many steps with batches of one size, which are taken at once."""
        # The last batch of an epoch may be smaller; to compile the step for it alone would take longer than it saves.
        whole = size == self.moved.recipe.batch
        images, labels = (self._take if whole else self.moved.loader.take)(size * steps)
        objective = self._objective if whole else self.moved.objective
        for x, y in zip(images.split(size, self._dim), labels.split(size, self._dim), strict=True):
            renew = partial(self._backward, objective, x, y)
            self.moved.hooks.gradient(Backward(renew, self._groups, runs=self._dim))
            self._update()
            self.moved.after_step()

    def _backward(self, objective: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, counted: bool) -> None:
        """Renew the gradients; the totals count what a method's first pass has found."""
        before = None if counted else self.moved.totals.clone()
        for parameter in chain.from_iterable(self._groups):  # `zero_grad` also asks whether it is watched
            parameter.grad = None
        objective(x, y).backward()
        if before is not None:
            self.moved.totals.copy_(before)

    def advance(self, sizes: list[int], done: int) -> int:
        """Train on the next batch, or on several where they are one graph or several runs, and return on how many.

        `sizes` are those of the epoch's batches, `done` is how many are behind us. On a GPU this only
        queues the work.
        """
        size = sizes[done]
        steps = sum(1 for _ in takewhile(size.__eq__, sizes[done : done + self._at_once]))
        if steps < self._at_once and (self._captures or self.moved.execution.compile):
            steps = 1  # each number is a graph, or a program, of its own
        if not self._captures:
            self._steps(size, steps)
            return steps
        if (size, steps) not in self._graphs:
            self._graphs[size, steps] = self._capture(size, steps)
        self._graphs[size, steps].replay()
        return steps

    def _capture(self, size: int, steps: int) -> torch.cuda.CUDAGraph:
        """Record steps as a graph; what runs here to warm up leaves no trace."""
        moved = self.moved
        before = {key: value.clone() for key, value in moved.live().items()}
        generator = torch.cuda.get_rng_state(moved.device)

        def warm_up() -> None:
            for _ in range(WARMUP):
                moved.loader.position.zero_()
                self._steps(size, steps)
            moved.optimizer.zero_grad(set_to_none=True)

        record = partial(self._steps, size, steps)
        graph, _ = captured(record, moved.device, moved.stream, warm_up, kernels=0)  # the fastest of all
        with torch.no_grad():
            for key, value in moved.live().items():
                if key in before:
                    value.copy_(before[key])
                else:
                    value.zero_()  # state that the optimiser made in the meantime
        torch.cuda.set_rng_state(generator, moved.device)
        return graph


def captured(
    work: Callable[[], R],
    device: torch.device,
    stream: torch.cuda.Stream | None = None,
    warm_up: Callable[[], None] | None = None,
    kernels: int = 10,
) -> tuple[torch.cuda.CUDAGraph, R]:
    """Record work as a CUDA graph, which costs one launch from then on; return it and what the work returns.

    That is tensors, which a replay fills anew.

    Args:
        work: waits for nothing, and changes only tensors that stay where they are.
        device: where it runs.
        stream: on which it is recorded; by default on a new one.
        warm_up: runs before, so that nothing is made or measured for the first time while it is recorded; by default
            the work itself, twice.
        kernels: how many of its kernels cuDNN tries in that time; 0 for all.
    """
    stream = stream or torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    graph = torch.cuda.CUDAGraph()
    cudnn = torch.backends.cudnn
    kept = {"deterministic": cudnn.deterministic, "allow_tf32": cudnn.allow_tf32}
    with cudnn.flags(enabled=True, benchmark=True, benchmark_limit=kernels, **kept):
        with torch.cuda.stream(stream):
            for run in [work] * GRAPH_WARMUP if warm_up is None else [warm_up]:
                run()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            result = work()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph, result
