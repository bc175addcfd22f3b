"""One run in training: its family, its data and its optimiser on one device, and all that it takes to continue."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from subspaces.core import distributed
from subspaces.core.distributed import distribute
from subspaces.core.family import Subspace
from subspaces.core.nested import Sampled
from subspaces.errors import ArgumentError
from subspaces.experiments import data
from subspaces.experiments.methods import Hooks
from subspaces.experiments.training.batches import Stream, training_batches
from subspaces.experiments.training.execution import ALONE, Execution, World
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.step import Step
from subspaces.networks import registry

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def cross_entropy(logits: Tensor, y: Tensor, smoothing: float | Tensor) -> Tensor:
    """Return (1 - s) CE(y) + s CE(uniform), the mean over a batch; s may be a tensor, which torch's own may not."""
    if not isinstance(smoothing, Tensor):
        return F.cross_entropy(logits, y, label_smoothing=smoothing)
    known = logits.log_softmax(1)
    return (1 - smoothing) * F.nll_loss(known, y) - smoothing * known.mean()


class Objective(nn.Module):
    """The loss of a family on a batch, with a method's penalties."""

    def __init__(self, family: Subspace, hooks: Hooks[Any], smoothing: float, low: bool) -> None:
        super().__init__()
        self.family = family
        self.hooks = hooks
        self.smoothing: float | Tensor = smoothing
        self.low = low
        self.weight = 1.0  # what this process's share of a batch counts in the mean over all processes

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and penalties, and [2]: the sum of the loss, and how many predictions are correct."""
        with torch.autocast(x.device.type, torch.bfloat16) if self.low else nullcontext():
            result = self.hooks.outputs(x)
        logits = (result.output if isinstance(result, Sampled) else result).float()
        loss = cross_entropy(logits, y, self.smoothing)
        correct = (logits.detach().argmax(1) == y).sum()
        found = torch.stack([loss.detach() * len(y), correct])
        if self.weight != 1:
            loss = loss * self.weight
        for penalty in self.hooks.penalties(result):
            loss = loss + penalty
        return loss, found


class Engine:
    """A family, its data and its optimiser on one device, and the `step` that moves them forward.

    `images` is the loader of another engine, to share them. Of several processes each has a part of the vertices.
    """

    def __init__(
        self,
        recipe: Recipe,
        dataset: data.Dataset,
        execution: Execution,
        images: data.ResidentLoader | Stream | None = None,
        world: World = ALONE,
    ) -> None:
        self.recipe, self.world, self.execution = recipe, world, execution
        self.device = torch.device(execution.device)
        self.family = build_family(recipe, dataset, execution).to(self.device)
        if not world.alone:
            distribute(self.family, world.mesh)
        self.loader = training_batches(recipe, dataset, execution, images, world.share())
        self.learning_rate: Any = recipe.learning_rate
        if self.device.type == "cuda" and world.alone:
            self.learning_rate = torch.tensor(recipe.learning_rate, device=self.device)
        self.optimizer = build_optimizer(
            [(recipe, list(self.family.parameters()), self.learning_rate)], fused=not execution.compile
        )
        self.rates = list(self.optimizer.param_groups)  # whose learning rate is that of this run
        self.hooks = recipe.definition.hooks(recipe.definition, self.family, recipe.epochs, recipe.seed)
        self.several = False
        self.loss = Objective(self.family, self.hooks, recipe.label_smoothing, execution.precision == "bfloat16")
        if execution.compile:  # as tensors they are not part of the program, which runs that differ in them share
            self.hooks.numbers = {name: self._tensor(value) for name, value in self.hooks.numbers.items()}
            self.loss.smoothing = self._tensor(recipe.label_smoothing)
        self.totals = torch.zeros(2, device=self.device)  # sum of the loss, correct predictions
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.family.cast_weights = recipe.network in registry.names()  # whose weights stay in their layers
        self._norms = [part for part in self.family.modules() if isinstance(part, _BatchNorm)]
        self.family.keep_statistics(known=False)  # none are kept from here on
        self._track(False)
        self.step = Step(self)
        if self.stream is not None:  # what was made here is there before a step reads it
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def _tensor(self, number: float) -> float | Tensor:
        """Return a number as a tensor; what is 0 may be left out of a step, and stays what it is."""
        return torch.tensor(float(number), device=self.device) if number else number

    def _track(self, wanted: bool) -> None:
        """Switch running statistics off and on: they belong to no point of a family, and training never reads them."""
        for norm in self._norms:
            norm.track_running_stats = wanted

    @contextmanager
    def tracking_statistics(self) -> Iterator[Subspace]:
        """Yield the family with batch norms that can be recalibrated."""
        self._track(True)
        try:
            yield self.family
        finally:
            self._track(False)

    def set_epoch(self, epoch: int) -> float:
        """Set the learning rate of an epoch and return it."""
        rate = self.recipe.rate(epoch)
        for group in self.rates:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        return rate

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return loss and penalties on a batch, and add loss and correct predictions to the totals."""
        if not self.world.alone:
            self.loss.weight = self.loader.weight
        loss, found = self.loss.forward(x, y)
        self.totals.add_(found)
        return loss

    def after_step(self) -> None:
        """Let the method take note of the weights that a step has made."""
        self.hooks.after_step()

    def _placed(self, value: Tensor, parameter: nn.Parameter) -> Tensor:
        """Return optimiser state as the optimiser would have made it: counts of steps on the CPU, the rest cut."""
        options = self.optimizer.param_groups[0]
        on_device = value.ndim > 0 or options.get("fused") or options.get("capturable")
        placed = value.to(self.device if on_device else "cpu").clone()
        return distributed.cut(placed, parameter) if value.shape == parameter.shape else placed

    def start_epoch(self) -> None:
        """Shuffle the images and forget the totals."""
        self.loader.start_epoch()
        self.totals.zero_()

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
        """Return what it takes to continue; of several processes the first has what is cut over them."""
        others = {"loader": self.loader.state_dict(), "kept": self.hooks.kept()}
        live = {name: distributed.collected(value, keep=self.world.first) for name, value in self.live().items()}
        live["totals"] = self.world.total(self.totals)
        return live | {f"{kind}.{name}": value for kind in others for name, value in others[kind].items()}

    def load(self, state: Mapping[str, Tensor], own_numbers: bool = False) -> None:
        """Continue from what `state()` returned earlier; with `own_numbers` all random numbers stay this run's own."""
        if not own_numbers:
            self.loader.load_state_dict({name: state[f"loader.{name}"] for name in self.loader.state_dict()})
        own = self.live()
        with torch.no_grad():
            for name, value in own.items():
                if own_numbers and name in ("family.rng", "position"):
                    continue
                if value.shape != state[name].shape:
                    raise ArgumentError(f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}")
                distributed.local(value).copy_(distributed.local(distributed.cut(state[name], value)))
        if not self.world.first:
            self.totals.zero_()  # those of all are the first one's
        self.hooks.load({key[5:]: value for key, value in state.items() if key.startswith("kept.")})
        parameters = list(self.family.parameters())
        for key, value in state.items():
            kind, _, rest = key.partition(".")
            if kind == "optimizer" and key not in own:
                index, _, name = rest.partition(".")
                parameter = parameters[int(index)]
                self.optimizer.state[parameter][name] = self._placed(value, parameter)


