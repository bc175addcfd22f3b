"""The loss of each example at any point of a family, which is not touched: one network is filled for all points."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, functional, geometry, nested
from subspaces.core.outputs import OutputCheck
from subspaces.core.selection.criteria import Criterion, Loss, classes_of
from subspaces.errors import ArgumentError

Rows = dict[str, Tensor]
"""The weights of a point, flat: [n] for each group."""


class Losses:
    """Measures points of a family on examples that are read once, with batch-norm statistics of each point's own."""

    def __init__(
        self,
        family: Any,
        loader: Iterable[Any],
        criterion: Criterion,
        statistics: Iterable[Any] | None,
        batches: int | None,
        seed: int,
    ) -> None:
        if family.mesh is not None:
            raise ArgumentError(
                "select got a distributed family, whose ranks would choose different points: save it, and choose in "
                "one process, ss.load(path, network).select(…)"
            )
        self.layout, self.shape, self.device, self.criterion = family.layout, family.shape, family.device, criterion
        self._omega = {group.name: family.omega[group.name].detach() for group in family.layout.groups}
        self._network = functional.copy_with(family.template, {}, share=True).eval()  # without weights
        self._batches = [batch for batch in loader if not nested.is_empty(batch)]
        sizes = [nested.batch_size(nested.inputs(batch)) or 0 for batch in self._batches]
        self.examples = sum(sizes)
        if self.examples < 1:
            raise ArgumentError("select got a loader without examples: expected at least one batch of them")
        self._places = torch.arange(self.examples).split_with_sizes(sizes)
        self._statistics, self._limit, self._seed = statistics, batches, seed
        if criterion.checked:
            self._check_outputs()

    @torch.no_grad()
    def _check_outputs(self) -> None:
        """Look at the outputs of one batch after the other until it is clear what they are."""
        check = OutputCheck(self.criterion.outputs)
        rows = self.rows(self.shape.midpoint().to(self.device, torch.float64))
        for batch in self._batches:
            moved = nested.moved(batch, self.device)
            self._target(moved)  # an unknown form is named as such
            found = classes_of(self._output(rows, self._network, moved))
            check(found, single=found.ndim == 1)
            if check.done:
                return

    def rows(self, alpha: Tensor) -> Rows:
        """Return the weights at alpha, or at one for each layer [L, ...], connected to it for autograd."""
        coefficients = self.shape.coefficients(alpha)
        with torch.autocast(self.device.type, enabled=False):
            if coefficients.ndim == 1:
                return {name: geometry.mix(coefficients, omega) for name, omega in self._omega.items()}
            found = {}
            for group in self.layout.groups:
                columns = self._omega[group.name].split_with_sizes(group.sizes, 1)
                pairs = zip(group.entries, columns, strict=True)
                found[group.name] = torch.cat([geometry.mix(coefficients[entry.layer], part) for entry, part in pairs])
            return found

    @torch.no_grad()
    def at(self, rows: Rows) -> Tensor:
        """Return the loss of each example at a point, float64 [n], with batch-norm statistics made for it."""
        if self._statistics is not None:
            run = partial(self._output, rows)
            batchnorm.renew(self._network, self._statistics, run, batches=self._limit, seed=self._seed)
        found = [self._run(rows, batch, self.criterion.loss) for batch in self._batches]
        return torch.cat([each.double().cpu() for each in found])

    def gradient(self, rows: Rows, among: Tensor) -> Rows:
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

    def _run(self, rows: Rows, batch: Any, loss: Loss) -> Tensor:
        """Return the loss of each example of a batch."""
        batch = nested.moved(batch, self.device)
        target = self._target(batch)
        losses: Any = loss(self._output(rows, self._network, batch), target)
        size = nested.batch_size(nested.inputs(batch))
        if not isinstance(losses, Tensor) or losses.shape != (size,):
            found = tuple(losses.shape) if isinstance(losses, Tensor) else checks.shown(losses)
            raise ArgumentError(
                f"by={self.criterion.name} returned {found} for a batch of {size}: expected a loss for each example, "
                f"a tensor of shape ({size},); take reduction='none'"
            )
        return losses

    def _target(self, batch: Any) -> Any:
        unread = "by='entropy', which needs no labels"
        return nested.target(batch, unread) if self.criterion.labelled else None

    def _output(self, rows: Rows, network: nn.Module, batch: Any) -> Any:
        """Return the output of the network with these weights for a batch."""
        args, named = nested.inputs(batch)
        weights: dict[str, Tensor] = {}
        for group in self.layout.groups:
            weights |= group.unpack(rows[group.name])
        return nested.run(network, args, named, lambda: functional.call(network, weights, args, named))
