"""ImageNet-style folders: ROOT/train/<class>/*.JPEG and ROOT/val/<class>/*.JPEG.

Listing a million files takes minutes on some disks, so the list is kept beside the folder and used
again while no class folder has changed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from subspaces.experiments.data.dataset import DataError, Dataset, Files
from subspaces.experiments.data.decoded import write_arrays
from subspaces.images import reading
from subspaces.images.splits import class_files, class_folders

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET = {"classes": 1000, "train": 1_281_167, "val": 50_000}


def find(root: Path) -> None:
    """Refuse a folder without train and val; nothing is listed."""
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise FileNotFoundError(
                f"imagenet: found no folder {part} in {root}: expected {root / part}/<class>/*.JPEG; "
                "`subspaces data get imagenet --data DIR` says where to register for the images"
            )


def load(root: Path) -> Dataset:
    """List the images of ROOT/train and ROOT/val; classes are the folders of train in sorted order."""
    find(root)
    classes = class_folders(root / "train")
    splits = {part: _files(root, part, classes) for part in ("train", "val")}
    return Dataset("imagenet", splits["train"], None, splits["val"], classes, MEAN, STD)


def _files(root: Path, part: str, classes: tuple[str, ...]) -> Files:
    folder = root / part
    own = class_folders(folder)
    if unknown := sorted(set(own) - set(classes)):
        raise DataError(f"{folder}: has the class {unknown[0]}, which {root / 'train'} has not")
    stamp = np.array([(folder / name).stat().st_mtime_ns for name in own])
    cache = root / f".subspaces-{part}.npz"
    stored = _read(cache, own, stamp)
    paths, counts = stored if stored is not None else class_files(folder, own)
    if stored is None:
        write_arrays(cache, names=np.array(own), stamp=stamp, paths=paths, counts=counts)
    numbers = {name: number for number, name in enumerate(classes)}
    labels = torch.from_numpy(np.repeat(np.array([numbers[name] for name in own], np.int64), counts))
    return Files(folder, paths, labels)


def _read(cache: Path, classes: tuple[str, ...], stamp: npt.NDArray[Any]) -> Any:
    """Return the kept list, or None if there is none or a class folder has changed since."""
    try:
        kept = reading.read_arrays(cache, {"names": "U", "stamp": "i", "paths": "S", "counts": "i"})
    except Exception:  # not there, or damaged in any way: it is written again
        return None
    paths, counts = kept["paths"], kept["counts"]
    same = kept["names"].tolist() == list(classes) and np.array_equal(kept["stamp"], stamp)
    fits = paths.ndim == 1 and counts.shape == (len(classes),) and counts.min() > 0 and counts.sum() == len(paths)
    return (paths, counts) if same and fits else None


def problems(root: Path) -> list[str]:
    """Return how the folders differ from ImageNet's, and the first image of each class that cannot be read."""
    from subspaces.images.decoding import decode

    data = load(root)
    found = []
    if len(data.classes) != IMAGENET["classes"]:
        found.append(f"{root / 'train'}: {len(data.classes):,} classes, ImageNet has {IMAGENET['classes']:,}")
    for part, files in (("train", data.train), ("val", data.test)):
        if not isinstance(files, Files):
            continue
        if len(files) != IMAGENET[part]:
            found.append(f"{root / part}: {len(files):,} images, ImageNet has {IMAGENET[part]:,}")
        firsts = np.unique(files.labels.numpy(), return_index=True)[1]
        for index in firsts:
            try:
                decode(files.path(int(index)))
            except DataError as error:
                found.append(str(error))
    return found
