"""Weather: snow, frost and fog in front of the picture, and drops of water or mud on the lens."""

import torch
from torch import Tensor

from subspaces.evaluation.corruptions.blur import smeared
from subspaces.evaluation.corruptions.matrices import (
    Border,
    Draws,
    blurred,
    cut,
    folded,
    nearest,
    product,
    rounded,
    zoom,
)
from subspaces.images.splits import grey

FARTHEST = 20  # pixels from an edge that still count
WATER, MUD = (175, 238, 238), (63, 42, 20)


def snow(images: Tensor, setting: tuple[float, float, float, float, int, float, float], draws: Draws) -> Tensor:
    """Let flakes fall in two opposite directions, and bleach the picture."""
    mean, sigma, factor, threshold, radius, smear, share = setting
    height, width = images.shape[-2:]
    small = draws.normal(1, height, width).mul_(sigma).add_(mean)
    flakes = product(small, zoom(height, (factor,)), zoom(width, (factor,)))
    flakes = cut(flakes.masked_fill_(flakes < threshold, 0) * 255)
    degrees = draws.uniform().double().mul_(90).sub_(135)
    layer = rounded(smeared(flakes.float(), radius, smear, degrees)).float()
    x = images.float()
    bleached = torch.maximum(x, grey(images) * 1.5 + 127.5)
    return cut(share * x + (1 - share) * bleached + layer + layer.flip(-2, -1))


def fog(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Add clouds of every size, and darken until the lightest pixel is as before."""
    weight, decay = setting
    height, width = images.shape[-2:]
    x = images.float()
    lightest = x.amax((1, 2, 3), keepdim=True)
    clouds = plasma(max(height, width), decay, draws)[:, None, :height, :width]
    return cut((x + 255 * weight * clouds) * lightest / (lightest + 255 * weight))


def plasma(side: int, decay: float, draws: Draws) -> Tensor:
    """Return clouds between 0 and 1 as float32 [n, s, s] for the power of two s ≥ side (diamond-square).

    Each pixel between others is their mean and a random number, whose size falls by decay² from one scale to the next.
    """
    size = max(2, 1 << (side - 1).bit_length())
    noise = draws.uniform(size, size).mul_(2).sub_(1)
    field = torch.zeros_like(noise)
    step, height = size, 100.0**2
    while step >= 2:
        half = step // 2
        corner, centre = (slice(0, size, step), slice(half, size, step))
        a = field[:, corner, corner]
        square = a + a.roll(-1, 1)
        square = square + square.roll(-1, 2)
        b = square / 4 + height * noise[:, centre, centre]
        right = (b + b.roll(1, 1) + a + a.roll(-1, 2)) / 4
        below = (b + b.roll(1, 2) + a + a.roll(-1, 1)) / 4
        field[:, centre, centre] = b
        field[:, corner, centre] = right + height * noise[:, corner, centre]
        field[:, centre, corner] = below + height * noise[:, centre, corner]
        step, height = half, height / decay**2
    field = field - field.amin((1, 2), keepdim=True)
    return field / field.amax((1, 2), keepdim=True)


def frost(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Mix the image with frost on the window."""
    weight, share = setting
    return cut(weight * images.float() + share * _ice(images.shape[-2], images.shape[-1], draws))


def _ice(height: int, width: int, draws: Draws) -> Tensor:
    """Return textures of ice, between 0 and 255, as float32 [n, 3, H, W].

    Needles grow from scattered seeds at angles of 60 degrees, thicker where a field of clouds is high; each image has
    its own angle and lightness.
    """
    side = max(height, width)
    length, angle = side // 16 + 2, draws.uniform().double().mul_(60)
    cover = plasma(side, 1.7, draws)[:, None, :height, :width]
    seeds = (draws.uniform(1, height, width) < 0.5 / length).float()
    seeds[..., [0, -1], :] = seeds[..., :, [0, -1]] = 0  # what lies beyond the border is like the border
    needles = torch.stack([smeared(seeds, length, 0.8 * length, angle + turn) for turn in range(0, 360, 60)]).amax(0)
    lightness = draws.uniform(1, 1, 1).mul_(120).add_(83)  # as dark and light photographs of frost have
    strongest = needles.amax((1, 2, 3), keepdim=True).clamp_(min=1e-6)
    ice = lightness + 70 * (cover - 0.5) + 120 * (0.3 + 0.7 * cover) * needles / strongest
    tint = torch.tensor([-18.0, 0.0, 11.0], device=ice.device)[:, None, None]  # bluish
    return (ice + tint).clamp_(0, 255)


# Spatter


def spatter(images: Tensor, setting: tuple[float, float, float, float, float, int], draws: Draws) -> Tensor:
    """Let a liquid cover where a smooth random field is high: water is light at its edges, mud hides what is behind."""
    mean, sigma, soft, threshold, last, mud = setting
    x = images.float()
    height, width = images.shape[-2:]
    liquid = blurred(draws.normal(height, width).mul_(sigma).add_(mean), soft)  # [n, H, W]
    if mud:
        share = blurred((liquid > threshold).double(), last)
        share = share.masked_fill(share < 0.8, 0).float()[:, None]
        return cut(x * (1 - share) + share * _colour(MUD, x))
    drops = cut(liquid.masked_fill(liquid < threshold, 0) * 255)
    film = drops.float() * _relief(drops).float()
    most = film.amax((1, 2), keepdim=True)
    film = last * film / torch.where(most > 0, most, 1)
    return cut(x + film[:, None] * _colour(WATER, x))


def _colour(values: tuple[int, int, int], like: Tensor) -> Tensor:
    return torch.tensor(values, device=like.device, dtype=like.dtype)[:, None, None]


def _relief(drops: Tensor) -> Tensor:
    """Return how much light drops catch, from the distance to their edges, as bytes [n, H, W]."""
    distance = _distance(edges(drops))
    levels = _equalised(_mean(distance).add_(1e-4).to(torch.int64))
    around = _around(levels.float(), folded)
    weights = (-2, -1, 0, -1, 1, 1, 0, 1, 2)
    lit = sum(weight * each for weight, each in zip(weights, around, strict=True) if weight)
    return torch.round(_mean(torch.as_tensor(lit).clamp(0, 255)))


def _around(images: Tensor, border: Border) -> list[Tensor]:
    """Return the nine images that have each pixel's neighbours, row by row, at its place."""
    height, width = images.shape[-2:]
    rows, columns = (border(torch.arange(-1, side + 1, device=images.device), side) for side in (height, width))
    padded = images[..., rows[:, None], columns]
    return [padded[..., i : i + height, j : j + width] for i in range(3) for j in range(3)]


def _mean(images: Tensor) -> Tensor:
    """Return the mean over 3 × 3 pixels."""
    return torch.stack(_around(images, folded)).sum(0) / 9


def edges(images: Tensor) -> Tensor:
    """Return where bytes [n, H, W] have edges (Canny, 1986): ridges of a gradient over 150, or over 50 beside such."""
    a, b, c, d, _, e, f, g, h = _around(images.float(), nearest)
    across, down = (c + 2 * e + h) - (a + 2 * d + f), (f + 2 * g + h) - (a + 2 * b + c)
    strength = across.abs() + down.abs()
    n, height, width = images.shape
    padded = torch.zeros(n, height + 2, width + 2, device=images.device)
    padded[:, 1:-1, 1:-1] = strength
    a, b, c, d, _, e, f, g, h = (padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3))
    flat, steep = down.abs() < 0.41421356 * across.abs(), down.abs() > 2.41421356 * across.abs()
    falling = torch.where(across * down < 0, torch.maximum(c, f), torch.maximum(a, h))
    ridge = torch.where(
        flat,
        (strength > d) & (strength >= e),
        torch.where(steep, (strength > b) & (strength >= g), strength > falling),
    )
    weak, found = ridge & (strength > 50), ridge & (strength > 150)
    while True:
        grown = weak & torch.stack(_around(found, nearest)).any(0)
        if torch.equal(grown, found):
            return found
        found = grown


