"""Image files and arrays as pixels: reading them safely, with errors that name the file, and fitting them to a model.

Image files are turned as their EXIF says and laid on white where they are transparent. Of what has another size, the
largest part in the middle that has the model's sides is scaled to its size; grey becomes three equal channels, colours
become grey by the weights of ITU-R 601. Arrays have the model's size and channels.
"""

import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from subspaces.errors import ArgumentError, DataError, MissingPackageError
from subspaces.images.splits import GREY

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]  # [H, W, C]
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")  # others may run programs
ARRAYS = (".npy",)
PIXELS = 10**8  # of one file: more is a mistake, or meant to fill the memory
DAMAGED = (ValueError, KeyError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What is raised for files of arrays that are damaged, encrypted or compressed in an unknown way."""


class UnreadableError(ArgumentError):
    """Why an input cannot be read, without its name."""


class Form(NamedTuple):
    """What a model takes."""

    channels: int
    height: int
    width: int
    resize: int = 0  # the length that the shorter side of a file is scaled to first; 0: just what is needed


# Image files


@contextmanager
def opened(path: Path) -> "Iterator[Image]":
    """Open an image file; what goes wrong with it names the file."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingPackageError("reading image files needs Pillow: install it with `pip install pillow`") from None
    Image.init()
    try:
        check_regular(path)
        with Image.open(path, formats=[name for name in FORMATS if name in Image.OPEN]) as image:
            _check_size(image.width, image.height)
            yield image
    except UnreadableError as error:
        raise DataError(f"{path}: {error}") from None
    except Image.DecompressionBombError as error:
        raise DataError(f"{path}: {error}: scale it down") from None
    except Exception as error:  # Pillow's decoders raise whatever their libraries do
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: cannot be opened ({error.strerror})") from None
        reason, size = "of no known format" if isinstance(error, UnidentifiedImageError) else error, path.stat().st_size
        raise DataError(f"{path}: {size:,} bytes that are not a whole image ({reason}): get it again") from None


def _check_size(width: int, height: int) -> None:
    if width * height > PIXELS:
        raise UnreadableError(f"{width:,} × {height:,} pixels, more than {PIXELS:,}: scale it down or cut it")


def decode(path: Path) -> "Image":
    """Return an image file as RGB; grey ones get three equal channels."""
    with opened(path) as image:
        return image.convert("RGB")


def centre_view(path: Path, resize: int, size: int) -> Pixels:
    """Return the centre size × size of an image file after its shorter side is scaled to `resize`."""
    with opened(path) as image:
        return _centre(image.convert("RGB"), resize, size)


def square(path: Path, size: int) -> Pixels:
    """Return the centre square of any image file, the way up that its camera noted, scaled to size × size.

    What is transparent is white, sixteen bits become eight, and of several frames the first one counts.
    """
    with opened(path) as image:
        return np.asarray(_middle(_prepared(image, (size, size)).convert("RGB"), size, size))


def read_image(path: Path, form: Form) -> Tensor:
    """Return an image file as a model takes it: where that is a square, as training on one's own images reads it."""
    channels, height, width, resize = form
    try:
        with warnings.catch_warnings(), opened(path) as image:
            warnings.simplefilter("ignore")  # of Pillow, for images nearly as large as the limit
            whole = _prepared(image, None if resize else (width, height))
            pixels = _centre(whole, resize, width) if resize else np.asarray(_middle(whole, width, height))
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


def part(image: "Image", box: Sequence[float], size: int) -> Pixels:
    """Return a part of an image, (left, top, width, height) as parts of its sides, scaled to size × size."""
    left, top, width, height = (one * side for one, side in zip(box, 2 * image.size, strict=True))
    corners = (left, top, min(left + width, image.width), min(top + height, image.height))
    return np.asarray(_scaled(image, size, size, corners))


def _prepared(image: "Image", least: tuple[int, int] | None = None) -> "Image":
    """Return an image of any mode as grey or RGB, upright, over white where it is transparent.

    A large JPEG may be decoded at a half, a quarter or an eighth, if both sides stay twice the least.
    """
    from PIL import Image, ImageOps

    if least is not None:
        image.draft("RGB", (2 * least[0], 2 * least[1]))
    image.load()  # of a damaged image only the first attempt fails, and later ones find nothing
    with suppress(Exception):  # notes that cannot be read
        image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise UnreadableError("its pixels are floating-point numbers of no known range: save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 0 … 65535, which `convert` would cut off at 255
        wide = np.asarray(image).clip(0, 65535).astype(np.int32)
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _middle(image: "Image", width: int, height: int) -> "Image":
    """Return the largest part in the middle of an image that has these proportions, scaled to this size."""
    if image.size == (width, height):
        return image
    across = min(image.width, image.height * width / height)
    down = min(image.height, image.width * height / width)
    left, top = (image.width - across) / 2, (image.height - down) / 2
    return _scaled(image, width, height, (left, top, left + across, top + down))


def _centre(image: "Image", resize: int, size: int) -> Pixels:
    short = min(image.width, image.height)
    width, height = resize * image.width // short, resize * image.height // short
    _check_size(width, height)  # of a long strip, scaled
    left, top = round((width - size) / 2), round((height - size) / 2)
    return np.asarray(_scaled(image, width, height).crop((left, top, left + size, top + size)))


def _scaled(image: "Image", width: int, height: int, box: tuple[float, float, float, float] | None = None) -> "Image":
    from PIL import Image

    return image.resize((width, height), Image.Resampling.BILINEAR, box=box)


# Files of arrays


def check_regular(path: Path) -> None:
    """Refuse a folder, a pipe or a device, which reading may wait for."""
    path.stat()  # which says if there is no such file
    if not path.is_file():
        raise UnreadableError("not a regular file")


def map_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file, mapped from it; writing to it leaves the file as it is."""
    check_regular(path)
    array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="c")
    return array


def array_images(path: Path, form: Form) -> Iterator[tuple[str, Callable[[], Tensor]]]:
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
