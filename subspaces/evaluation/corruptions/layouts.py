"""The published files: CIFAR-10-C's arrays and ImageNet-C's folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from subspaces.core import checks
from subspaces.errors import DataError
from subspaces.evaluation.corruptions.catalogue import CORRUPTIONS, SEVERITIES
from subspaces.images.reading import map_array
from subspaces.images.splits import Files, Split, check_label_values, class_files, class_folders
from subspaces.text import hint, listed


def published(root: Path, name: str, severity: int, classes: Sequence[str]) -> Split | Files:
    """Read the published images of one corruption and severity.

    ROOT/<name>.npy with ROOT/labels.npy, five blocks by severity (CIFAR-10-C), is a `Split` in memory that is mapped
    from the file; ROOT/<name>/<severity>/<class>/*.JPEG (ImageNet-C), also below a folder of its group, is `Files`.

    Args:
        root: the folder that holds them.
        name: one of `CORRUPTIONS`.
        severity: 1 to 5.
        classes: of the data set, in the order of the labels; ImageNet-C's are the names of its folders.
    """
    root = checks.folder("root", root)
    corruption = CORRUPTIONS.find(name)
    severity = checks.whole("severity", severity, 1, 5)
    if (root / f"{name}.npy").is_file():
        return _arrays(root, name, severity, classes)
    for folder in (root / name, root / corruption.group / name):
        if folder.is_dir():
            return _folders(folder / str(severity), list(classes))
    there = names_in(root)
    held = f"it holds {listed(there)}" if there else "it holds no corruption at all"
    raise FileNotFoundError(
        f"{root}: found neither {name}.npy (CIFAR-10-C) nor {name}/{severity}/<class>/*.JPEG (ImageNet-C); {held}: "
        "pass the folder that the publisher's archive was unpacked to"
    )


def names_in(root: Path) -> list[str]:
    """Return which corruptions a published folder holds, in the order of the catalogue."""
    root = checks.folder("root", root)
    return [
        name
        for name, corruption in CORRUPTIONS.items()
        if (root / f"{name}.npy").is_file()
        or any((folder / name).is_dir() for folder in (root, root / corruption.group))
    ]


def _array(file: Path) -> npt.NDArray[Any]:
    """Map an array from its file."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: not found, expected beside the images: unpack the publisher's archive again")
    try:
        return map_array(file)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file}: cannot be read as an array ({error}): get it again") from error


def _arrays(root: Path, name: str, severity: int, classes: Sequence[str]) -> Split:
    file, labels_file = root / f"{name}.npy", root / "labels.npy"
    images, labels = _array(file), _array(labels_file)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise DataError(f"{file}: {images.dtype} {images.shape}, expected uint8 (images, height, width, 3)")
    if not len(images) or len(images) % len(SEVERITIES):
        raise DataError(f"{file}: {len(images):,} images, expected five blocks of as many, one for each severity")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise DataError(
            f"{labels_file}: {labels.dtype} {labels.shape}, expected whole numbers ({len(images)},), "
            f"one for each image of {file.name}"
        )
    check_label_values(labels, len(classes), labels_file)
    size = len(images) // len(SEVERITIES)
    block = slice((severity - 1) * size, severity * size)
    return Split(torch.from_numpy(images[block]).permute(0, 3, 1, 2), torch.from_numpy(labels[block].astype(np.int64)))


def _folders(folder: Path, classes: list[str]) -> Files:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: not found, expected {folder}/<class>/*.JPEG: unpack the archive again")
    own = class_folders(folder)
    if unknown := next((name for name in own if name not in classes), None):
        raise DataError(
            f"{folder / unknown}: the class {unknown!r} is not among the {len(classes):,} of the data set"
            f"{hint(unknown, classes)}: expected folders named like those of the training images"
        )
    places = {name: place for place, name in enumerate(classes)}
    paths, counts = class_files(folder, own)
    labels = np.repeat(np.array([places[name] for name in own], np.int64), counts)
    return Files(folder, paths, torch.from_numpy(labels))
