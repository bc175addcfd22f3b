"""Image files in a folder for each class, as ImageNet, ImageNet-C and one's own images are published."""

import itertools
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from subspaces.errors import DataError
from subspaces.images.splits import Files
from subspaces.text import hint

SUFFIXES = (
    *(".jpeg", ".jpg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".jp2", ".avif", ".heic", ".heif"),  # Pillow does not read the last three: an error names them
)


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
    if twice := next((name for name, after in itertools.pairwise(found) if name == after), None):
        raise DataError(f"{folder}: several folders are called {twice!r}: rename them")
    return found


def image_files(folder: Path) -> list[str]:
    """Return the paths of the image files below a folder, sorted; hidden ones are passed over.

    Links are followed, to each folder once, but not to one that holds this one.
    """
    found, root = list[str](), Path(os.path.realpath(folder))
    seen = {str(each) for each in (root, *root.parents)}
    for place, inner, files in os.walk(folder, onerror=_fail, followlinks=True):
        targets = {os.path.realpath(os.path.join(place, name)): name for name in sorted(inner) if _shown(name)}
        inner[:] = [name for target, name in targets.items() if target not in seen]
        seen.update(targets)
        images = (name for name in files if _shown(name) and name.lower().endswith(SUFFIXES))
        found += (os.path.relpath(os.path.join(place, name), folder) for name in images)
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
            raise DataError(f"{folder / name}: holds no images, expected files that end in {', '.join(SUFFIXES)}")
        paths += (os.fsencode(f"{name}/{path}") for path in found)
        labels += [label] * len(found)
    return Files(folder, np.array(paths), torch.tensor(labels))


def _shown(name: str) -> bool:
    return not name.startswith(".") and name != "__MACOSX"


def _fail(error: OSError) -> None:
    raise error
