"""Whole data sets: getting them, checking them, saying what is there."""

import os
from collections.abc import Callable
from pathlib import Path

from subspaces.errors import ArgumentError
from subspaces.experiments.data import cifar10, folders, mnist, own_images, tiny_imagenet
from subspaces.experiments.data.archives import is_archive, unpack
from subspaces.experiments.data.dataset import DataError, Progress
from subspaces.experiments.data.download import fetch
from subspaces.experiments.data.loading import OWN, check_name_and_root, load
from subspaces.experiments.data.sources import SOURCES
from subspaces.text import nearest

_PROBLEMS = {
    "mnist": mnist.problems,
    "cifar10": cifar10.problems,
    "tiny-imagenet": tiny_imagenet.problems,
    "imagenet": folders.problems,
}

_FINDERS: dict[str, Callable[[Path], object]] = {
    "mnist": mnist.find,
    "cifar10": cifar10.find,
    "tiny-imagenet": tiny_imagenet.find,
    "imagenet": folders.find,
}


def get(
    name: str,
    root: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    base_url: str | None = None,
    limit: int | None = None,
) -> Path:
    """Fetch a data set from its publisher and unpack it below `root`; what is there and right is left alone.

    Args:
        name: of the data set.
        root: the folder, made if need be; pass it to `load` afterwards.
        progress: is called with what is being done, how much of it is done, and of how much (0: not known).
        base_url: a mirror to fetch the same files from.
        limit: bytes that an archive may unpack to; by default 10 GB, and no more than 100 times its size.
    """
    if name not in SOURCES:
        raise ArgumentError(f"no data set is called {name!r}: {nearest(str(name), SOURCES)}")
    source, folder = SOURCES[name], Path(root).expanduser()
    if source.instructions:
        raise DataError(f"{name} cannot be fetched, because {source.instructions}")
    if not source.files or not check(name, folder):
        return folder
    target = folder / source.folder
    for published in source.files:
        file = fetch(published, target, progress, base_url)
        if is_archive(file):
            unpack(file, target, progress, limit=limit)
    if name == "tiny-imagenet":
        tiny_imagenet.load(folder, progress=progress)  # decodes the images
    if remaining := check(name, folder):
        raise DataError(f"{name} was fetched to {target}, but: {'; '.join(remaining)}; move that out of the way")
    return folder


def check(name: str, root: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> list[str]:
    """Return what is wrong with the files below `root`, a sentence each; nothing is wrong if it is empty."""
    try:
        folder = check_name_and_root(name, root)
        if name == OWN:
            return own_images.problems(folder, progress)
        return _PROBLEMS[name](folder) if name in _PROBLEMS else []
    except (FileNotFoundError, DataError) as error:
        return [str(error)]


def absent(name: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """Return why the files of a data set are not there, with what fetches them; None if they are, right or wrong."""
    try:
        folder = check_name_and_root(name, root)
        if name in _FINDERS:
            _FINDERS[name](folder)
    except FileNotFoundError as error:
        return str(error)
    return None


def describe(name: str, root: str | os.PathLike[str] | None = None) -> str:
    """Return a sentence about what is below `root`: counts, classes and which version of the files."""
    folder = check_name_and_root(name, root)
    data = load(name, root)
    shape = " × ".join(map(str, data.image_shape))
    return (
        f"{data.name}: {len(data.train):,} training and {len(data.test):,} test images of {shape} "
        f"in {len(data.classes):,} classes, {_version(name, folder)}"
    )


def _version(name: str, root: Path) -> str:
    if name == "digits":
        return "from scikit-learn"
    if name == "mnist":
        file = next(iter(mnist.find(root).values()))
        return f"{'gzipped' if file.suffix == '.gz' else 'plain'} IDX files in {file.parent}"
    if name == "cifar10":
        paths = cifar10.find(root)
        return f"the {'binary' if paths[0].suffix == '.bin' else 'Python'} version in {paths[0].parent}"
    if name == "tiny-imagenet":
        return f"the published folder in {tiny_imagenet.find(root)}"
    if name == OWN:
        return own_images.described(root)
    return f"image files in {root / 'train'} and {root / 'val'}"
