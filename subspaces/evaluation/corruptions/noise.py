"""Noise: wrong pixel values, each for itself."""

from functools import lru_cache

import torch
from torch import Tensor

from subspaces.evaluation.corruptions.matrices import Draws, cut

CELLS = 2**9  # of the numbers between 0 and 1


def gaussian_noise(images: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Add normal numbers of standard deviation `sigma`."""
    return cut(draws.normal(*images.shape[1:]).mul_(255 * sigma).add_(images))


def speckle_noise(images: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Add normal numbers whose standard deviation is `sigma` times the pixel's value."""
    return cut(draws.normal(*images.shape[1:]).mul_(sigma).add_(1).mul_(images))


def impulse_noise(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Make a share of the values white or black, half of them each."""
    drawn = draws.uniform(*images.shape[1:])
    black = images.masked_fill(drawn < share, 0)
    return black.masked_fill_(drawn < share / 2, 255)


def shot_noise(images: Tensor, photons: int, draws: Draws) -> Tensor:
    """Count photons instead: a Poisson number of them, `photons` in the mean where a pixel is white."""
    thresholds, known, sure = (table.to(images.device) for table in _tables(photons))
    drawn = draws.uniform(*images.shape[1:]).double().add_(images)  # exact: 24 bits behind the point
    place = (drawn * CELLS).long()
    found, open_ = known[place], ~sure[place]
    found[open_] = _looked_up(thresholds, drawn[open_])
    return found


def _looked_up(thresholds: Tensor, drawn: Tensor) -> Tensor:
    """Return the byte that the first threshold above v + u stands for."""
    return (torch.searchsorted(thresholds, drawn, right=True, out_int32=True) & 255).to(torch.uint8)


@lru_cache(maxsize=16)
def _tables(photons: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return v + P(the byte of a pixel of value v is at most b) for all v and b, in rising order [65536].

    The first that is larger than v + u gives the byte to the uniform number u. Most cells between k/CELLS and
    (k+1)/CELLS are without a threshold: then also the byte, and that it is sure.
    """
    bytes_of = (torch.arange(photons + 1, dtype=torch.float64) / photons * 255).to(torch.uint8)
    most = torch.searchsorted(bytes_of, torch.arange(256, dtype=torch.uint8), right=True)  # photons + 1 at each byte
    values = torch.arange(256, dtype=torch.float64)[:, None]
    below: Tensor = torch.special.gammaincc(most.double().expand(256, -1), values / 255 * photons)
    below[:, -1] = 1
    thresholds = (below + values).flatten()
    edges = torch.arange(256 * CELLS + 1, dtype=torch.float64) / CELLS
    known = _looked_up(thresholds, edges[:-1])
    return thresholds, known, known == _looked_up(thresholds, edges[1:] - 2.0**-24)
