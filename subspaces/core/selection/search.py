"""The points that are looked at: all of a grid, or those along a path that follows the gradient."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from subspaces.core.selection import rule
from subspaces.core.selection.losses import Losses, Rows

RATE = 0.1
"""Of Adam, in logits of alpha."""
MARKS = (0, 1, 2, 5)
"""Steps after which a path is looked at; then after every doubling."""


class Tried(NamedTuple):
    """A point, in a form that `family.at` takes, and the loss of each example there, [n]."""

    alpha: Any
    losses: Tensor


class Search(Protocol):
    """A procedure that chooses a point on some examples."""

    tried: list[Tried]
    """The points that were looked at on all examples."""
    middle: Tensor
    """The losses at the midpoint, [n]."""

    def choose(self, among: Tensor) -> Tried:
        """Return the choice on the examples of these indices."""
        ...


class Grid:
    """Points of a line or curve, all measured once: to choose is arithmetic."""

    def __init__(self, losses: Losses, points: int, level: float, seed: int) -> None:
        middle = float(losses.shape.midpoint())
        alphas = sorted({*(round(step / (points - 1), 9) for step in range(points)), middle})
        self.tried = [Tried(alpha, _measured(losses, alpha)) for alpha in alphas]
        self._level, self._seed, self._middle = level, seed, alphas.index(middle)
        self.middle = self.tried[self._middle].losses
        self._losses = torch.stack([each.losses for each in self.tried])

    def choose(self, among: Tensor) -> Tried:
        """Return the point that the rule takes."""
        return self.tried[rule.safest(self._losses[:, among], self._middle, self._level, self._seed)]


@torch.no_grad()
def _measured(losses: Losses, alpha: float) -> Tensor:
    return losses.at(losses.rows(torch.tensor(alpha, dtype=torch.float64, device=losses.device)))


class Path:
    """A path from the midpoint by Adam: alpha is the sigmoid or softmax of logits, one point for each layer or one.

    Each third of the examples is measured along a path that learns from the other two; on that the rule decides how
    far to go, and then a path learns from all for as many steps. The gradient of alpha is dc/dalpha^T Omega
    dloss/dtheta: vertices have none.
    """

    def __init__(self, losses: Losses, layerwise: bool, steps: int, level: float, seed: int) -> None:
        self._measure, self._layerwise, self._level, self._seed = losses, layerwise, level, seed
        marks = [*MARKS]
        while marks[-1] < steps:
            marks.append(2 * marks[-1])
        self._marks = [*(mark for mark in marks if mark < steps), steps]
        self.tried = list(self._walk(torch.arange(losses.examples), steps))
        self.middle = self.tried[0].losses

    def choose(self, among: Tensor) -> Tried:
        """Return the end of the path that learns from these examples."""
        if len(among) < 3:
            return self.tried[0]
        measured = torch.zeros(len(self._marks), self._measure.examples, dtype=torch.float64)
        thirds = rule.parts(among, 3, self._seed)
        for index, held in enumerate(thirds):
            others = torch.cat(thirds[:index] + thirds[index + 1 :])
            for mark, found in enumerate(self._walk(others, self._marks[-1])):
                measured[mark, held] = found.losses[held]
        chosen = rule.safest(measured[:, among], 0, self._level, self._seed)
        last = self.tried[chosen]
        if chosen and len(among) < self._measure.examples:
            *_, last = self._walk(among, self._marks[chosen])
        return last if bool(last.losses.isfinite().all()) else self.tried[0]

    def _walk(self, among: Tensor, steps: int) -> Iterator[Tried]:
        """Yield the points at the marks up to a step; statistics are made there, and kept in between."""
        logits = self._begin().requires_grad_()
        optimizer = torch.optim.Adam([logits], RATE)
        for step in range(steps + 1):
            rows = self._rows(logits)
            if step in self._marks:
                yield Tried(self._form(self._alpha(logits.detach())), self._measure.at(rows))
            if step < steps:
                optimizer.zero_grad()
                gradient = self._measure.gradient(rows, among)
                torch.autograd.backward(list(rows.values()), list(gradient.values()))
                optimizer.step()

    def _begin(self) -> Tensor:
        shape, layers = self._measure.shape, self._measure.layout.layers
        middle = shape.midpoint().to(self._measure.device, torch.float64)
        logits = middle.log() if shape.point else middle.logit()
        return logits.expand(len(layers), *shape.point).clone() if self._layerwise else logits

    def _alpha(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1) if self._measure.shape.point else logits.sigmoid()

    def _rows(self, logits: Tensor) -> Rows:
        with torch.enable_grad():
            return self._measure.rows(self._alpha(logits))

    def _form(self, alpha: Tensor) -> Any:
        found = alpha.tolist()
        return dict(zip(self._measure.layout.layers, found, strict=True)) if self._layerwise else found
