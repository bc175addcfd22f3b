"""Handwritten digits: scikit-learn's, which come with it, and MNIST's four IDX files, plain or gzipped.

An IDX file is 0, 0, a type (8: bytes), the number of dimensions, each length as a big-endian 32-bit integer, and the
values.
"""

import gzip
import struct
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from subspaces.core.randomness import permutation, stream
from subspaces.errors import DataError
from subspaces.evaluation.display import Progress
from subspaces.images.splits import Dataset, Split, check_label_values

CLASSES = tuple(map(str, range(10)))
DIGITS_TRAINING = 1200
MNIST = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}


def load_digits(root: Path, progress: Progress | None = None) -> Dataset:
    """Return scikit-learn's digits cut into 1,200 for training and 597 for the test, always the same ones."""
    values, target = _read_digits()
    order = permutation(stream(0, "digits"), len(target))
    pixels = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)  # values 0 … 16
    whole = Split(torch.from_numpy(pixels)[:, None], torch.from_numpy(target.astype(np.int64)))
    train, test = whole.select(order[:DIGITS_TRAINING]), whole.select(order[DIGITS_TRAINING:])
    return Dataset("digits", train, None, test, CLASSES, (0.3052,), (0.3757,))


@cache
def _read_digits() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return pixels [n, 64] and labels [n], read from the file itself: to import scikit-learn takes a second."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the data set digits needs scikit-learn: install it with `pip install scikit-learn`")
    with gzip.open(Path(found.origin).parent / "datasets/data/digits.csv.gz", "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    return table[:, :-1], table[:, -1]


def load_mnist(root: Path, progress: Progress | None = None) -> Dataset:
    """Read MNIST from `root`, `root`/MNIST/raw or `root`/mnist."""
    files = find_mnist(root)
    x, y, test_x, test_y = (torch.from_numpy(_read_idx(file, MNIST[name])) for name, file in files.items())
    for name, labels in (("train-labels-idx1-ubyte", y), ("t10k-labels-idx1-ubyte", test_y)):
        check_label_values(labels.numpy(), 10, files[name])
    splits = Split(x[:, None], y.long()), Split(test_x[:, None], test_y.long())
    return Dataset("mnist", splits[0], None, splits[1], CLASSES, (0.1307,), (0.3081,))


def find_mnist(root: Path) -> dict[str, Path]:
    """Return where each of the four files is, the plain one before the gzipped."""
    folders, found = [root, root / "MNIST" / "raw", root / "mnist"], {}
    for name in MNIST:
        places = [folder / f"{name}{suffix}" for folder in folders for suffix in ("", ".gz")]
        place = next((place for place in places if place.is_file()), None)
        if place is None:
            remedy = f"get them with `subspaces data get mnist --data {root}`"
            raise FileNotFoundError(f"mnist: found no {name}[.gz] in {root}: {remedy}")
        found[name] = place
    return found


def _read_idx(file: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Return the array of an IDX file of bytes, which must have this shape."""
    header = struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape)
    size = len(header) + int(np.prod(shape))
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            content = opened.read(size + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{file}: not a whole gzip file ({error}): get it again") from None
    if len(content) != size or not content.startswith(header):
        found = f"{len(content):,}{' or more' * (len(content) > size)} bytes that begin with {content[:16].hex()}"
        raise DataError(
            f"{file}: expected an array of {shape} in {size:,} bytes, found {found}: the file is damaged, get it again"
        )
    return np.frombuffer(bytearray(content), np.uint8, offset=len(header)).reshape(shape)
