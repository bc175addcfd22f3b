"""Data sets by name, with what every experiment may ask of them: label noise and held-out images."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from subspaces.data import cifar10, digits, folders, mnist, noise, tiny_imagenet
from subspaces.data.dataset import Dataset
from subspaces.points import nearest

_READERS: dict[str, Callable[[Path], Dataset]] = {
    "digits": lambda _: digits.load(),
    "mnist": mnist.load,
    "cifar10": cifar10.load,
    "tiny-imagenet": tiny_imagenet.load,
    "imagenet": folders.load,
}
NAMES = tuple(_READERS)
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
        root: the folder of the files, as `subspaces data get NAME --root DIR` leaves them; by default `data`.
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
            f"with `subspaces data get {name} --root {folder}`"
        )
    return folder
