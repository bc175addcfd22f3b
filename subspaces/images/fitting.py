"""Image files and arrays of any kind as a model takes them: float32 [C, H, W] in [0, 1].

Image files are turned as their EXIF says and laid on white where they are transparent. Of what has another size, the
largest part in the middle that has the model's sides is scaled to its size; grey becomes three equal channels, colours
become grey by the weights of ITU-R 601.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from subspaces.errors import DataError
from subspaces.images import reading
from subspaces.images.decoding import UnreadableError, centre_view, check_size, middle, opened, pillow, prepared
from subspaces.images.pixels import GREY

if TYPE_CHECKING:
    from PIL.Image import Image

ARRAYS = (".npy", ".npz")
UNPACKED = 1 << 32  # bytes of a .npz file; a .npy file is read row by row
Floats = npt.NDArray[np.float32]


class Form(NamedTuple):
    """What a model takes."""

    channels: int
    height: int
    width: int
    resize: int = 0  # the length that the shorter side of a file is scaled to first; 0: just what is needed


def read_image(path: Path, form: Form) -> Tensor:
    """Return an image file as a model takes it: where that is a square, as training on one's own images reads it."""
    try:
        with warnings.catch_warnings(), opened(path) as image:
            warnings.simplefilter("ignore")  # of Pillow, for images nearly as large as the limit
            pixels = np.asarray(_fitted(prepared(image, None if form.resize else (form.width, form.height)), form))
    except DataError as error:
        raise UnreadableError(str(error).removeprefix(f"{path}: ")) from None
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return _tensor(_coloured(pixels.astype(np.float32) / np.float32(255), form.channels))


def read_arrays(path: Path, form: Form) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Yield each image of a .npy or .npz file: its place there, and a function that reads it."""
    try:
        if path.suffix.lower() == ".npy":
            named = {"": reading.map_array(path)}
        else:
            named = {f":{name}": array for name, array in reading.read_arrays(path, most=UNPACKED).items()}
    except (OSError, DataError, *reading.DAMAGED) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise UnreadableError(f"not a whole array of numbers ({' '.join(str(error).split())})") from None
    for name, array in named.items():
        row = _rows(array, form)
        for index in range(len(array)):
            yield f"{name}[{index}]", partial(row, index)


def _rows(array: npt.NDArray[Any], form: Form) -> Callable[[int], Tensor]:
    """Return a function from an index to the image there, after a look at what the array is."""
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise UnreadableError(f"an array of {array.dtype}: expected uint8, or floats from 0 to 1")
    if array.ndim not in (3, 4):
        raise UnreadableError(f"an array of shape {array.shape}: expected [n, H, W], [n, H, W, C] or [n, C, H, W]")
    first = array.ndim == 4 and _channels_first(array.shape, form)

    def row(index: int) -> Tensor:
        one = np.array(array[index])
        pixels = one[..., None] if one.ndim == 2 else one.transpose(1, 2, 0) if first else one
        if pixels.dtype == np.uint8:
            pixels = pixels.astype(np.float32) / 255
        elif not np.isfinite(pixels).all() or pixels.min(initial=0) < 0 or pixels.max(initial=1) > 1:
            raise UnreadableError("its floats are not all from 0 to 1: divide bytes by 255")
        return _tensor(_sized(_coloured(pixels.astype(np.float32), form.channels), form))

    return row


def _channels_first(shape: tuple[int, ...], form: Form) -> bool:
    """Return whether an array is [n, C, H, W] and not [n, H, W, C]."""
    first, last = shape[1] in (1, 3, 4), shape[3] in (1, 3, 4)
    if first and last:  # whichever is the model's own size
        first = shape[1:] == form[:3]
        last = not first and shape[1:] == (form.height, form.width, form.channels)
    if first == last:
        raise UnreadableError(f"an array of shape {shape}: which of its sides are channels? Expected 1, 3 or 4 of them")
    return first


def _coloured(pixels: Floats, channels: int) -> Floats:
    """Return [..., H, W, C] with so many channels."""
    found = pixels.shape[-1]
    if found == channels:
        return pixels
    if found == 4:
        alpha = pixels[..., 3:]
        return _coloured(pixels[..., :3] * alpha + (1 - alpha), channels)
    if found == 1:
        return np.repeat(pixels, channels, axis=-1)
    if channels == 1 and found == 3:
        return (pixels @ np.array(GREY, np.float32))[..., None]
    raise UnreadableError(f"it has {found} channels, and the model takes {channels}")


def _sized(pixels: Floats, form: Form) -> Floats:
    """Return floats [H, W, C] in the size of the model."""
    if pixels.shape[:2] == (form.height, form.width):
        return pixels
    if not pixels.size:
        raise UnreadableError("its images are empty")
    pillow()
    from PIL import Image

    check_size(pixels.shape[1], pixels.shape[0])
    parts = [_fitted(Image.fromarray(np.ascontiguousarray(part)), form) for part in pixels.transpose(2, 0, 1)]
    return np.stack([np.asarray(part) for part in parts], axis=-1).clip(0, 1)


def _fitted(image: "Image", form: Form) -> "Image":
    """Return the middle of an image in the size of the model."""
    from PIL import Image

    if not form.resize:
        return middle(image, form.width, form.height)
    short = min(image.size)
    check_size(form.resize * image.width // short, form.resize * image.height // short)  # of a long strip, scaled
    return Image.fromarray(centre_view(image, form.resize, form.width))


def _tensor(pixels: Floats) -> Tensor:
    """Return [H, W, C] as [C, H, W]."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
