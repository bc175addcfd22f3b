"""The search behind `family.select`: the points that are looked at, and the rule that keeps the choice among them safe.

With gains d_pi = loss(midpoint, i) - loss(p, i), the choice is the point whose gain is certain to be the largest,

    argmax_p  mean(d_p) - z se(d_p),        0 for the midpoint itself,

where z is so large that, if no point were better or worse than the midpoint, the bound would be above 0 anywhere with
a probability of at most `level`. It comes from the examples: the sign of each one's gains, at all points together, is
flipped at random many times, and z is the quantile of the largest mean(d_p) / se(d_p). So the search over many points
is allowed for, and points that are nearly the same count as one. Far points have noisier gains than near ones: with
few examples the bound shrinks the choice towards the midpoint.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, functional, geometry, nested, randomness
from subspaces.errors import ArgumentError

TURNS = 999
"""How often the signs of the gains are flipped."""
_AT_ONCE = 4096
_FOLDS, _SIGNS = 0, 1  # parts of the stream of random numbers
RATE = 0.1  # of Adam, in logits of alpha
MARKS = (0, 1, 2, 5)  # steps after which a path is looked at; then after every doubling
Loss = Callable[[Any, Any], Tensor]
Rows = dict[str, Tensor]
"""The weights of a point, flat: [n] for each group."""


class Criterion(NamedTuple):
    """A loss for each example, [n], of outputs and targets."""

    name: str
    loss: Loss
    slope: Loss  # a loss with a gradient, which a search follows
    labelled: bool = True
    percent: bool = False  # 1 - loss is shown


class Tried(NamedTuple):
    """A point, in a form that `family.at` takes, and the loss of each example there, [n]."""

    alpha: Any
    losses: Tensor


Search = tuple[list[Tried], Tensor, Callable[[Tensor], Tried]]
"""The points that were looked at on all examples, the losses at the midpoint, and what chooses on some of them."""


@torch.no_grad()
def grid(losses: "Losses", points: int, level: float, seed: int) -> Search:
    """Measure points of a line or curve, all of them once: to choose is arithmetic."""
    middle = float(losses.shape.midpoint())
    alphas = sorted({*(round(step / (points - 1), 9) for step in range(points)), middle})
    tensors = (torch.tensor(alpha, dtype=torch.float64, device=losses.device) for alpha in alphas)
    tried = [Tried(alpha, losses.at(losses.rows(each))) for alpha, each in zip(alphas, tensors, strict=True)]
    every, place = torch.stack([each.losses for each in tried]), alphas.index(middle)

    def choose(among: Tensor) -> Tried:
        return tried[safest(every[:, among], place, level, seed)]

    return tried, tried[place].losses, choose


def path(losses: "Losses", layerwise: bool, steps: int, level: float, seed: int) -> Search:
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
        thirds = parts(among, 3, seed)
        for index, held in enumerate(thirds):
            others = torch.cat(thirds[:index] + thirds[index + 1 :])
            for mark, found in enumerate(_walk(losses, layerwise, marks, steps, others)):
                measured[mark, held] = found.losses[held]
        chosen = safest(measured[:, among], 0, level, seed)
        last = tried[chosen]
        if chosen and len(among) < losses.examples:
            *_, last = _walk(losses, layerwise, marks, marks[chosen], among)
        return last if bool(last.losses.isfinite().all()) else tried[0]

    return tried, tried[0].losses, choose


def _walk(losses: "Losses", layerwise: bool, marks: list[int], steps: int, among: Tensor) -> Iterator[Tried]:
    """Yield the points at the marks of a path that learns from some examples; statistics are made there alone.

    Alpha is the sigmoid or softmax of logits. Its gradient is dc/dalpha^T Omega dloss/dtheta: vertices have none.
    """
    shape = losses.shape
    logits = shape.midpoint().to(losses.device, torch.float64)
    logits = logits.log() if shape.point else logits.logit()
    logits = logits.expand(len(losses.layout.layers), *shape.point).clone() if layerwise else logits
    optimizer = torch.optim.Adam([logits.requires_grad_()], RATE)
    for step in range(steps + 1):
        with torch.enable_grad():
            alpha = logits.softmax(-1) if shape.point else logits.sigmoid()
            rows = losses.rows(alpha)
        if step in marks:
            yield Tried(alpha.tolist(), losses.at(rows))
        if step < steps:
            optimizer.zero_grad()
            gradient = losses.gradient(rows, among)
            torch.autograd.backward(list(rows.values()), list(gradient.values()))
            optimizer.step()


class Losses:
    """The losses of examples, which are read once, at any point of a family."""

    def __init__(
        self,
        family: Any,
        loader: Iterable[Any],
        criterion: Criterion,
        statistics: Iterable[Any] | None,
        batches: int | None,
        seed: int,
    ) -> None:
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
                            f"by={self.criterion.name}: the loss has no gradient, which the search follows; expected "
                            "one that has, such as 'nll'"
                        )
                    (losses * share[places].to(losses)).sum().backward()
        return {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}

    def _run(self, rows: Rows, batch: Any, loss: Loss) -> Tensor:
        """Return the loss of each example of a batch."""
        batch = nested.moved(batch, self.device)
        target = nested.target(batch, "by='entropy', which needs no labels") if self.criterion.labelled else None
        losses: Any = loss(self._output(rows, self._network, batch), target)
        size = nested.batch_size(nested.inputs(batch))
        if not isinstance(losses, Tensor) or losses.shape != (size,):
            found = tuple(losses.shape) if isinstance(losses, Tensor) else checks.shown(losses)
            raise ArgumentError(
                f"by={self.criterion.name} returned {found} for a batch of {size}: expected a loss for each example, "
                f"a tensor of shape ({size},); take reduction='none'"
            )
        return losses

    def _output(self, rows: Rows, network: nn.Module, batch: Any) -> Any:
        args, named = nested.inputs(batch)
        weights: dict[str, Tensor] = {}
        for group in self.layout.groups:
            weights |= group.unpack(rows[group.name])
        return nested.run(network, args, named, lambda: functional.call(network, weights, args, named))


# The rule


def safest(losses: Tensor, middle: int, level: float, seed: int) -> int:
    """Return the index of the point to take, of losses [points, n]; that of the midpoint unless a gain is certain."""
    finite = losses.isfinite().all(1)
    if losses.shape[1] < 2:
        return middle
    gains = torch.where(finite[:, None], losses[middle] - losses, 0).double()
    error = gains.std(-1) / math.sqrt(gains.shape[-1])
    bound = torch.where(finite, gains.mean(-1) - critical(gains, level, seed) * error, -math.inf)
    bound[middle] = 0
    best = int(bound.argmax())
    return best if bound[best] > 1e-12 else middle


def critical(gains: Tensor, level: float, seed: int) -> Tensor:
    """Return z: the quantile of the largest mean / error over points, [points, n], when signs are random."""
    n = gains.shape[1]
    state = randomness.stream(seed, "selection", _SIGNS)
    means = gains.new_zeros(TURNS, len(gains))
    for some in gains.split(_AT_ONCE, 1):
        signs = randomness.uniform(state, (TURNS, some.shape[1])).lt(0.5).to(gains.device)
        means += torch.where(signs, 1.0, -1.0).to(gains) @ some.T
    means /= n
    squares = gains.square().mean(1)  # no sign changes them
    errors = ((squares - means.square()).clamp_min(0) / (n - 1)).sqrt()
    ratios = torch.where(means > 0, means / errors, 0)  # [turns, points]
    place = min(math.ceil((1 - level) * (TURNS + 1)), TURNS) - 1
    return ratios.amax(1).sort().values[place]


def parts(among: Tensor, shares: int, seed: int) -> list[Tensor]:
    """Return some examples in so many random parts of about the same size."""
    mixed = among[randomness.permutation(randomness.stream(seed, "selection", _FOLDS), len(among))]
    return [mixed[start::shares] for start in range(shares)]


def cross_validated(procedure: Callable[[Tensor], Tensor], n: int, folds: int, seed: int) -> tuple[float, float]:
    """Return the gain of a whole procedure on examples that it has not seen, and its standard error.

    The procedure chooses on some examples and returns the gains [n] of its choice on all. Each example is in one fold,
    and counts for the choice that was made on the others. The folds' choices share most of their examples, which the
    error allows for: (1/k + 1/(k-1)) var, with the variance over folds (Nadeau and Bengio, 2003).
    """
    found = torch.zeros(n, dtype=torch.float64)
    everything, folded = torch.arange(n), parts(torch.arange(n), folds, seed)
    for held in folded:
        others = torch.ones(n, dtype=torch.bool)
        others[held] = False
        found[held] = procedure(everything[others]).double()[held]
    between = torch.stack([found[held].mean() for held in folded]).var()
    spread = torch.maximum(between, found.var() * folds / n)  # of the gain in a fold: choices differ, and examples
    return float(found.mean()), float((spread * (1 / folds + 1 / (folds - 1))).sqrt())
