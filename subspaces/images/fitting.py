"""Image files and arrays as a model takes them: float32 [C, H, W] in [0, 1].

Image files are turned as their EXIF says and laid on white where they are transparent. Of what has another size, the
largest part in the middle that has the model's sides is scaled to its size; grey becomes three equal channels, colours
become grey by the weights of ITU-R 601. Arrays have the model's size and channels.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from subspaces.errors import DataError
from subspaces.images.decoding import DAMAGED, UnreadableError, centre_view, map_array, middle, opened, prepared
from subspaces.images.splits import GREY

ARRAYS = (".npy",)


class Form(NamedTuple):
    """What a model takes."""

    channels: int
    height: int
    width: int
    resize: int = 0  # the length that the shorter side of a file is scaled to first; 0: just what is needed


def read_image(path: Path, form: Form) -> Tensor:
    """Return an image file as a model takes it: where that is a square, as training on one's own images reads it."""
    channels, height, width, resize = form
    try:
        with warnings.catch_warnings(), opened(path) as image:
            warnings.simplefilter("ignore")  # of Pillow, for images nearly as large as the limit
            whole = prepared(image, None if resize else (width, height))
            pixels = centre_view(whole, resize, width) if resize else np.asarray(middle(whole, width, height))
    except DataError as error:
        raise UnreadableError(str(error).removeprefix(f"{path}: ")) from None
    numbers = pixels.astype(np.float32) / np.float32(255)
    if numbers.ndim == 3 and channels == 1:
        numbers = numbers @ np.array(GREY, np.float32)
    if numbers.ndim == 2:
        numbers = np.repeat(numbers[..., None], channels, axis=-1)
    if numbers.shape[2] != channels:
        raise UnreadableError(f"it has {numbers.shape[2]} channels, and the model takes {channels}")
    return torch.from_numpy(np.ascontiguousarray(numbers.transpose(2, 0, 1)))


def read_arrays(path: Path, form: Form) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Yield each image of an .npy file: its place there, and a function that reads it."""
    try:
        array = map_array(path)
    except DAMAGED as error:
        raise UnreadableError(f"not a whole array of numbers ({' '.join(str(error).split())})") from None
    channels, height, width, _ = form
    places: dict[tuple[int, ...], tuple[int, ...]] = {(height, width, channels): (2, 0, 1)}
    places |= {(height, width): (0, 1)} if channels == 1 else {}
    places |= {(channels, height, width): (0, 1, 2)}
    if array.shape[1:] not in places or (array.dtype != np.uint8 and array.dtype.kind != "f"):
        expected = f"uint8, or floats from 0 to 1, of shape [n, {channels}, {height}, {width}]"
        raise UnreadableError(f"an array of {array.dtype} {array.shape}: expected {expected} or with channels last")

    def row(index: int) -> Tensor:
        image = torch.from_numpy(array[index].astype(np.float32))
        image = image / 255 if array.dtype == np.uint8 else image
        if not (image.isfinite().all() and image.min() >= 0 and image.max() <= 1):
            raise UnreadableError("its floats are not all from 0 to 1: divide bytes by 255")
        return image.permute(places[array.shape[1:]]).reshape(channels, height, width)

    for index in range(len(array)):
        yield f"[{index}]", partial(row, index)