def _distance(marked: Tensor) -> Tensor:
    """Return how far the nearest marked pixel is, at most `FARTHEST`, as float32 [n, H, W]."""
    squared = torch.where(marked, 0, FARTHEST**2).short()
    for axis in (1, 2):
        side = marked.shape[axis]
        best = squared.clone()
        for step in range(1, min(FARTHEST, side)):
            for there, here in ((slice(step, None), slice(None, -step)), (slice(None, -step), slice(step, None))):
                index = (slice(None),) * axis
                best[(*index, here)] = torch.minimum(best[(*index, here)], squared[(*index, there)] + step**2)
        squared = best
    return squared.clamp_(max=FARTHEST**2).float().sqrt_()


def _equalised(levels: Tensor) -> Tensor:
    """Return small whole numbers [n, H, W] spread over 0 to 255 so that all are about equally frequent."""
    flat = levels.flatten(1)
    counts = torch.zeros(len(flat), FARTHEST + 1, dtype=torch.int64, device=levels.device)
    counts.scatter_add_(1, flat, torch.ones_like(flat))
    total = counts.cumsum(1)
    lowest = counts.gather(1, (total > 0).int().argmax(1, keepdim=True))  # how many have the lowest level
    rest = flat.shape[1] - lowest
    table = torch.round(255 * (total - lowest).clamp(min=0).double() / rest.clamp(min=1))
    table = torch.where(rest > 0, table, torch.arange(FARTHEST + 1, device=levels.device).double())
    return table.gather(1, flat).view_as(levels)
