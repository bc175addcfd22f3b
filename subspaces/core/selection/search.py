"""The points that are looked at: all of a grid, or those along a path that follows the gradient."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces.core.selection import rule
from subspaces.core.selection.losses import Losses

RATE = 0.1  # of Adam, in logits of alpha
MARKS = (0, 1, 2, 5)  # steps after which a path is looked at; then after every doubling


class Tried(NamedTuple):
    """A point, in a form that `family.at` takes, and the loss of each example there, [n]."""

    alpha: Any
    losses: Tensor


class Search(NamedTuple):
    """The points that were looked at on all examples, the losses at the midpoint, and what chooses on some of them."""

    tried: list[Tried]
    middle: Tensor
    choose: Callable[[Tensor], Tried]


@torch.no_grad()
def grid(losses: Losses, points: int, level: float, seed: int) -> Search:
    """Measure points of a line or curve, all of them once: to choose is arithmetic."""
    middle = float(losses.shape.midpoint())
    alphas = sorted({*(round(step / (points - 1), 9) for step in range(points)), middle})
    tensors = (torch.tensor(alpha, dtype=torch.float64, device=losses.device) for alpha in alphas)
    tried = [Tried(alpha, losses.at(losses.rows(each))) for alpha, each in zip(alphas, tensors, strict=True)]
    every, place = torch.stack([each.losses for each in tried]), alphas.index(middle)

    def choose(among: Tensor) -> Tried:
        return tried[rule.safest(every[:, among], place, level, seed)]

    return Search(tried, tried[place].losses, choose)


def path(losses: Losses, layerwise: bool, steps: int, level: float, seed: int) -> Search:
    """Follow the gradient from the midpoint by Adam.

    To choose, each third of the examples is measured along a path that learns from the other two; on that the rule
    decides how far to go, and then a path learns from all for as many steps.
    """
    marks = [*MARKS]
    while marks[-1] < steps:
        marks.append(2 * marks[-1])
    marks = [*(mark for mark in marks if mark < steps), steps]
    tried = list(_walk(losses, layerwise, marks, steps, torch.arange(losses.examples)))

    def choose(among: Tensor) -> Tried:
        if len(among) < 3:
            return tried[0]
        measured = torch.zeros(len(marks), losses.examples, dtype=torch.float64)
        thirds = rule.parts(among, 3, seed)
        for index, held in enumerate(thirds):
            others = torch.cat(thirds[:index] + thirds[index + 1 :])
            for mark, found in enumerate(_walk(losses, layerwise, marks, steps, others)):
                measured[mark, held] = found.losses[held]
        chosen = rule.safest(measured[:, among], 0, level, seed)
        last = tried[chosen]
        if chosen and len(among) < losses.examples:
            *_, last = _walk(losses, layerwise, marks, marks[chosen], among)
        return last if bool(last.losses.isfinite().all()) else tried[0]

    return Search(tried, tried[0].losses, choose)


def _walk(losses: Losses, layerwise: bool, marks: list[int], steps: int, among: Tensor) -> Iterator[Tried]:
    """Yield the points at the marks of a path that learns from some examples; statistics are made there alone.

    Alpha is the sigmoid or softmax of logits, one for the network or for each layer. Its gradient is
    dc/dalpha^T Omega dloss/dtheta: vertices have none.
    """
    shape, layers = losses.shape, losses.layout.layers
    logits = shape.midpoint().to(losses.device, torch.float64)
    logits = logits.log() if shape.point else logits.logit()
    logits = (logits.expand(len(layers), *shape.point).clone() if layerwise else logits).requires_grad_()
    optimizer = torch.optim.Adam([logits], RATE)
    for step in range(steps + 1):
        with torch.enable_grad():
            alpha = logits.softmax(-1) if shape.point else logits.sigmoid()
            rows = losses.rows(alpha)
        if step in marks:
            found = alpha.tolist()
            yield Tried(dict(zip(layers, found, strict=True)) if layerwise else found, losses.at(rows))
        if step < steps:
            optimizer.zero_grad()
            gradient = losses.gradient(rows, among)
            torch.autograd.backward(list(rows.values()), list(gradient.values()))
            optimizer.step()
