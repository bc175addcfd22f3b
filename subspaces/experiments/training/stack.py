"""Runs of equal structure, trained as one program: their tensors lie side by side, and one kernel serves all.

Every tensor of a run that a step changes becomes a slice of one tensor for all of them, [k, …], which the run keeps as
its own: it is evaluated, saved and continued alone, and one that diverges does not disturb the others.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from subspaces.experiments.data import ResidentLoader, StackedLoader
from subspaces.experiments.methods import Hooks
from subspaces.experiments.training.engine import Engine, build_optimizer
from subspaces.experiments.training.recipe import COMMON, Recipe
from subspaces.experiments.training.step import GRAPH_SAFE, Step
from subspaces.networks import registry

OWN = {"name", "seed", "label_noise", "label_smoothing", "method"}  # fields in which runs of a stack may differ
Tensors = Mapping[str, Tensor]
OPTIONS = ("learning_rate", "momentum", "weight_decay", "schedule")  # these too: each kind of them has its own slices


def likeness(recipe: Recipe) -> tuple[Any, ...] | None:
    """Return what recipes must have in common to be trained as one program; None for one that is trained alone.

    Alone are methods that say so, networks from elsewhere, which may do anything, those with dropout, which draws from
    torch's own generator, and optimisers that look at more than one weight at a time.
    """
    method, hooks = recipe.definition, recipe.definition.hooks
    ours = recipe.network in registry.names()
    if not hooks.together or not ours or recipe.dropout or recipe.optimizer not in GRAPH_SAFE:
        return None
    common = {name: getattr(recipe, name) for name in COMMON if name not in {*OWN, *OPTIONS}}
    step = (hooks.outputs, hooks.penalties, hooks.gradient)
    if step == (Hooks.outputs, Hooks.penalties, Hooks.gradient):  # as all that differ between steps alone
        return (method.shape(), type(method).family, *common.items())
    numbers = {name: getattr(method, name) > 0 for name in hooks.varying}  # what is 0 may be left out of a step
    return (type(method), *step, *(common | method.own() | numbers).items())


class Stack:
    """Engines side by side, as one thing to be moved by a step."""

    several = True

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines = sorted(engines, key=_options)
        first = engines[0]
        self.recipe, self.execution, self.hooks = first.recipe, first.execution, first.hooks
        self.device, self.stream = first.device, first.stream
        self._wait()  # for what the engines did on streams of their own
        loaders = [engine.loader for engine in engines]
        self.loader = StackedLoader([loader for loader in loaders if isinstance(loader, ResidentLoader)])
        self.rng = torch.stack([engine.family.rng for engine in engines])
        self.totals = torch.stack([engine.totals for engine in engines])
        self.numbers = _numbers([engine.hooks.numbers for engine in engines], self.device)
        self.smoothing = _numbers([{"label_smoothing": one.recipe.label_smoothing} for one in engines], self.device)
        self.parts = [_Part(list(same)) for _, same in groupby(engines, _options)]
        self.optimizer = build_optimizer(
            [(part.recipe, list(part.omega.values()), part.rate) for part in self.parts],
            fused=not self.execution.compile,
        )
        for part, group in zip(self.parts, self.optimizer.param_groups, strict=True):
            part.bring_state(self.optimizer, group)
        for index, engine in enumerate(engines):
            engine.family.rng, engine.totals, engine.stream = self.rng[index], self.totals[index], self.stream
        step = Step(self)
        for engine in engines:
            engine.step = step
        self._wait()

    def _wait(self) -> None:
        if self.stream is not None:
            torch.cuda.synchronize(self.device)

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of all objectives, of which each has its own batch, weights and random numbers."""
        pieces: dict[str, list[Tensor]] = {
            name: [part.omega[name] for part in self.parts] for name in self.parts[0].omega
        }
        omega = {name: each[0] if len(each) == 1 else torch.cat(each) for name, each in pieces.items()}
        losses, found = torch.vmap(self._objective)(omega, self.rng, self.numbers, self.smoothing, x, y)
        self.totals.add_(found)
        return losses.sum()  # type: ignore[no-any-return]

    def _objective(
        self, omega: Tensors, rng: Tensor, numbers: Tensors, smoothing: Tensors, x: Tensor, y: Tensor
    ) -> Any:
        """Return what the first engine's objective is with the tensors of any of them."""
        loss = self.engines[0].loss
        own = loss.hooks.numbers, loss.smoothing
        loss.hooks.numbers = {**loss.hooks.numbers, **numbers}
        loss.smoothing = smoothing.get("label_smoothing", 0.0)
        try:
            return functional_call(loss, {**omega, "family.rng": rng}, (x, y))
        finally:
            loss.hooks.numbers, loss.smoothing = own

    def after_step(self) -> None:
        """Let every method take note of the weights that a step has made."""
        for part in self.parts:
            part.share_state(self.optimizer)
        for engine in self.engines:
            engine.after_step()

    def live(self) -> dict[str, Tensor]:
        """Return every tensor that a step changes, by name."""
        return {f"{i}.{name}": value for i, one in enumerate(self.engines) for name, value in one.live().items()}


class _Part:
    """Engines with the same options for their optimiser, and their vertices [k, m, n], which it moves at once."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self.recipe, self.rate = engines[0].recipe, engines[0].learning_rate
        self._shared = False
        self.omega: dict[str, nn.Parameter] = {}
        for name in dict(engines[0].loss.named_parameters()):
            own = [engine.loss.get_parameter(name) for engine in engines]
            self.omega[name] = nn.Parameter(torch.stack([each.detach() for each in own]))
            for index, each in enumerate(own):
                each.data = self.omega[name].detach()[index]

    def bring_state(self, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        """Give the optimiser what those of the engines know, and the engines its learning rate to set."""
        for name, omega in self.omega.items():
            states = [engine.optimizer.state.get(engine.loss.get_parameter(name), {}) for engine in self.engines]
            for key, value in states[0].items():
                if isinstance(value, Tensor):
                    values = [state[key] for state in states]
                    optimizer.state[omega][key] = torch.stack(values) if value.ndim else value.clone()
        for engine in self.engines:
            engine.rates = [*engine.rates, group]

    def share_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the engines' optimisers have what this one knows of their weights: once, as it is changed in place."""
        if self._shared:
            return
        self._shared = True
        for name, omega in self.omega.items():
            for index, engine in enumerate(self.engines):
                own = engine.optimizer.state[engine.loss.get_parameter(name)]
                for key, value in optimizer.state[omega].items():
                    own[key] = value[index] if isinstance(value, Tensor) and value.ndim else value


def _options(engine: Engine) -> tuple[Any, ...]:
    recipe = engine.recipe
    own = str(recipe.definition) if recipe.definition.schedule else ""  # its learning rate may depend on all its fields
    return (*(getattr(recipe, name) for name in OPTIONS), own)


def _numbers(runs: Sequence[Mapping[str, Any]], device: torch.device) -> dict[str, Tensor]:
    """Return numbers of runs, [k], whether they differ or not, so that a run computes in any company alike.

    What is 0 for all is left out: a step may do without it.
    """
    every = {name: [float(numbers[name]) for numbers in runs] for name in runs[0]}
    return {name: torch.tensor(values, device=device) for name, values in every.items() if any(values)}
