"""JPEG: what its quantisation does to an image, without the lossless coding that follows.

The arithmetic is libjpeg's: YCbCr with half the resolution in colour, 8 × 8 cosine transforms, the tables of the
standard's annex K scaled by the quality, and colour interpolated back.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from subspaces.evaluation.corruptions.draws import Draws
from subspaces.evaluation.corruptions.matrices import hat, product, rounded

LIGHT = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101  72 92 95 98 112 100 103 99
"""
COLOUR = """
17 18 24 47 99 99 99 99  18 21 26 66 99 99 99 99  24 26 56 99 99 99 99 99  47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99
"""


def jpeg_compression(images: Tensor, quality: int, draws: Draws) -> Tensor:
    """Encode and decode images [n, 3, H, W] as JPEG."""
    height, width = images.shape[-2:]
    red, green, blue = images.float().unbind(1)
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    colours = torch.stack([(blue - light) / 1.772, (red - light) / 1.402], 1) + 128
    light = _coded(_padded(rounded(light)[:, None], 8, 8), quality, LIGHT)[..., :height, :width].float()
    halves = _coded(_padded(_halved(_padded(rounded(colours), 2, 16)), 8, 8), quality, COLOUR)
    up, across = _doubled(height), _doubled(width)
    colours = rounded(product(halves[..., : up.shape[-1], : across.shape[-1]], up, across)).float() - 128
    blueness, redness = colours.split(1, 1)
    red, blue = light + 1.402 * redness, light + 1.772 * blueness
    return rounded(torch.cat([red, light - 0.344136 * blueness - 0.714136 * redness, blue], 1))


def _padded(images: Tensor, high: int, wide: int) -> Tensor:
    """Repeat the last row and column until there is a multiple of `high` and of `wide`."""
    rows, columns = (
        torch.arange(-(-side // multiple) * multiple, device=images.device).clamp_(max=side - 1)
        for side, multiple in zip(images.shape[-2:], (high, wide), strict=True)
    )
    return images[..., rows[:, None], columns]


def _halved(images: Tensor) -> Tensor:
    """Average squares of four pixels; halves are rounded up and down by turns, quarters as the nearest."""
    a, b, c, d = (images[..., i::2, j::2].short() for i in (0, 1) for j in (0, 1))
    bias = 1 + torch.arange(a.shape[-1], device=images.device, dtype=torch.int16) % 2
    return ((a + b + c + d + bias) >> 2).to(torch.uint8)


@lru_cache(maxsize=16)
def _doubled(side: int) -> Tensor:
    """Return the matrix [1, side, ⌈side/2⌉] that interpolates: three quarters of the nearest, one of the next."""
    half = (side + 1) // 2
    places = ((torch.arange(side, dtype=torch.float64) - 0.5) / 2).clamp(0, half - 1)
    return hat(places, half)[None]


def _coded(images: Tensor, quality: int, table: str) -> Tensor:
    """Return bytes [n, C, H, W] after cosine transform, quantisation and back; sides are multiples of 8."""
    n, channels, height, width = images.shape
    transform, steps = _transform().to(images.device), _steps(table, quality).to(images.device)
    blocks = images.view(n, channels, height // 8, 8, width // 8, 8).transpose(3, 4).reshape(-1, 64)
    found = torch.round((blocks.double() - 128) @ transform.mT * 8) / 8 / steps  # libjpeg's whole numbers are eighths
    kept = torch.floor(found.abs() + (0.5 + 1e-9)).copysign(found) * steps  # halves away from zero
    back = rounded(kept @ transform + 128)
    return back.view(n, channels, height // 8, width // 8, 8, 8).transpose(3, 4).reshape(n, channels, height, width)


@lru_cache(maxsize=1)
def _transform() -> Tensor:
    """Return the cosine transform of 8 × 8 pixels as one orthogonal matrix [64, 64]."""
    k = torch.arange(8, dtype=torch.float64)
    cosines = torch.cos(math.pi / 16 * k[:, None] * (2 * k + 1)) / 2
    cosines[0] /= math.sqrt(2)
    return torch.kron(cosines, cosines)


@lru_cache(maxsize=64)
def _steps(table: str, quality: int) -> Tensor:
    """Return a table [64] scaled by the quality."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return torch.tensor([min(max((int(step) * scale + 50) // 100, 1), 255) for step in table.split()]).double()
