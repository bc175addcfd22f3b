"""TinyImageNet as its published folder, decoded once into arrays of bytes beside it.

train/<wnid>/images/*.JPEG (500 of each class), val/images with val_annotations.txt, wnids.txt and,
if it is there, words.txt with readable names. The published test labels are secret: val is the test.
"""

from pathlib import Path

import numpy as np
import torch

from subspaces.experiments.data import decoded
from subspaces.experiments.data.dataset import DataError, Dataset, Progress, Split, missing
from subspaces.images.decoding import Pixels, decode
from subspaces.images.reading import read_text

MEAN, STD = (0.480, 0.448, 0.397), (0.276, 0.269, 0.282)
CLASSES, PER_CLASS, VALIDATION = 200, 500, 10_000
FOLDER = "tiny-imagenet-200"
Listing = tuple[list[Path], list[int]]  # image files and their labels


def load(
    root: Path,
    classes: int = CLASSES,
    per_class: int = PER_CLASS,
    validation: int = VALIDATION,
    progress: Progress | None = None,
) -> Dataset:
    """Read TinyImageNet from `root` or `root`/tiny-imagenet-200; the first time takes a minute or two."""
    folder = find(root)
    wnids = sorted(read_text(folder / "wnids.txt").split())
    if len(set(wnids)) != classes:
        raise DataError(f"{folder / 'wnids.txt'}: {len(set(wnids))} classes, expected {classes}: get it again")
    train = _split(_train(folder, wnids, per_class), folder / "subspaces-train.npy", progress)
    test = _split(_validation(folder, wnids, validation), folder / "subspaces-val.npy", progress)
    return Dataset("tiny-imagenet", train, None, test, _names(folder, wnids), MEAN, STD)


def find(root: Path) -> Path:
    """Return the folder that holds train, val and wnids.txt."""
    needed = ["wnids.txt", "train", "val/images", "val/val_annotations.txt"]
    for folder in (root / FOLDER, root):
        there = [name for name in needed if (folder / name).exists()]
        if len(there) == len(needed):
            return folder
        if there:
            raise missing("tiny-imagenet", [name for name in needed if name not in there], [folder])
    raise missing("tiny-imagenet", needed, [root, root / FOLDER])


def _train(folder: Path, wnids: list[str], per_class: int) -> Listing:
    files: list[Path] = []
    for wnid in wnids:
        images = folder / "train" / wnid / "images"
        own = sorted(images.glob("*.JPEG")) if images.is_dir() else []
        if len(own) != per_class:
            raise DataError(f"{images}: expected {per_class} images, found {len(own)}: get and unpack it again")
        files += own
    return files, [label for label in range(len(wnids)) for _ in range(per_class)]


def _validation(folder: Path, wnids: list[str], count: int) -> Listing:
    source = folder / "val" / "val_annotations.txt"
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    files, labels = [], []
    for line, text in enumerate(read_text(source).splitlines(), 1):
        name, wnid, *_ = [*text.split("\t"), "", ""]
        if wnid not in numbers:
            raise DataError(f"{source}, line {line}: the label {wnid!r} is not in wnids.txt: the file was altered")
        files.append(folder / "val" / "images" / Path(name).name)
        labels.append(numbers[wnid])
    if len(files) != count:
        raise DataError(f"{source}: expected {count:,} lines, found {len(files):,}: the file was altered, get it again")
    return files, labels


def _names(folder: Path, wnids: list[str]) -> tuple[str, ...]:
    words = folder / "words.txt"
    lines = read_text(words).splitlines() if words.is_file() else []
    readable = {wnid: name for wnid, _, name in (line.partition("\t") for line in lines)}
    return tuple(readable.get(wnid) or wnid for wnid in wnids)


def _split(listing: Listing, cache: Path, progress: Progress | None) -> Split:
    """Return the images, mapped from the cache, which is made where it is missing or not whole."""
    files, labels = listing
    array = decoded.kept(cache, (len(files), 64, 64, 3))
    if array is None:
        array = decoded.build(files, cache, 64, _pixels, progress)
    return Split(torch.from_numpy(array).permute(0, 3, 1, 2), torch.tensor(labels, dtype=torch.int64))


def _pixels(file: Path) -> Pixels:
    image = decode(file)
    if image.size != (64, 64):
        raise DataError(f"{file}: {image.width} × {image.height} pixels, expected 64 × 64: the file was altered")
    return np.asarray(image)


def problems(root: Path) -> list[str]:
    """Return what is wrong with the folder; every image is decoded if that was not done before."""
    try:
        load(root)
    except DataError as error:
        return [str(error)]
    return []
