"""Noise: wrong pixel values, each for itself."""

from functools import lru_cache

import torch
from torch import Tensor

from subspaces.data.corruptions.draws import Draws
from subspaces.data.corruptions.matrices import cut


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
    table = _thresholds(photons).to(images.device)
    drawn = draws.uniform(*images.shape[1:]).double().add_(images)  # exact: 24 bits behind the point
    found = torch.searchsorted(table, drawn, right=True, out_int32=True)
    return (found & 255).to(torch.uint8)


@lru_cache(maxsize=16)
def _thresholds(photons: int) -> Tensor:
    """Return v + P(the byte of a pixel of value v is at most b) for all v and b, in rising order [65536].

    The first that is larger than v + u gives the byte to the uniform number u.
    """
    bytes_of = (torch.arange(photons + 1, dtype=torch.float64) / photons * 255).to(torch.uint8)
    most = torch.searchsorted(bytes_of, torch.arange(256, dtype=torch.uint8), right=True)  # photons + 1 at each byte
    values = torch.arange(256, dtype=torch.float64)[:, None]
    below: Tensor = torch.special.gammaincc(most.double().expand(256, -1), values / 255 * photons)
    below[:, -1] = 1
    return (below + values).flatten()
