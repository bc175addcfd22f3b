"""Noise: wrong pixel values, each for itself. Digital: light, contrast, saturation, shape and resolution."""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.evaluation.corruptions.matrices import Draws, box, cut, gaussian, hat, mirrored, product, rounded

CELLS = 2**9  # of the numbers between 0 and 1, for counts of photons
LIGHT = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101  72 92 95 98 112 100 103 99
"""
COLOUR = """
17 18 24 47 99 99 99 99  18 21 26 66 99 99 99 99  24 26 56 99 99 99 99 99  47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99
"""


# Noise


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


# Digital


def brightness(images: Tensor, more: float, draws: Draws) -> Tensor:
    """Raise the value of HSV: the largest channel, and the others in proportion."""
    x = images.float()
    value = x.amax(1, keepdim=True)
    raised = (value + 255 * more).clamp_(max=255)
    return cut(torch.where(value > 0, x * (raised / value.clamp(min=1)), raised))


def saturate(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Change the saturation of HSV, at equal value and hue; grey counts as red, whose hue is 0."""
    factor, summand = setting
    x = images.float()
    value = x.amax(1, keepdim=True)
    spread = value - x.amin(1, keepdim=True)
    saturation = spread / value.clamp(min=1)
    changed = (factor * saturation + summand).clamp_(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device)[:, None, None]
    away = torch.where(spread > 0, (value - x) / spread.clamp(min=1), red)  # how far below the value: 0 to 1
    return cut(value * (1 - changed * away))


def contrast(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Bring all pixels nearer to the mean of their channel."""
    mean = images.double().mean((2, 3), keepdim=True)
    return cut(mean + (images - mean) * share)


def pixelate(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Make the image smaller and large again, without smoothing."""
    height, width = images.shape[-2:]
    low, narrow = max(int(height * share), 1), max(int(width * share), 1)
    still = torch.eye(height, dtype=torch.float64)[None]
    small = rounded(product(images, still, box(width, narrow)))  # Pillow rounds after each direction
    small = rounded(product(small, box(height, low), torch.eye(narrow, dtype=torch.float64)[None]))
    rows, columns = (matrix.argmax(2)[0].to(images.device) for matrix in (box(low, height), box(narrow, width)))
    return small[..., rows[:, None], columns]


def elastic_transform(images: Tensor, setting: tuple[float, float, float], draws: Draws) -> Tensor:
    """Map three points near others, and the rest linearly; then displace pixels along a smooth random field."""
    height, width = images.shape[-2:]
    side = min(height, width)
    strength, sigma, corners = (side * value for value in setting)
    x = _sampled(images.float(), _affine(height, width, corners, draws), edges=False)
    if strength:
        noise = draws.uniform(2, height, width).double().mul_(2).sub_(1)
        blurs = (gaussian(length, sigma, mirrored, 3) for length in (height, width))
        x = _sampled(x, _pixels(height, width, noise.device) + strength * product(noise, *blurs), edges=True)
    return cut(x)


def _pixels(height: int, width: int, device: torch.device) -> Tensor:
    """Return the place of each pixel, (x, y) [2, H, W]."""
    rows, columns = (torch.arange(side, device=device, dtype=torch.float64) for side in (height, width))
    return torch.stack([columns.expand(height, -1), rows[:, None].expand(-1, width)])


def _affine(height: int, width: int, corners: float, draws: Draws) -> Tensor:
    """Return which place of the image each pixel shows, [n, 2, H, W], if three points are moved at random."""
    middle = torch.tensor([width // 2, height // 2], dtype=torch.float64)
    arm = max(min(height, width) // 3, 1)
    before = middle + arm * torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64)
    solved = torch.linalg.inv(torch.cat([before, torch.ones(3, 1, dtype=torch.float64)], 1)).to(draws.device)
    moved = (draws.uniform(3, 2).double() * 2 - 1) * corners + before.to(draws.device)
    forward = (solved @ moved).mT  # [n, 2, 3]: new place = A · place + t
    (a, b, tx), (c, d, ty) = (row.unbind(-1) for row in forward.unbind(1))
    determinant = a * d - b * c
    determinant = torch.where(determinant.abs() < 1e-3, determinant.sign() * 1e-3 + 1e-6, determinant)
    inverse = torch.stack([d, -b, -c, a], 1).view(-1, 2, 2) / determinant[:, None, None]
    places = _pixels(height, width, draws.device).flatten(1) - torch.stack([tx, ty], 1)[:, :, None]
    return (inverse @ places).view(-1, 2, height, width)


def _sampled(images: Tensor, places: Tensor, edges: bool) -> Tensor:
    """Interpolate linearly at places [n, 2, H, W], mirrored at the edges of the outermost pixels or at their middle."""
    size = torch.tensor(images.shape[:1:-1], device=places.device, dtype=torch.float64)[:, None, None]  # (W, H)
    scaled = (2 * places + 1) / size - 1 if edges else 2 * places / (size - 1).clamp(min=1) - 1
    grid = scaled.movedim(1, -1).to(images.dtype)
    return F.grid_sample(images, grid, "bilinear", "reflection", align_corners=not edges)


def jpeg_compression(images: Tensor, quality: int, draws: Draws) -> Tensor:
    """Do to images [n, 3, H, W] what JPEG's quantisation does, without the lossless coding that follows.

    The arithmetic is libjpeg's: YCbCr with half the resolution in colour, 8 × 8 cosine transforms, the tables of the
    standard's annex K scaled by the quality, and colour interpolated back.
    """
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
