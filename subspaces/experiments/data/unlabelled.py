"""Images of a folder that are of no known class: read as the user's own are, without files that cannot be read."""

import os
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from subspaces.experiments.data import decoded
from subspaces.experiments.data.dataset import DataError
from subspaces.experiments.data.own_images import name_broken, view_or_why
from subspaces.images import listing


def find(folder: Path) -> list[Path]:
    """Return all image files below a folder, or say that there are none."""
    found = listing.below(folder)
    if not found:
        raise DataError(f"{folder}: holds no images; expected files that end in {', '.join(listing.SUFFIXES)}")
    return found


def in_batches(folder: Path, paths: Sequence[Path], size: int, batch: int) -> Iterator[Tensor]:
    """Yield the centre squares of images, bytes [n, 3, size, size]; what cannot be read is named in the end."""
    broken: dict[Path, str] = {}
    view = partial(view_or_why, size=size, broken=broken)
    for first in range(0, len(paths), batch):
        some = paths[first : first + batch]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, of odd metadata
            pixels = decoded.build(some, None, size, view, None)
        good = np.array([path not in broken for path in some])
        if good.any():
            yield torch.from_numpy(pixels[good]).permute(0, 3, 1, 2)
    told = [listing.plain(broken[path].replace(f"{folder}{os.sep}", "")) for path in paths if path in broken]
    if len(told) == len(paths):
        raise DataError(f"{folder}: none of its {len(paths)} image files can be read: {told[0]}")
    name_broken(folder, len(paths), told)
