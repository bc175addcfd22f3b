"""The rule that keeps a choice among points safe, and what the whole procedure gives on new examples.

With gains d_pi = loss(midpoint, i) - loss(p, i), the choice is the point whose gain is certain to be the largest,

    argmax_p  mean(d_p) - z se(d_p),        0 for the midpoint itself,

where z is so large that, if no point were better or worse than the midpoint, the bound would be above 0 anywhere with
a probability of at most `level`. It comes from the examples: the sign of each one's gains, at all points together, is
flipped at random many times, and z is the quantile of the largest mean(d_p) / se(d_p). So the search over many points
is allowed for, and points that are nearly the same count as one. Far points have noisier gains than near ones: with
few examples the bound shrinks the choice towards the midpoint.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from subspaces.core import randomness

TURNS = 999
"""How often the signs of the gains are flipped."""
_AT_ONCE = 4096
_FOLDS, _SIGNS = 0, 1  # parts of the stream of random numbers


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
