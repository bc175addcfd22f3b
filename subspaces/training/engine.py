"""One model in training: the step, as fast as the device allows.

The step is one function for a single network, for every subspace and for every other method: take a
batch, run the network at a fresh point, loss and penalty, backward, optimiser; a method's hooks say
what it does otherwise. On a CPU it runs as written. On a GPU,
batch, augmentation, forward, loss and their backward are compiled, and the whole step with the
optimiser is captured once as a CUDA graph, so that a step costs one launch and no Python.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from subspaces import data
from subspaces.features import Sampled
from subspaces.graphs import captured
from subspaces.memory import keep_memory
from subspaces.networks import registry
from subspaces.phases import phase
from subspaces.subspace import Subspace
from subspaces.training.batches import Stream, leave_trunk, training_batches
from subspaces.training.execution import Execution
from subspaces.training.recipe import Recipe

GRAPH_SAFE = ("SGD", "Adam", "AdamW", "RMSprop")  # optimisers whose state may start as zeros
FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
GRAPH_STEPS = 10  # steps in one graph: between two graphs the device waits some microseconds
WARMUP = 3
COMPILED = 2**16  # versions of one function that the compiler may make: some for every engine


class Engine:
    """A family, its data and its optimiser on one device, and the step that moves them forward.

    `images` is the loader of another engine with the same data on the same device, to share them in memory.
    """

    @phase("building")
    def __init__(
        self,
        recipe: Recipe,
        dataset: data.Dataset,
        execution: Execution,
        images: data.ResidentLoader | Stream | None = None,
    ) -> None:
        self.recipe = recipe
        self.execution = execution
        self.device = torch.device(execution.device)
        if self.device.type == "cpu":
            keep_memory()
        self.family = build_family(recipe, dataset, execution).to(self.device)
        self.loader = training_batches(recipe, dataset, execution, images)
        self.learning_rate: Any = recipe.learning_rate
        if self.device.type == "cuda":
            self.learning_rate = torch.tensor(recipe.learning_rate, device=self.device)
        self.optimizer = build_optimizer(recipe, self.family, self.learning_rate, fused=not execution.compile)
        self.hooks = recipe.definition.hooks(recipe.definition, self.family, recipe.epochs, recipe.seed)
        self.totals = torch.zeros(2, device=self.device)  # sum of the loss, correct predictions
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._take, self._objective = self.loader.take, self.objective
        self._update: Callable[[], Any] = self.optimizer.step
        if execution.compile:
            self._compile()
        self.family.cast_weights = recipe.network in registry.names()  # whose weights stay in their layers
        self._norms = [part for part in self.family.modules() if isinstance(part, _BatchNorm)]
        self.family.keep_statistics(known=False)  # none are kept from here on
        self._track(False)
        resident = isinstance(self.loader, data.ResidentLoader)
        self._captures = bool(execution.graph) and recipe.optimizer in GRAPH_SAFE and resident
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        if self.stream is not None:  # what was made here is there before a step reads it
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def _compile(self) -> None:
        limits = torch._dynamo.config  # counted over all engines of a process, of which there may be many
        limits.recompile_limit = max(COMPILED, limits.recompile_limit)
        limits.accumulated_recompile_limit = max(COMPILED, limits.accumulated_recompile_limit)
        options: dict[str, Any] | None = {"combo_kernels": True} if self.device.type == "cuda" else None
        self._update = torch.compile(self.optimizer.step, options=options)
        if isinstance(self.loader, data.ResidentLoader):  # apart from the objective, whose backward must not redo it
            self._take = torch.compile(self.loader.take, dynamic=False, options=options)
        if self.hooks.traced:
            self._objective = torch.compile(self.objective, dynamic=False, options=options)

    def _track(self, wanted: bool) -> None:
        """Switch running statistics off and on: they belong to no point of a family, and training never reads them."""
        for norm in self._norms:
            norm.track_running_stats = wanted

    @contextmanager
    def at_rest(self) -> Iterator[Subspace]:
        """Yield the family as a user knows it, with batch norms that can be recalibrated."""
        self._track(True)
        try:
            yield self.family
        finally:
            self._track(False)

    def set_epoch(self, epoch: int) -> float:
        """Set the learning rate of an epoch and return it."""
        rate = self.recipe.rate(epoch)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        return rate

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return loss and penalties on a batch, and add loss and correct predictions to the totals."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.execution.precision == "bfloat16"):
            result = self.hooks.outputs(x)
        logits = (result.output if isinstance(result, Sampled) else result).float()
        loss = F.cross_entropy(logits, y, label_smoothing=self.recipe.label_smoothing)
        correct = (logits.detach().argmax(1) == y).sum()
        self.totals.add_(torch.stack([loss.detach() * len(y), correct]))
        for penalty in self.hooks.penalties(result):
            loss = loss + penalty
        return loss

    def _steps(self, size: int, steps: int = 1) -> None:
        """Make so many steps with batches of one size, which are taken at once."""
        # The last batch of an epoch may be smaller; to compile the step for it alone would take longer than it saves.
        whole = size == self.recipe.batch
        images, labels = (self._take if whole else self.loader.take)(size * steps)
        objective = self._objective if whole else self.objective
        for x, y in zip(images.split(size), labels.split(size), strict=True):
            self.hooks.gradient(partial(self._backward, objective, x, y))
            self._update()
            self.hooks.after_step()

    def _backward(self, objective: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, counted: bool) -> None:
        """Renew the gradients; the totals count what a method's first pass has found."""
        before = None if counted else self.totals.clone()
        self.optimizer.zero_grad(set_to_none=True)
        objective(x, y).backward()
        if before is not None:
            self.totals.copy_(before)

    def advance(self, sizes: list[int], done: int) -> int:
        """Train on the next batch, or on several where they are one graph, and return on how many.

        `sizes` are those of the epoch's batches, `done` is how many are behind us. On a GPU this only
        queues the work.
        """
        size = sizes[done]
        if not self._captures:
            self._steps(size)
            return 1
        steps = GRAPH_STEPS if sizes[done : done + GRAPH_STEPS] == [size] * GRAPH_STEPS else 1
        if (size, steps) not in self._graphs:
            self._graphs[size, steps] = self._capture(size, steps)
        self._graphs[size, steps].replay()
        return steps

    @phase("capture")
    def _capture(self, size: int, steps: int) -> torch.cuda.CUDAGraph:
        """Record steps as a graph; what runs here to warm up leaves no trace."""
        before = {key: value.clone() for key, value in self.live().items()}
        generator = torch.cuda.get_rng_state(self.device)

        def warm_up() -> None:
            for _ in range(WARMUP):
                self.loader.position.zero_()
                self._steps(size, steps)
            self.optimizer.zero_grad(set_to_none=True)

        record = partial(self._steps, size, steps)
        graph, _ = captured(record, self.device, self.stream, warm_up, kernels=0)  # the fastest of all
        with torch.no_grad():
            for key, value in self.live().items():
                if key in before:
                    value.copy_(before[key])
                else:
                    value.zero_()  # state that the optimiser made in the meantime
        torch.cuda.set_rng_state(generator, self.device)
        return graph

    def _placed(self, value: Tensor) -> Tensor:
        """Return optimiser state where the optimiser would have made it: counts of steps stay on the CPU."""
        options = self.optimizer.param_groups[0]
        on_device = value.ndim > 0 or options.get("fused") or options.get("capturable")
        return value.to(self.device if on_device else "cpu").clone()

    def start_epoch(self) -> None:
        """Shuffle the images and forget the totals."""
        self.loader.start_epoch()
        self.totals.zero_()

    def branch(self) -> None:
        """Leave the trunk: from the next epoch on the images come in the order of the recipe's branch."""
        leave_trunk(self.loader, self.recipe)

    def live(self) -> dict[str, Tensor]:
        """Return every tensor that a step changes, by name; writing into them sets the state."""
        state = {f"family.{name}": value for name, value in self.family.state_dict().items()}
        for index, parameter in enumerate(self.family.parameters()):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    state[f"optimizer.{index}.{name}"] = value
        state |= {f"policy.{name}": value for name, value in self.hooks.live().items()}
        return state | {"totals": self.totals, "position": self.loader.position}

    def state(self) -> dict[str, Tensor]:
        """Return what it takes to continue: what a step changes, the order of the images, and what is kept."""
        others = {"loader": self.loader.state_dict(), "kept": self.hooks.kept()}
        return self.live() | {f"{kind}.{name}": value for kind in others for name, value in others[kind].items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state()` returned earlier."""
        self.loader.load_state_dict({name: state[f"loader.{name}"] for name in self.loader.state_dict()})
        own = self.live()
        with torch.no_grad():
            for name, value in own.items():
                if value.shape != state[name].shape:
                    raise ValueError(f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}")
                value.copy_(state[name])
        self.hooks.load({key[5:]: value for key, value in state.items() if key.startswith("kept.")})
        parameters = list(self.family.parameters())
        for key, value in state.items():
            kind, _, rest = key.partition(".")
            if kind == "optimizer" and key not in own:
                index, _, name = rest.partition(".")
                self.optimizer.state[parameters[int(index)]][name] = self._placed(value)


def spread(family: Subspace) -> Tensor:
    """Return the mean L2 distance and the mean cos^2 of two vertices, as a tensor on the device."""
    l2, cos2 = family.distances()
    m = len(l2)
    others = ~torch.eye(m, dtype=torch.bool, device=l2.device)
    return torch.stack([(value * others).sum() / max(1, m * (m - 1)) for value in (l2, cos2)]).float()


def build_family(recipe: Recipe, dataset: data.Dataset, execution: Execution) -> Subspace:
    """Return the family at its start, fixed by the recipe's seed."""

    def network() -> nn.Module:
        module = registry.build(
            recipe.network, classes=len(dataset.classes), image_shape=dataset.image_shape, dropout=recipe.dropout
        )
        if execution.channels_last:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return recipe.definition.family(network, recipe.seed)


def build_optimizer(recipe: Recipe, family: Subspace, learning_rate: Any, fused: bool) -> torch.optim.Optimizer:
    """Return the recipe's optimiser with those options that it takes."""
    kind = recipe.optimizer_class()
    accepted = inspect.signature(kind).parameters
    options: dict[str, Any] = {"momentum": recipe.momentum, "weight_decay": recipe.weight_decay}
    if isinstance(learning_rate, Tensor):
        # Both let a graph read the rate; compiled, one kernel for all weights is made anyway, and a better one.
        options |= {"capturable": True, "fused": fused and kind in FUSED}
    options = {name: value for name, value in options.items() if name in accepted}
    make: Callable[..., torch.optim.Optimizer] = kind
    return make(family.parameters(), lr=learning_rate, **options)
