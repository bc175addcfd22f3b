"""Data sets by name, with what every experiment may ask of them: label noise and held-out images."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from subspaces.core.randomness import permutation, stream, uniform
from subspaces.errors import ArgumentError, DataError
from subspaces.evaluation.display import Progress
from subspaces.experiments.data import folders, published
from subspaces.images.splits import Dataset
from subspaces.text import nearest


class Size(NamedTuple):
    """What a recipe must fit to: how many training images, of which shape, in how many classes."""

    training: int
    image_shape: tuple[int, int, int]
    classes: int


class Source(NamedTuple):
    """One data set: what it is, its terms, how it is read, and what `get` fetches into which folder below the root."""

    name: str
    description: str
    size: str
    licence: str
    load: Callable[[Path, Progress | None], Dataset]
    find: Callable[[Path], object]  # raises `FileNotFoundError` where its files are not
    fits: Size | None = None  # of all but those that may be any
    files: Mapping[str, str] = MappingProxyType({})  # address: MD5
    folder: str = "."
    instructions: str = ""  # where it cannot be fetched, why, and what to do instead


OWN = "folder"
"""The data set of the user's own images, which have no size and no number but those that are asked for and found."""
ROOT = "data"
"""Where the files are unless said otherwise."""
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_SOURCES = (
    Source(
        "digits",
        "1,797 handwritten digits of 8 × 8, grey, 10 classes",
        "comes with scikit-learn",
        "CC BY 4.0",
        load=published.load_digits,
        find=Path,
        fits=Size(published.DIGITS_TRAINING, (1, 8, 8), 10),
    ),
    Source(
        "mnist",
        "70,000 handwritten digits of 28 × 28, grey, 10 classes",
        "12 MB",
        "CC BY-SA 3.0",
        load=published.load_mnist,
        find=published.find_mnist,
        fits=Size(60_000, (1, 28, 28), 10),
        files={
            f"{_MNIST}/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            f"{_MNIST}/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            f"{_MNIST}/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            f"{_MNIST}/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        folder="mnist",
    ),
    Source(
        "cifar10",
        "60,000 photographs of 32 × 32, colour, 10 classes",
        "170 MB, 184 MB more unpacked",
        "no licence stated; its authors ask to be cited (Krizhevsky, 2009)",
        load=published.load_cifar10,
        find=published.find_cifar10,
        fits=Size(5 * published.RECORDS, (3, 32, 32), 10),
        files={"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    ),
    Source(
        "tiny-imagenet",
        "110,000 photographs of 64 × 64, colour, 200 classes",
        "248 MB, 1.8 GB more unpacked and decoded",
        "ImageNet's terms: research and education, not commercial",
        load=folders.load_tiny,
        find=folders.find_tiny,
        fits=Size(100_000, (3, 64, 64), 200),
        files={"http://cs231n.stanford.edu/tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
    ),
    Source(
        "imagenet",
        "1.28 million photographs, colour, 1,000 classes; or any folders of that layout",
        "about 150 GB",
        "research and education, not commercial; each user agrees with the publisher",
        load=folders.load_imagenet,
        find=folders.find_imagenet,
        instructions="each user agrees to its terms: register at https://www.image-net.org/download.php, fetch "
        "the ILSVRC 2012 images, and unpack them to ROOT/train/<class>/*.JPEG and ROOT/val/<class>/*.JPEG",
    ),
    Source(
        OWN,
        "your own images, a folder for each class: any classes, scaled to any one size",
        "as large as yours",
        "yours",
        load=lambda root, progress: folders.load_own(root, progress=progress),
        find=folders.find_own,
        instructions="they are your own images: put them into DIR/<class>/*, or DIR/train/<class>/* and "
        "DIR/test/<class>/*, and pass --data DIR",
    ),
)
PART = 12_000  # images: a network can be trained on them on a laptop


def _part(source: Source) -> Source:
    """Return the data set of the first training images of another one, and all of its test images."""

    def load(root: Path, progress: Progress | None) -> Dataset:
        data = source.load(root, progress)
        return replace(data, name=name, train=data.train.select(torch.arange(PART)))

    assert source.fits is not None
    name = f"{source.name}-{PART // 1000}k"
    words = f"the first {PART:,} training images of {source.name}, and its test images"
    return source._replace(name=name, description=words, load=load, fits=source.fits._replace(training=PART))


_PARTS = [_part(source) for source in _SOURCES if source.name in ("mnist", "cifar10")]
SOURCES = {source.name: source for source in (*_SOURCES, *_PARTS)}
NAMES = tuple(SOURCES)


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
        image_size: the side in pixels to which your own images are scaled; by default 64.
        fingerprint: what your own images must be, as recipes note it; others are refused.
        progress: is told how many images are decoded, and of how many.
    """
    folder, side = check_name_and_root(name, root), checked_size(name, image_size, fingerprint)
    if name == OWN:
        data = folders.load_own(folder, side, seed, fingerprint, progress)
    else:
        data = SOURCES[name].load(folder, progress)
    keep, out = held_out(len(data.train), validation, seed)
    if validation:
        data = replace(data, train=data.train.select(keep), validation=data.train.select(out))
    return with_label_noise(data, label_noise, seed)


def with_label_noise(data: Dataset, fraction: float, seed: int) -> Dataset:
    """Return the same images with a fraction of the training labels drawn at random, as `load` does."""
    labels = noisy(data.train.labels, len(data.classes), fraction, seed)
    return replace(data, train=replace(data.train, labels=labels))


def held_out(n: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices that stay, in their old order, and the `count` that are held out, of n."""
    if not 0 <= count < n:
        raise ArgumentError(f"validation={count}: expected 0 to {n - 1}, part of the {n} training images")
    order = permutation(stream(seed, "validation"), n)
    return order[count:].sort().values, order[:count].sort().values


def noisy(labels: Tensor, classes: int, fraction: float, seed: int) -> Tensor:
    """Return labels of which the first ⌊fraction·n⌋ of a random order are drawn uniformly over all classes.

    A drawn label may be the right one: a fraction c leaves about c·(1 − 1/classes) of them wrong.
    Who gets a label, and which, depends on n and the seed alone; a larger fraction adds to a smaller one.
    """
    if not 0 <= fraction <= 1:
        raise ArgumentError(f"label_noise={fraction}: expected a fraction between 0 and 1")
    n, state = len(labels), stream(seed, "label noise")
    order = permutation(state, n)
    drawn = (uniform(state, (n,)) * classes).to(torch.int64)
    chosen = order[: math.floor(fraction * n + 1e-9)]  # 0.29 · 100 is just under 29 in floating point
    result = labels.clone()
    result[chosen] = drawn[: len(chosen)]
    return result


def checked_size(name: str, image_size: int, fingerprint: str = "") -> int:
    """Return the side of the user's own images, 0 for other data sets; refuse what they cannot have."""
    if name != OWN:
        for field, value in (("image_size", image_size), ("fingerprint", fingerprint)):
            if value:
                raise ArgumentError(f"{field}={value!r}: it is for your own images, the data set {OWN!r}, not {name!r}")
        return 0
    size, (least, most) = image_size or folders.SIZE, folders.SIZES
    if not isinstance(size, int) or not least <= size <= most:
        raise ArgumentError(f"image_size={size!r}: expected {least} to {most} pixels")
    if fingerprint:
        folders.parts_of(fingerprint)
    return size


def training_count(name: str, root: str | os.PathLike[str] | None, seed: int, image_size: int) -> int | None:
    """Return how many training images a data set has where that is known or its files are there."""
    if (known := SOURCES[name].fits) is not None:
        return known.training
    try:
        return len(load(name, root, seed=seed, image_size=image_size).train)
    except (FileNotFoundError, DataError):  # which is said when they are needed
        return None


def check_name_and_root(name: str, root: str | os.PathLike[str] | None) -> Path:
    """Return the folder, or say why there is no such data set or folder."""
    if name not in SOURCES:
        raise ArgumentError(f"no data set is called {name!r}: {nearest(str(name), NAMES)}")
    folder = Path() if name == "digits" else Path(ROOT if root is None else root).expanduser()
    if not folder.is_dir():
        remedy = f"get them with `subspaces data get {name} --data {folder}`"
        if name == OWN:
            remedy = "expected one with a folder of images for each class"
        raise FileNotFoundError(f"{name}: {str(folder)!r} is not a folder (--data): {remedy}")
    return folder


def fingerprint_of(root: str | os.PathLike[str] | None = None) -> str:
    """Return what tells the user's own images below `root` from others: name, number of files and a digest."""
    return folders.find_own(check_name_and_root(OWN, root)).fingerprint
