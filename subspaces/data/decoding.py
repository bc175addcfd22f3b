"""Image files to arrays, with Pillow."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from subspaces.data.dataset import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]  # [H, W, C]
SCALE, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
NUMBERS = 4 * TRIES + 1  # that one random view of an image needs


def decode(path: Path) -> "Image":
    """Return an image file as RGB; grey ones get three equal channels."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("reading image files needs Pillow: install it with `pip install pillow`") from None
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise
    except Exception as error:  # Pillow's decoders raise whatever their libraries do
        size = path.stat().st_size
        raise DataError(f"{path}: {size:,} bytes that are not a whole image ({error}): get it again") from None


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
    width, height = resize * image.width // short, resize * image.height // short
    scaled = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return np.asarray(scaled.crop((left, top, left + size, top + size)))
