"""Weather: snow, frost and fog in front of the picture."""

import torch
from torch import Tensor

from subspaces.evaluation.corruptions.blur import smeared
from subspaces.evaluation.corruptions.draws import Draws
from subspaces.evaluation.corruptions.matrices import cut, product, rounded, zoom
from subspaces.images.splits import grey


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
