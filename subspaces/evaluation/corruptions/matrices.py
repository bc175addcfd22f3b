"""What corruptions are made of: random numbers, bytes, and blurs and resizings as matrices.

An image X becomes Σₖ Rₖ X Cₖᵀ, whatever the border, in float64; and the random numbers of an image are its own: batches
of every size and all devices give the same bytes.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from subspaces.core.randomness import stream, uniform

Border = Callable[[Tensor, int], Tensor]  # the pixels that stand for places outside of an image, and its side

CALLS = 2**8  # of random numbers that one corruption may make
SLACK = 1e-3  # before numbers are cut off: a whole number may come out of the arithmetic a little below it


class Draws:
    """The random numbers of `count` images from number `first` on, of a seed and a `part`: corruption and severity.

    Each call has a stream of its own, in which image i has the same place in every batch.
    """

    def __init__(self, seed: int, part: int, first: int, count: int, device: torch.device) -> None:
        self.seed, self.part, self.first, self.count, self.device = seed, part, first, count, device
        self._calls = 0

    def uniform(self, *size: int) -> Tensor:
        """Return numbers uniform on [0, 1) of shape [n, *size]."""
        state = stream(self.seed, "corruptions", self.part * CALLS + self._calls).to(self.device)
        self._calls += 1
        state[1] = self.first * math.prod(size)
        return uniform(state, (self.count, *size))

    def normal(self, *size: int) -> Tensor:
        """Return normal numbers of shape [n, *size], two of every two uniform ones (Box & Muller, 1958)."""
        wanted = math.prod(size)
        pairs = (wanted + 1) // 2
        drawn = self.uniform(2, pairs)
        radius = (1 - drawn[:, 0]).log_().mul_(-2).sqrt_()  # [n, pairs]
        angle = drawn[:, 1].mul_(2 * math.pi)
        both = torch.cat([radius * angle.cos(), radius * angle.sin()], 1)
        return both[:, :wanted].reshape(self.count, *size)


def cut(values: Tensor) -> Tensor:
    """Return numbers between 0 and 255 as bytes, cut off as the published images are."""
    return values.clamp(0, 255).add_(SLACK).to(torch.uint8)


def rounded(values: Tensor) -> Tensor:
    """Return numbers between 0 and 255 as the nearest bytes, halves upwards."""
    return values.clamp(0, 255).add_(0.5 + 1e-6).to(torch.uint8)


def nearest(places: Tensor, side: int) -> Tensor:
    """Repeat the outermost pixel."""
    return places.clamp(0, side - 1)


def mirrored(places: Tensor, side: int) -> Tensor:
    """Mirror at the outer edge of the outermost pixel: c b a | a b c."""
    inside = places % (2 * side)
    return torch.minimum(inside, 2 * side - 1 - inside)


def folded(places: Tensor, side: int) -> Tensor:
    """Mirror at the middle of the outermost pixel: c b | a b c."""
    period = max(2 * side - 2, 1)
    inside = places % period
    return torch.minimum(inside, period - inside)


def band(taps: Sequence[float], side: int, border: Border) -> Tensor:
    """Return the matrix [side, side] that weighs the neighbours of each pixel with `taps`, the middle one its own."""
    around = torch.arange(len(taps)) - len(taps) // 2
    places = border(torch.arange(side)[:, None] + around, side)  # [side, taps]
    weights = torch.tensor(taps, dtype=torch.float64).expand(side, -1)
    return torch.zeros(side, side, dtype=torch.float64).scatter_add_(1, places, weights)


def bell(sigma: float, truncate: float = 4) -> list[float]:
    """Return the weights of a Gaussian up to `truncate` standard deviations."""
    radius = int(truncate * sigma + 0.5)
    values = [math.exp(-0.5 * (k / sigma) ** 2) if k else 1.0 for k in range(-radius, radius + 1)]
    return [value / sum(values) for value in values]


@lru_cache(maxsize=64)
def gaussian(side: int, sigma: float, border: Border = nearest, truncate: float = 4) -> Tensor:
    """Return a Gaussian blur as a matrix [1, side, side]."""
    return band(bell(sigma, truncate), side, border)[None]


@lru_cache(maxsize=64)
def zoom(side: int, factors: tuple[float, ...]) -> Tensor:
    """Return matrices [factors, side, side] that enlarge the middle of an image to all of it, linearly."""
    found = []
    for factor in factors:
        kept = math.ceil(side / factor)
        enlarged = round(kept * factor)
        trimmed = (enlarged - side) // 2
        step = (kept - 1) / max(enlarged - 1, 1)
        places = (side - kept) // 2 + (torch.arange(side, dtype=torch.float64) + trimmed) * step
        found.append(hat(places, side))
    return torch.stack(found)


def hat(places: Tensor, side: int) -> Tensor:
    """Return the matrix [places, side] that interpolates linearly between pixels."""
    return (1 - (places[:, None] - torch.arange(side)).abs()).clamp(min=0)


@lru_cache(maxsize=64)
def box(before: int, after: int) -> Tensor:
    """Return the matrix [1, after, before] of a resizing that averages the pixels under each new one."""
    scale = before / after
    middle = (torch.arange(after, dtype=torch.float64)[:, None] + 0.5) * scale
    reach = max(scale, 1) / 2
    first, end = ((middle + sign * reach + 0.5).floor() for sign in (-1, 1))
    places = torch.arange(before)
    weights = ((places >= first) & (places < end)).double()
    return (weights / weights.sum(1, keepdim=True))[None]


def product(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return Σₖ Rₖ X Cₖᵀ in float64 for images [..., H, W], rows [k, H', H] and columns [k, W', W]."""
    x = images.double()
    rows, columns = rows.to(x), columns.to(x)
    (k, height, _), width = rows.shape, columns.shape[1]
    tall = rows.flatten(0, 1) @ x  # [..., k·H', W]
    if k > 1:
        tall = tall.unflatten(-2, (k, height)).transpose(-3, -2).flatten(-2)  # [..., H', k·W]
    return tall @ columns.transpose(0, 1).reshape(width, -1).mT


def blurred(images: Tensor, sigma: float) -> Tensor:
    """Return images under a Gaussian blur that repeats the outermost pixels."""
    height, width = images.shape[-2:]
    return product(images, gaussian(height, sigma), gaussian(width, sigma))
