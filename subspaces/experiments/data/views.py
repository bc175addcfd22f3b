"""Random views of training images: crops with a border, parts of random size, and mirror images.

A view of random size has 8–100 % of the area and a ratio of its sides of 3/4–4/3, area uniform, ratio uniform in its
logarithm; a side that would be longer than the image's is cut to it.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.text import Catalogue

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class Augmentation(NamedTuple):
    """A way to change training images beside shifted crops and flips."""

    name: str
    meaning: str


PLAIN, RESIZED = "plain", "resized-crop"
AUGMENTATIONS = Catalogue(
    "augmentation",
    [
        Augmentation(PLAIN, "nothing beside pad and flip, but for ImageNet, whose files are always seen in such views"),
        Augmentation(RESIZED, "views of 8–100 % of an image, scaled to its size; in place of pad"),
    ],
)


def boxes(numbers: Tensor, shape: float = 1.0) -> Tensor:
    """Return [4, n] from uniform numbers [4, n]: left, top, width and height as parts of the image's sides.

    `shape` is the image's width divided by its height, where the ratio is to be that of the pixels.
    """
    area, ratio, x, y = numbers.unbind(0)
    target = SCALE[0] + (SCALE[1] - SCALE[0]) * area
    aspect = torch.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * ratio) / shape
    width, height = (target * aspect).sqrt().clamp(max=1), (target / aspect).sqrt().clamp(max=1)
    return torch.stack([x * (1 - width), y * (1 - height), width, height])


def mirrored(boxes: Tensor, flags: Tensor) -> Tensor:
    """Return boxes that are read from right to left where a flag is set."""
    left, top, width, height = boxes.unbind(0)
    return torch.stack([torch.where(flags, left + width, left), top, torch.where(flags, -width, width), height])


def views(images: Tensor, boxes: Tensor) -> Tensor:
    """Return these parts of uint8 [n, H, W, C], scaled back to the whole size: floats 0 … 255, [n, H, W, C]."""
    _, height, width, _ = images.shape
    left, top, wide, high = boxes[:, :, None].unbind(0)  # each [n, 1]
    columns = left + wide * _centres(width, boxes)
    rows = top + high * _centres(height, boxes)
    shape = (len(images), height, width)
    places = torch.stack([columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
    seen = F.grid_sample(
        images.permute(0, 3, 1, 2).to(boxes.dtype), 2 * places - 1, padding_mode="border", align_corners=False
    )
    return seen.permute(0, 2, 3, 1).contiguous()


def _centres(size: int, like: Tensor) -> Tensor:
    """Return where the centres of pixels lie, as parts of a side."""
    return (torch.arange(size, device=like.device, dtype=like.dtype) + 0.5) / size
