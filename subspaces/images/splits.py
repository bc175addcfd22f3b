"""Images with labels, in memory as bytes or as files in a folder for each class, and the numbers a network gets."""

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from subspaces.errors import ArgumentError, DataError
from subspaces.text import hint

SUFFIXES = (
    *(".jpeg", ".jpg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".jp2", ".avif", ".heic", ".heif"),  # Pillow may not read the last three: an error names them
)
GREY = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R 601


@dataclass(frozen=True, eq=False)
class Split:
    """Images uint8 [n, C, H, W], in memory or mapped from a file, and labels int64 [n]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, index: Tensor) -> "Split":
        """Return the images and labels at `index`, in that order."""
        return Split(self.images[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Files:
    """Image files too many to hold in memory: paths below `root`, bytes [n], and labels int64 [n]."""

    root: Path
    paths: npt.NDArray[Any]  # one block of memory, which worker processes share
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, index: Tensor) -> "Files":
        """Return the paths and labels at `index`, in that order."""
        return Files(self.root, self.paths[index.numpy()], self.labels[index])

    def path(self, index: int) -> Path:
        """Return where image `index` is."""
        return self.root / os.fsdecode(self.paths[index])


Images = Split | Files


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set; `mean` and `std` are per channel, of pixel values scaled to [0, 1].

    `validation` is what was held out of the training set, if anything was. A `test` set without
    public labels is replaced by the publisher's validation set.
    """

    name: str
    train: Images
    validation: Images | None
    test: Images
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image as a network gets it."""
        if isinstance(self.train, Files):
            return (3, 224, 224)
        channels, height, width = self.train.images.shape[1:]
        return (channels, height, width)


def check_label_values(labels: npt.NDArray[Any], classes: int, where: object) -> None:
    """Refuse labels outside 0 … classes − 1, naming the first one."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"{where}: image {wrong[0]} has the label {labels[wrong[0]]}, expected 0 to {classes - 1} "
            f"({len(wrong)} of {len(labels)} labels are wrong): the file was altered, get it again"
        )


# Folders of images


def plain(name: str) -> str:
    """Return a name as text that can be printed, the same on every system."""
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "replace"))


def folders_in(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted, without hidden ones."""
    with os.scandir(folder) as entries:
        return sorted((entry.name for entry in entries if _shown(entry.name) and os.path.isdir(entry.path)), key=plain)


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the classes that a folder has folders for, sorted."""
    found = tuple(map(plain, folders_in(folder)))
    if not found:
        raise DataError(f"{folder}: found no folders of images: expected one for each class")
    return found


def image_files(folder: Path) -> list[str]:
    """Return the paths of the image files below a folder, sorted; hidden ones are passed over.

    Links are followed, to each folder once, but not to one that holds this one.
    """
    found, root = list[str](), Path(os.path.realpath(folder))
    seen = {str(each) for each in (root, *root.parents)}
    for place, inner, files in os.walk(folder, onerror=_fail, followlinks=True):
        there, inner[:] = sorted(filter(_shown, inner), key=lambda name: (os.path.islink(f"{place}/{name}"), name)), []
        for name in there:
            if (target := os.path.realpath(os.path.join(place, name))) not in seen:
                seen.add(target)
                inner.append(name)
        below = "" if place == str(folder) else f"{os.path.relpath(place, folder)}/"
        found += (f"{below}{name}" for name in files if _shown(name) and name.lower().endswith(SUFFIXES))
    return sorted(found)


def labelled_files(folder: Path, classes: Sequence[str]) -> Files:
    """List the images of FOLDER/<class>/**, sorted by class and path; a label is the place of its class."""
    class_folders(folder)
    numbers, paths, labels = {name: label for label, name in enumerate(classes)}, list[bytes](), list[int]()
    for name in folders_in(folder):
        if (label := numbers.get(plain(name))) is None:
            raise DataError(
                f"{folder}: has a folder of the class {plain(name)!r}, which is not among the {len(classes):,} of "
                f"the data set{hint(plain(name), classes)}: rename or remove it"
            )
        found = image_files(folder / name)
        if not found:
            endings = ", ".join(SUFFIXES)
            raise DataError(f"{folder / name}: holds no images: put files there that end in {endings}, or remove it")
        paths += (os.fsencode(f"{name}/{path}") for path in found)
        labels += [label] * len(found)
    return Files(folder, np.array(paths), torch.tensor(labels))


def _shown(name: str) -> bool:
    return not name.startswith(".") and name != "__MACOSX"


def _fail(error: OSError) -> None:
    raise error


# The numbers that a network gets


def grey(images: Tensor) -> Tensor:
    """Return how light colours [n, 3, H, W] are, as float32 [n, 1, H, W]."""
    red, green, blue = images.float().unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]


class Normalise:
    """(x/255 − mean)/std as one multiply-add per pixel, from uint8 [n, H, W, C] to floats [n, C, H, W]."""

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if not mean or len(mean) != len(std) or min(std) <= 0:
            raise ArgumentError(f"mean={mean}, std={std}: expected one of each per channel, std above 0")
        wide_mean, wide_std = (torch.tensor(list(values), dtype=torch.float64) for values in (mean, std))
        self.scale = (1 / (255 * wide_std)).float().to(device)  # [C]
        self.shift = (-wide_mean / wide_std).float().to(device)  # [C]
        self.channels_last, self.dtype = channels_last, dtype

    def __call__(self, images: Tensor) -> Tensor:
        """Return the normalised images, channels-last in memory on request, else contiguous."""
        x = torch.addcmul(self.shift, images, self.scale).to(self.dtype).permute(0, 3, 1, 2)
        return x if self.channels_last else x.contiguous()
