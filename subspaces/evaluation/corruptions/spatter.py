"""Spatter: drops of water or mud on the lens."""

import torch
from torch import Tensor

from subspaces.evaluation.corruptions.draws import Draws
from subspaces.evaluation.corruptions.matrices import Border, blurred, cut, folded, nearest

FARTHEST = 20  # pixels from an edge that still count
WATER, MUD = (175, 238, 238), (63, 42, 20)


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
