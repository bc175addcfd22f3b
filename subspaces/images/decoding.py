"""Image files, with Pillow, and files of arrays: damaged and oversized ones are errors that name the file."""

import threading
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspaces.errors import ArgumentError, DataError, MissingPackageError

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]  # [H, W, C]
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000")  # others may run programs
PIXELS = 10**8  # of one file: more is a mistake, or meant to fill the memory
SIDE = 65_535  # pixels of an image's longer side, as many as a JPEG may have
LARGE = 10**7  # pixels of an image that is decoded alone, since each takes up to 20 bytes
UNPACKED = 1 << 32  # bytes of an .npz file; an .npy file is mapped
DAMAGED = (ValueError, KeyError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What is raised for files of arrays that are damaged, encrypted or compressed in an unknown way."""
_alone = threading.Lock()


class UnreadableError(ArgumentError):
    """Why an input cannot be read, without its name."""


@contextmanager
def opened(path: Path) -> "Iterator[Image]":
    """Open an image file; what goes wrong with it names the file."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingPackageError("reading image files needs Pillow: install it with `pip install pillow`") from None
    check_regular(path)
    try:
        with Image.open(path, formats=FORMATS) as image:
            check_size(image.width, image.height)
            with _alone if image.width * image.height > LARGE else nullcontext():
                yield image
    except UnreadableError as error:
        raise DataError(f"{path}: {error}") from None
    except Image.DecompressionBombError as error:
        raise DataError(f"{path}: {error}: scale it down") from None
    except Exception as error:  # Pillow's decoders raise whatever their libraries do
        reason, size = "of no known format" if isinstance(error, UnidentifiedImageError) else error, path.stat().st_size
        raise DataError(f"{path}: {size:,} bytes that are not a whole image ({reason}): get it again") from None


def check_size(width: int, height: int) -> None:
    """Refuse an image that is too large."""
    if width * height > PIXELS or max(width, height) > SIDE:
        limit = f"{PIXELS:,}" if width * height > PIXELS else f"{SIDE:,} on one side"
        raise UnreadableError(f"{width:,} × {height:,} pixels, more than {limit}: scale it down or cut it")


def decode(path: Path) -> "Image":
    """Return an image file as RGB; grey ones get three equal channels."""
    with opened(path) as image:
        return image.convert("RGB")


def prepared(image: "Image", least: tuple[int, int] | None = None) -> "Image":
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


def square(path: Path, size: int) -> Pixels:
    """Return the centre square of any image file, the way up that its camera noted, scaled to size × size.

    What is transparent is white, sixteen bits become eight, and of several frames the first one counts.
    """
    with opened(path) as image:
        return np.asarray(middle(prepared(image, (size, size)).convert("RGB"), size, size))


def middle(image: "Image", width: int, height: int) -> "Image":
    """Return the largest part in the middle of an image that has these proportions, scaled to this size."""
    if image.size == (width, height):
        return image
    across = min(image.width, image.height * width / height)
    down = min(image.height, image.width * height / width)
    left, top = (image.width - across) / 2, (image.height - down) / 2
    return _scaled(image, width, height, (left, top, left + across, top + down))


def part(image: "Image", box: Sequence[float], size: int) -> Pixels:
    """Return a part of an image, (left, top, width, height) as parts of its sides, scaled to size × size."""
    left, top, width, height = (one * side for one, side in zip(box, 2 * image.size, strict=True))
    corners = (left, top, min(left + width, image.width), min(top + height, image.height))
    return np.asarray(_scaled(image, size, size, corners))


def centre_view(image: "Image", resize: int, size: int) -> Pixels:
    """Return the centre size × size of the image after its shorter side is scaled to `resize`."""
    short = min(image.width, image.height)
    width, height = resize * image.width // short, resize * image.height // short
    check_size(width, height)  # of a long strip, scaled
    left, top = round((width - size) / 2), round((height - size) / 2)
    return np.asarray(_scaled(image, width, height).crop((left, top, left + size, top + size)))


def _scaled(image: "Image", width: int, height: int, box: tuple[float, float, float, float] | None = None) -> "Image":
    from PIL import Image

    return image.resize((width, height), Image.Resampling.BILINEAR, box=box)


def check_regular(path: Path) -> None:
    """Refuse a folder, a pipe or a device, which reading may wait for."""
    path.stat()  # which says if there is no such file
    if not path.is_file():
        raise DataError(f"{path}: not a regular file")


def map_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file, mapped from it; writing to it leaves the file as it is."""
    check_regular(path)
    array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="c")
    return array


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file; raise one of `DAMAGED` where it is none, or too large."""
    check_regular(path)
    with zipfile.ZipFile(path) as packed:
        if (size := sum(member.file_size for member in packed.infolist())) > UNPACKED:
            raise ValueError(f"{size:,} bytes, more than {UNPACKED:,}: save it as .npy")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
