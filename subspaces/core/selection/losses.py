"""The loss of each example at any point of a family, which is not touched: one network is filled for all points."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from subspaces.core import checks, functional, geometry, nested, norms, sharding
from subspaces.core.batchnorm import recalibrate
from subspaces.core.layout import Layout
from subspaces.core.randomness import seeded
from subspaces.core.selection.criteria import Criterion, Loss
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError

Rows = dict[str, Tensor]
"""The weights of a point, flat: [n] for each group."""


class Family(Protocol):
    """What of a family is needed to choose one of its points."""

    shape: Shape
    layout: Layout
    omega: nn.ParameterDict
    template: nn.Module

    @property
    def device(self) -> torch.device: ...


class Losses:
    """Measures points of a family on examples that are read once, with batch-norm statistics of each point's own."""

    def __init__(
        self,
        family: Family,
        loader: Iterable[Any],
        criterion: Criterion,
        statistics: Iterable[Any] | None,
        batches: int | None,
        seed: int,
    ) -> None:
        if sharding.mesh_of(family.omega.values()) is not None:
            raise ArgumentError(
                "select got a distributed family, whose ranks would choose different points: save it, and choose in "
                "one process, ss.load(path, network).select(…)"
            )
        self.layout, self.shape, self.device, self.criterion = family.layout, family.shape, family.device, criterion
        self._omega = {group.name: family.omega[group.name].detach() for group in family.layout.groups}
        self._network = functional.copy_with(
            family.template, {}, share=True
        ).eval()  # without weights, as in the family
        self._batches = [batch for batch in loader if not nested.is_empty(batch)]
        sizes = [nested.batch_size(nested.inputs(batch)) or 0 for batch in self._batches]
        self.examples = sum(sizes)
        self._places = torch.arange(self.examples).split_with_sizes(sizes) if sizes else ()
        self._statistics = statistics if norms.tracked(self._network) else None
        self._limit, self._seed = batches, seed

    def check(self) -> None:
        """Refuse a network whose outputs at the midpoint are not what the criterion takes them for."""
        if self.criterion.check is not None:
            with torch.no_grad():
                rows = self.rows(self.shape.coefficients(self.shape.midpoint().to(self.device, torch.float64)))
                self.criterion.check(self._outputs(rows))

    def _outputs(self, rows: Rows) -> Iterator[Any]:
        for batch in self._batches:
            moved = nested.moved(batch, self.device)
            self._target(moved)  # an unknown form is named as such
            yield self._output(rows, self._network, moved)

    def rows(self, coefficients: Tensor) -> Rows:
        """Return the weights at coefficients [m], or [L, m] for each layer, connected to these for autograd."""
        with torch.autocast(self.device.type, enabled=False):
            if coefficients.ndim == 1:
                return {name: geometry.mix(coefficients, omega) for name, omega in self._omega.items()}
            found = {}
            for group in self.layout.groups:
                columns = self._omega[group.name].split_with_sizes(group.sizes, 1)
                pairs = zip(group.entries, columns, strict=True)
                found[group.name] = torch.cat([geometry.mix(coefficients[entry.layer], part) for entry, part in pairs])
            return found

    def renew(self, rows: Rows) -> None:
        """Make the batch-norm statistics those of a point."""
        if self._statistics is None:
            return
        others = (part for part in self._network.modules() if not isinstance(part, _NormBase))
        kept = [(each, each.clone()) for part in others for each in part.buffers(recurse=False)]
        with _from_the_start(self._statistics), seeded(self._seed, self.device):
            run = partial(self._output, rows)
            recalibrate(self._network, self._statistics, batches=self._limit, forward=run, finite=False)
        for buffer, value in kept:  # which a pass in train mode may change too
            buffer.copy_(value)

    @torch.no_grad()
    def of(self, rows: Rows) -> Tensor:
        """Return the loss of each example, float64 [n], with the statistics that there are."""
        found = [self._run(rows, batch, self.criterion.loss) for batch in self._batches]
        return torch.cat([each.double().cpu() for each in found])

    def pull(self, rows: Rows, among: Tensor) -> Rows:
        """Return the gradient of the mean loss of some examples with respect to the weights."""
        leaves = {name: row.detach().requires_grad_() for name, row in rows.items()}
        share = torch.zeros(self.examples)
        share[among] = 1 / len(among)
        with torch.enable_grad():
            for batch, places in zip(self._batches, self._places, strict=True):
                if bool(share[places].any()):
                    losses = self._run(leaves, batch, self.criterion.slope)
                    if not losses.requires_grad:
                        raise ArgumentError(
                            f"by={self.criterion.name}: the loss has no gradient, which a search on this family "
                            "follows; expected one that has, such as 'nll'"
                        )
                    (losses * share[places].to(losses)).sum().backward()
        return {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}

    def _named(self, rows: Rows) -> dict[str, Tensor]:
        return {name: view for group in self.layout.groups for name, view in group.unpack(rows[group.name]).items()}

    def _run(self, rows: Rows, batch: Any, loss: Loss) -> Tensor:
        batch = nested.moved(batch, self.device)
        target = self._target(batch)
        output = self._output(rows, self._network, batch)
        return self._checked(loss(output, target), nested.batch_size(nested.inputs(batch)))

    def _target(self, batch: Any) -> Any:
        unread = "by='entropy', which needs no labels"
        return nested.target(batch, unread) if self.criterion.labelled else None

    def _output(self, rows: Rows, network: nn.Module, batch: Any) -> Any:
        """Return what the network with these weights says about a batch."""
        args, named = nested.inputs(batch)
        weights = self._named(rows)
        places = {name: weights[name] for name in self.layout.places}
        return nested.run(network, args, named, lambda: functional.call(network, places, args, named))

    def _checked(self, losses: Any, size: int | None) -> Tensor:
        if not isinstance(losses, Tensor) or losses.shape != (size,):
            found = tuple(losses.shape) if isinstance(losses, Tensor) else checks.shown(losses)
            raise ArgumentError(
                f"by={self.criterion.name} returned {found} for a batch of {size}: expected a loss for each example, "
                f"a tensor of shape ({size},); take reduction='none'"
            )
        return losses


@contextmanager
def _from_the_start(loader: Any) -> Iterator[None]:
    """Let every point have the same batches, and put the loader back to where it was."""
    generator = getattr(loader, "generator", None)
    if isinstance(generator, torch.Generator):
        state: Any = generator.get_state()
        restore: Callable[[Any], Any] = generator.set_state
    elif hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
        state, restore = copy.deepcopy(loader.state_dict()), loader.load_state_dict
    else:
        state, restore = None, lambda _: None
    try:
        yield
    finally:
        restore(state)
