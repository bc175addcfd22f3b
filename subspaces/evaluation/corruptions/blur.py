"""Blur: out of focus, behind glass, moved or zoomed while the picture was taken."""

import warnings
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from subspaces.evaluation.corruptions.matrices import Draws, band, bell, blurred, cut, folded, product, rounded, zoom


def gaussian_blur(images: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Average with the weights of a Gaussian."""
    return cut(blurred(images, sigma))


def defocus_blur(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Average over a disk."""
    height, width = images.shape[-2:]
    return cut(product(images, *_disk(height, width, *setting)))


@lru_cache(maxsize=32)
def _disk(height: int, width: int, radius: float, sigma: float) -> tuple[Tensor, Tensor]:
    """Return a slightly blurred disk as matrices: it is symmetric, and so a sum of products of its eigenvectors."""
    reach = 8 if radius <= 8 else int(radius)
    around = torch.arange(-reach, reach + 1)
    disk = (around[:, None] ** 2 + around**2 <= radius**2).double()
    taps = bell(sigma, truncate=(1 if radius <= 8 else 2) / sigma)  # 3 or 5 of them
    soft = band(taps, len(around), folded)
    disk = soft @ (disk / disk.sum()) @ soft.mT
    values, vectors = torch.linalg.eigh(disk)
    kept = values.abs() > 1e-9
    pairs = [(value, vector.tolist()) for value, vector in zip(values[kept], vectors.mT[kept], strict=True)]
    rows = torch.stack([value * band(vector, height, folded) for value, vector in pairs])
    return rows, torch.stack([band(vector, width, folded) for _, vector in pairs])


def glass_blur(images: Tensor, setting: tuple[float, int, int], draws: Draws) -> Tensor:
    """Blur, let each pixel be replaced by one near it, and blur again."""
    sigma, reach, times = setting
    soft = cut(blurred(images, sigma)).flatten(2)  # [n, C, pixels]
    for _ in range(times):
        source = _replaced(images.shape[-2], images.shape[-1], reach, draws)
        soft = soft.gather(2, source[:, None].expand_as(soft))
    return cut(blurred(soft.view_as(images), sigma))


def _replaced(height: int, width: int, reach: int, draws: Draws) -> Tensor:
    """Return from which pixel each one comes, [n, pixels], if each is overwritten by one near it, from the last on.

    What lies behind a pixel was overwritten before. All chains are followed at once, twice as far at each step.
    """
    pixels = height * width
    row, column = torch.arange(height, device=draws.device)[:, None], torch.arange(width, device=draws.device)
    moved = (draws.uniform(2, height, width) * (2 * reach)).long() - reach
    inner = ((row > reach) & (row <= height - reach)) & ((column > reach) & (column <= width - reach))
    own = (row * width + column).expand(draws.count, -1, -1)
    target = torch.where(inner, (row + moved[:, 0]) * width + column + moved[:, 1], own)
    target = torch.where(inner & (target > own), target, target + pixels).flatten(1)  # + pixels: as it was before
    while bool((target < pixels).any()):
        target = torch.where(target < pixels, target.gather(1, target % pixels), target)
    return target - pixels


def motion_blur(images: Tensor, setting: tuple[int, float], draws: Draws) -> Tensor:
    """Smear along a line at an angle of at most 45 degrees."""
    degrees = draws.uniform().double().mul_(90).sub_(45)
    return rounded(smeared(images.float(), *setting, degrees))


def smeared(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Return images smeared to one side: weights of half a Gaussian over 2·radius + 1 pixels at an angle [n].

    Beyond the border is the outermost pixel.
    """
    height, width = images.shape[-2:]
    steps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = weights / weights.sum()
    angle = torch.deg2rad(degrees)
    rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
    flat = images.flatten(2)
    result = torch.zeros_like(flat)
    for step, weight in enumerate(weights.tolist()):
        if weight < 1e-5:  # less than a hundredth of a grey level
            continue
        down, right = (torch.ceil(step * part - 0.5).long()[:, None] for part in (angle.sin(), angle.cos()))
        row, column = (rows + down).clamp(0, height - 1), (columns + right).clamp(0, width - 1)  # [n, H], [n, W]
        place = (row[:, :, None] * width + column[:, None]).flatten(1)
        result.add_(flat.gather(2, place[:, None].expand_as(flat)), alpha=weight)
    return result.view_as(images)


def zoom_blur(images: Tensor, setting: tuple[float, float, float], draws: Draws) -> Tensor:
    """Average an image and enlargements of its middle."""
    height, width = images.shape[-2:]
    pixels = images.flatten(2).flatten(0, 1).mT.contiguous().double()  # [pixels, images]
    return cut(torch.sparse.mm(_zooms(height, width, setting, images.device), pixels).mT.reshape(images.shape))


@lru_cache(maxsize=5)
def _zooms(height: int, width: int, setting: tuple[float, float, float], device: torch.device) -> Tensor:
    """Return the mean of an image and its enlargements as a sparse matrix [pixels, pixels]."""
    factors = (1.0, *np.arange(*setting).tolist())  # the image itself once more
    indices, weights = [], []
    for vertical, horizontal in zip(zoom(height, factors), zoom(width, factors), strict=True):
        (row, above), (column, left) = (matrix.nonzero(as_tuple=True) for matrix in (vertical, horizontal))
        shown, taken = (a[:, None] * width + b for a, b in ((row, column), (above, left)))
        indices.append(torch.stack([shown.flatten(), taken.flatten()]))
        weights.append((vertical[row, above][:, None] * horizontal[column, left]).flatten() / len(factors))
    size = (height * width, height * width)
    with warnings.catch_warnings():  # torch 2.11 tells everyone, once, that there are checks which could be asked for
        warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)
        whole = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(weights), size, check_invariants=True)
        return whole.coalesce().to(device)
