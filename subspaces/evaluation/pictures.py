"""Images as bytes: read in large batches, or taken from the batches of a loader and put back."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.core import checks, nested
from subspaces.errors import ArgumentError
from subspaces.evaluation.tasks import Task
from subspaces.images.decoding import centre_view, decode
from subspaces.images.pixels import grey
from subspaces.images.splits import Files, Images

PIXELS = 2000 * 32 * 32  # of a batch on a GPU
LEAST = 250  # images in one, and on a CPU
SMALL = 64 * 64  # pixels of a picture: a page holds 48 of them
ROUNDING = 0.01  # by which numbers may leave [0, 1]: those of bfloat16 do


class Pictures(NamedTuple):
    """Images of a batch as bytes [n, C, H, W], and a function that puts other images in their place."""

    images: Tensor
    rebuild: Callable[[Tensor], Any]


class Scale:
    """Convert between bytes and normalised images, x = (bytes/255 - mean) / std, by default in [0, 1]."""

    def __init__(self, mean: Sequence[float] | None = None, std: Sequence[float] | None = None) -> None:
        self.mean = torch.tensor(list(mean or (0.0,))).view(-1, 1, 1)
        self.std = torch.tensor(list(std or (1.0,))).view(-1, 1, 1)

    def to_bytes(self, x: Tensor) -> Tensor:
        """Return images as bytes; raise if they are not normalised with these constants."""
        channels, sizes = x.shape[-3], {len(self.mean), len(self.std)}
        if not sizes <= {1, channels}:  # neither one for each channel nor one for all
            mean, std = (tuple(each.double().round(decimals=6).flatten().tolist()) for each in (self.mean, self.std))
            several = "" if channels == 1 else "s"
            raise ArgumentError(
                f"corruptions=…: mean={mean}, std={std}: the images have {channels} channel{several}; expected "
                f"{channels} number{several} in each, or one for all channels"
            )
        if x.dtype == torch.uint8:
            return x
        found = x.float() * self.std.to(x.device) + self.mean.to(x.device)
        low, high = torch.stack(found.aminmax()).tolist()
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):
            raise ArgumentError(
                f"corruptions=…: the images have values from {low:.3g} to {high:.3g}; expected uint8, or numbers from "
                "0 to 1: pass ss.Corruptions(mean=…, std=…) with the constants that your loader normalises with"
            )
        return (255 * found).round().clamp(0, 255).to(torch.uint8)

    def to_numbers(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        """Return bytes as normalised images of a dtype; uint8 stays as it is."""
        if dtype == torch.uint8:
            return images
        return ((images.float() / 255 - self.mean.to(images.device)) / self.std.to(images.device)).to(dtype)


def pictures_in(batch: Any, task: Task, scale: Scale) -> Pictures:
    """Return the first images among the inputs of a batch."""
    numbers = [
        each for each in nested.tensors(task.inputs(batch)) if each.dtype == torch.uint8 or each.is_floating_point()
    ]
    found = next((each for each in numbers if each.ndim == 4 and each.shape[1] in (1, 3)), None)
    if found is None:
        raise ArgumentError(
            f"corruptions=…: a batch is {checks.shown(type(batch).__name__)} without images; expected a tensor "
            "[n, 1 or 3, height, width] among its inputs, or loaders of your own: corruptions={'rain': {1: loader}}"
        )

    def rebuild(images: Tensor) -> Any:
        changed = scale.to_numbers(images, found.dtype)
        return nested.apply(lambda tensor: changed if tensor is found else tensor, batch)

    return Pictures(scale.to_bytes(found), rebuild)


def in_batches(
    images: Images, device: torch.device | str, workers: int | None = None, *, side: int, resize: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield images as bytes [n, C, H, W] and their labels, in their order, on a device.

    Those in memory stay as they are. Of files the shorter side is scaled to `resize` and the middle of `side` x `side`
    is taken, by so many threads, by default one per core.
    """
    if isinstance(images, Files):
        size, at_once = batch_size(side * side, device), min(os.cpu_count() or 1, 16) if workers is None else workers
        for first in range(0, len(images), size):
            paths = [images.path(index) for index in range(first, min(first + size, len(images)))]
            with ThreadPoolExecutor(max(1, at_once)) as pool:  # Pillow decodes outside the interpreter's lock
                pixels = np.stack(list(pool.map(lambda path: centre_view(decode(path), resize, side), paths)))
            x = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
            yield x.to(device), images.labels[first : first + size].to(device)
        return
    size = batch_size(max(images.images.shape[-2:].numel(), side * side), device)
    for first in range(0, len(images), size):
        part = slice(first, first + size)
        yield images.images[part].to(device), images.labels[part].to(device)


def fitted(images: Tensor, shape: Sequence[int]) -> Tensor:
    """Return bytes [n, C, H, W] as images of another shape: grey or in colour, and resized."""
    channels, height, width = shape
    if images.shape[1:] == (channels, height, width):
        return images
    x = images.float()
    if channels == 1 and images.shape[1] == 3:
        x = grey(x)
    if x.shape[-2:] != (height, width):
        x = F.interpolate(x, (height, width), mode="bilinear", antialias=True)
    return x.expand(-1, channels, -1, -1).round().clamp(0, 255).to(torch.uint8)


def batch_size(pixels: int, device: torch.device | str) -> int:
    """Return how many images a batch has."""
    return max(LEAST, PIXELS // pixels) if torch.device(device).type == "cuda" else LEAST


def small_pictures(images: Tensor) -> Tensor | None:
    """Return images as uint8 if they are small enough for a page; those of any numbers are stretched to 0 … 255."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.shape[-2] * images.shape[-1] > SMALL:
        return None
    if images.dtype == torch.uint8:
        return images.cpu()
    flat = images.detach().cpu().double().flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    stretched = 255 * (flat - low) / (high - low).clamp(min=1e-12)
    return stretched.round().to(torch.uint8).reshape(images.shape)
