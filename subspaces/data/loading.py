"""Data sets by name, with what every experiment may ask of them: label noise and held-out images."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from subspaces.data import cifar10, digits, folders, mnist, noise, tiny_imagenet
from subspaces.data.dataset import DataError, Dataset
from subspaces.text import nearest

_READERS: dict[str, Callable[[Path], Dataset]] = {
    "digits": lambda _: digits.load(),
    "mnist": mnist.load,
    "cifar10": cifar10.load,
    "tiny-imagenet": tiny_imagenet.load,
    "imagenet": folders.load,
}
NAMES = tuple(_READERS)


class Size(NamedTuple):
    """What a recipe must fit to: how many training images, of which shape, in how many classes."""

    training: int
    image_shape: tuple[int, int, int]
    classes: int


SIZES = {  # of all but imagenet, which may be any folders
    "digits": Size(digits.TRAINING, (1, 8, 8), 10),
    "mnist": Size(mnist.TRAINING, (1, 28, 28), 10),
    "cifar10": Size(cifar10.RECORDS * (len(cifar10.BATCHES) - 1), (3, 32, 32), len(cifar10.CLASSES)),
    "tiny-imagenet": Size(tiny_imagenet.CLASSES * tiny_imagenet.PER_CLASS, (3, 64, 64), tiny_imagenet.CLASSES),
}
ROOT = "data"
"""Where the files are unless said otherwise."""


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    label_noise: float = 0.0,
    validation: int = 0,
    seed: int = 0,
) -> Dataset:
    """Read a data set from the publisher's files below `root`.

    Args:
        name: digits (which needs no root), mnist, cifar10, tiny-imagenet or imagenet.
        root: the folder of the files, as `subspaces data get NAME --data DIR` leaves them; by default `data`.
        label_noise: the fraction of training labels that is drawn at random; validation and test stay clean.
        validation: how many training images to hold out.
        seed: of the noise and the held-out images; whoever passes the same seed gets the same data.
    """
    folder = check_name_and_root(name, root)
    data = _READERS[name](folder)
    keep, out = noise.held_out(len(data.train), validation, seed)
    if validation:
        data = replace(data, train=data.train.select(keep), validation=data.train.select(out))
    labels = noise.noisy(data.train.labels, len(data.classes), label_noise, seed)
    return replace(data, train=data.train.relabelled(labels))


def size_of(name: str, root: str | os.PathLike[str] | None = None, *, count: bool = False) -> Size | None:
    """Return the size of a data set where it is known, or, to `count` them, where the files are there."""
    if name in SIZES or not count:
        return SIZES.get(name)
    try:
        folder = check_name_and_root(name, root)
        found = _READERS[name](folder)
    except (FileNotFoundError, DataError):  # which is said when they are needed
        return None
    return Size(len(found.train), found.image_shape, len(found.classes))


def check_name_and_root(name: str, root: str | os.PathLike[str] | None) -> Path:
    """Return the folder, or say why there is no such data set or folder."""
    if name not in _READERS:
        raise ValueError(f"no data set is called {name!r}: {nearest(str(name), NAMES)}")
    if name == "digits":
        return Path()
    folder = Path(ROOT if root is None else root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{name} needs its files, and {str(folder)!r} is not a folder: pass the one that has them, or fill one "
            f"with `subspaces data get {name} --data {folder}`"
        )
    return folder
