"""Data sets by name, with what every experiment may ask of them: label noise and held-out images."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from subspaces.errors import ArgumentError
from subspaces.experiments.data import (
    cifar10,
    contents,
    digits,
    folders,
    mnist,
    noise,
    own_images,
    tiny_imagenet,
)
from subspaces.experiments.data.dataset import DataError, Dataset, Progress
from subspaces.images import listing
from subspaces.text import nearest

_READERS: dict[str, Callable[[Path], Dataset]] = {
    "digits": lambda _: digits.load(),
    "mnist": mnist.load,
    "cifar10": cifar10.load,
    "tiny-imagenet": tiny_imagenet.load,
    "imagenet": folders.load,
    "folder": own_images.load,
}
NAMES = tuple(_READERS)


class Size(NamedTuple):
    """What a recipe must fit to: how many training images, of which shape, in how many classes."""

    training: int
    image_shape: tuple[int, int, int]
    classes: int


OWN = "folder"
"""The data set of the user's own images, which have no size and no number but those that are asked for and found."""
SIZES = {  # of all but imagenet and folder, which may be any
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
    image_size: int = 0,
    fingerprint: str = "",
    progress: Progress | None = None,
) -> Dataset:
    """Read a data set from the publisher's files below `root`, or your own images.

    Args:
        name: digits (which needs no root), mnist, cifar10, tiny-imagenet, imagenet, or folder: your own images.
        root: the folder of the files, as `subspaces data get NAME --data DIR` leaves them; by default `data`.
        label_noise: the fraction of training labels that is drawn at random; validation and test stay clean.
        validation: how many training images to hold out.
        seed: of the noise and the held-out images; whoever passes the same seed gets the same data.
        image_size: the side of your own images in pixels, to which they are scaled; by default 64.
        fingerprint: what your own images must be, as recipes note it; others are refused.
        progress: is told how many images are decoded, and of how many.
    """
    folder = check_name_and_root(name, root)
    side = checked_size(name, image_size, fingerprint)
    if name == OWN:
        data = own_images.load(folder, side, seed, fingerprint, progress)
    else:
        data = tiny_imagenet.load(folder, progress=progress) if name == "tiny-imagenet" else _READERS[name](folder)
    keep, out = noise.held_out(len(data.train), validation, seed)
    if validation:
        data = replace(data, train=data.train.select(keep), validation=data.train.select(out))
    return with_label_noise(data, label_noise, seed)


def with_label_noise(data: Dataset, fraction: float, seed: int) -> Dataset:
    """Return the same images with a fraction of the training labels drawn at random, as `load` does."""
    labels = noise.noisy(data.train.labels, len(data.classes), fraction, seed)
    return replace(data, train=replace(data.train, labels=labels))


def checked_size(name: str, image_size: int, fingerprint: str = "") -> int:
    """Return the side of the user's own images, 0 for other data sets; refuse what they cannot have."""
    if name != OWN:
        for field, value in (("image_size", image_size), ("fingerprint", fingerprint)):
            if value:
                raise ArgumentError(f"{field}={value!r}: it is for your own images, the data set {OWN!r}, not {name!r}")
        return 0
    own_images.check_size(image_size or own_images.SIZE)
    if fingerprint:
        listing.parts_of(fingerprint)
    return image_size or own_images.SIZE


def size_of(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    count: bool = False,
    seed: int = 0,
    image_size: int = 0,
) -> Size | None:
    """Return the size of a data set where it is known, or, to `count` them, where the files are there.

    The user's own images are always counted, but not decoded: some may turn out to be none.
    """
    if name in SIZES or (name != OWN and not count):
        return SIZES.get(name)
    try:
        folder = check_name_and_root(name, root)
        if name == OWN:
            side = checked_size(name, image_size)
            training, classes = own_images.count(folder, seed)
            return Size(training, (3, side, side), classes)
        found = _READERS[name](folder)
    except (FileNotFoundError, DataError):  # which is said when they are needed
        return None
    return Size(len(found.train), found.image_shape, len(found.classes))


def check_name_and_root(name: str, root: str | os.PathLike[str] | None) -> Path:
    """Return the folder, or say why there is no such data set or folder."""
    if name not in _READERS:
        raise ArgumentError(f"no data set is called {name!r}: {nearest(str(name), NAMES)}")
    if name == "digits":
        return Path()
    folder = Path(ROOT if root is None else root).expanduser()
    if name == OWN and not folder.is_dir():
        raise FileNotFoundError(
            f"{name} needs your images, and {str(folder)!r} is not a folder: pass the one that has a folder of images "
            "for each class (--data)"
        )
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{name} needs its files, and {str(folder)!r} is not a folder: pass the one that has them, or fill one "
            f"with `subspaces data get {name} --data {folder}`"
        )
    return folder


def fingerprint_of(root: str | os.PathLike[str] | None = None) -> str:
    """Return what tells the user's own images below `root` from others: name, number of files and a digest."""
    return contents.fingerprint(listing.find(check_name_and_root(OWN, root)))
