"""Image files to arrays, with Pillow."""

import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from subspaces.errors import ArgumentError, DataError, MissingPackageError
from subspaces.images.reading import open_regular

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]  # [H, W, C]
SCALE, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")  # others may run programs
PIXELS = 10**8  # of one file: more is taken for a mistake, or for a file that is made to fill the memory
SIDE = 65_535  # pixels of an image's longer side, as many as a JPEG may have
LARGE = 10**7  # pixels of an image that is decoded alone, since each takes up to 20 bytes
BYTES = 1 << 30  # of one file: an image with that many pixels has less
LONGEST = 100  # times the shorter side: of longer images the ends are cut off before they are scaled
NUMBERS = 4 * TRIES + 1  # that one random view of an image needs
_alone = threading.Lock()


class UnreadableError(ArgumentError):
    """Why an input cannot be read, without its name."""


def pillow() -> None:
    """Refuse to read images without Pillow."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingPackageError("reading image files needs Pillow: install it with `pip install pillow`") from None


def decode(path: Path) -> "Image":
    """Return an image file as RGB; grey ones get three equal channels."""
    with opened(path) as image:
        return image.convert("RGB")


def open_file(path: Path) -> BufferedReader:
    """Open a regular file that is not larger than an image can be."""
    file = open_regular(path)
    if (size := os.fstat(file.fileno()).st_size) > BYTES:
        file.close()
        raise DataError(f"{path}: {size:,} bytes, more than {BYTES:,}, which no image needs that is read here")
    return file


@contextmanager
def opened(path: Path) -> "Iterator[Image]":
    """Open an image file, and say which one it was where it cannot be opened or decoded."""
    pillow()
    from PIL import Image, UnidentifiedImageError

    try:
        file = open_file(path)
    except (FileNotFoundError, DataError):
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be opened ({why})") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        try:
            with Image.open(file, formats=_formats()) as image:
                check_size(image.width, image.height)
                with _alone if image.width * image.height > LARGE else nullcontext():
                    yield image
        except UnreadableError as error:
            raise DataError(f"{path}: {error}") from None
        except Image.DecompressionBombError as error:
            raise DataError(f"{path}: {error}: scale it down to at most {PIXELS:,} pixels") from None
        except Exception as error:  # Pillow's decoders raise whatever their libraries do
            reason = "of no known format" if isinstance(error, UnidentifiedImageError) else error
            raise DataError(f"{path}: {size:,} bytes that are not a whole image ({reason}): get it again") from None


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that are read, of those that this Pillow knows."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def check_size(width: int, height: int) -> None:
    """Refuse an image that is too large."""
    if width * height > PIXELS:
        raise UnreadableError(f"{width:,} × {height:,} pixels, more than {PIXELS:,}: scale it down")
    if max(width, height) > SIDE:
        raise UnreadableError(f"{width:,} × {height:,} pixels, more than {SIDE:,} on one side: scale it down or cut it")


def prepared(image: "Image", least: tuple[int, int] | None = None) -> "Image":
    """Return an image of any mode as grey or RGB, upright, over white where it is transparent.

    A large JPEG may be decoded at a half, a quarter or an eighth, if both sides stay twice the least.
    """
    from PIL import Image, ImageOps

    check_size(image.width, image.height)  # before anything is decoded
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


# Views


def square(path: Path, size: int) -> Pixels:
    """Return the centre square of any image file, the way up that its camera noted, scaled to size × size.

    What is transparent is white, sixteen bits become eight, and of several frames the first one counts.
    """
    with opened(path) as image:
        return np.asarray(middle(prepared(image, (size, size)).convert("RGB"), size, size))


def middle(image: "Image", width: int, height: int) -> "Image":
    """Return the largest part in the middle of an image that has these proportions, scaled to this size."""
    from PIL import Image

    if image.size == (width, height):
        return image
    across = min(image.width, image.height * width / height)
    down = min(image.height, image.width * height / width)
    left, top = (image.width - across) / 2, (image.height - down) / 2
    return image.resize((width, height), Image.Resampling.BILINEAR, box=(left, top, left + across, top + down))


def random_box(width: int, height: int, numbers: Sequence[float]) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) of a crop with area 8–100 % of the image and ratio 3/4–4/3.

    Area uniform, ratio uniform in its logarithm. A crop that does not fit is drawn again, ten times
    at most; then it is the largest centred one with an allowed ratio.
    """
    for attempt in range(TRIES):
        area, ratio, x, y = numbers[4 * attempt : 4 * attempt + 4]
        target = width * height * (SCALE[0] + (SCALE[1] - SCALE[0]) * area)
        aspect = math.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * ratio)
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(x * (width - w + 1)), int(y * (height - h + 1))
            return left, top, left + w, top + h
    aspect = min(max(width / height, RATIO[0]), RATIO[1])
    w, h = min(width, max(1, round(height * aspect))), min(height, max(1, round(width / aspect)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def random_view(image: "Image", numbers: Sequence[float], size: int, flip: bool) -> Pixels:
    """Return a random crop scaled to size × size, mirrored half the time if `flip`."""
    from PIL import Image

    box = random_box(image.width, image.height, numbers)
    pixels = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
    return pixels[:, ::-1] if flip and numbers[4 * TRIES] < 0.5 else pixels


def centre_view(image: "Image", resize: int, size: int) -> Pixels:
    """Return the centre size × size of the image after its shorter side is scaled to `resize`."""
    from PIL import Image

    short = min(image.width, image.height)
    if max(image.width, image.height) > LONGEST * short:  # scaled, its ends alone could fill the memory
        left, top = (max(side - LONGEST * short, 0) // 2 for side in image.size)
        image = image.crop((left, top, image.width - left, image.height - top))
    width, height = resize * image.width // short, resize * image.height // short
    scaled = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return np.asarray(scaled.crop((left, top, left + size, top + size)))