def build_family(recipe: Recipe, dataset: data.Dataset, execution: Execution) -> Subspace:
    """Return the family at its start, fixed by the recipe's seed."""

    def network() -> nn.Module:
        options: dict[str, Any] = {"classes": len(dataset.classes), "image_shape": dataset.image_shape}
        module = registry.build(recipe.network, dropout=recipe.dropout, **options)
        if execution.channels_last:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return recipe.definition.family(network, recipe.seed)


Share = tuple[Recipe, Sequence[nn.Parameter], Any]
"""A recipe, the parameters that are trained by it, and their learning rate: a number, or a tensor on the device."""


def build_optimizer(shares: Sequence[Share], fused: bool) -> torch.optim.Optimizer:
    """Return the optimiser that the recipes name, with those of their options that it takes."""
    kind = shares[0][0].optimizer_class()
    accepted = inspect.signature(kind).parameters
    groups = []
    for recipe, parameters, rate in shares:
        options: dict[str, Any] = {"lr": rate, "momentum": recipe.momentum, "weight_decay": recipe.weight_decay}
        if isinstance(rate, Tensor):
            # Both let a graph read the rate; compiled, one kernel for all weights is made anyway, and a better one.
            options |= {"capturable": True, "fused": fused and kind in FUSED}
        options = {name: value for name, value in options.items() if name in accepted}
        groups.append({"params": parameters, **options})
    make: Callable[..., torch.optim.Optimizer] = kind
    return make(groups, **options)
