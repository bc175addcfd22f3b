"""scikit-learn's digits, MNIST and CIFAR-10, read whole from their publishers' files.

An IDX file of MNIST, plain or gzipped, is 0, 0, a type (8: bytes), the number of dimensions, each length as a
big-endian 32-bit integer, and the values. A record of CIFAR-10's binary version is one byte of label, then 32 × 32
bytes of red, of green and of blue.
"""

import gzip
import struct
import zlib
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from subspaces.core.randomness import new_state, permutation
from subspaces.errors import DataError
from subspaces.evaluation.display import Progress
from subspaces.images.splits import Dataset, Split, check_label_values

NUMBERS = tuple(map(str, range(10)))
DIGITS_TRAINING = 1200
DIGITS_SPLIT = 2**56  # the seed of the order that is cut into training and test images
MNIST = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}
RECORDS = 10_000  # in each file
PIXELS = 3 * 32 * 32
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")


def load_digits(root: Path, progress: Progress | None = None) -> Dataset:
    """Return scikit-learn's digits cut into 1,200 for training and 597 for the test, always the same ones."""
    values, target = _read_digits()
    order = permutation(new_state(DIGITS_SPLIT), len(target))
    pixels = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)  # values 0 … 16
    whole = Split(torch.from_numpy(pixels)[:, None], torch.from_numpy(target.astype(np.int64)))
    train, test = whole.select(order[:DIGITS_TRAINING]), whole.select(order[DIGITS_TRAINING:])
    return Dataset("digits", train, None, test, NUMBERS, (0.3052,), (0.3757,))


@cache
def _read_digits() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return pixels [n, 64] and labels [n], read from the file itself: to import scikit-learn takes a second."""
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    with gzip.open(str(file), "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    return table[:, :-1], table[:, -1]


def load_mnist(root: Path, progress: Progress | None = None) -> Dataset:
    """Read MNIST from `root`, `root`/MNIST/raw or `root`/mnist."""
    files = find_mnist(root)
    x, y, test_x, test_y = (torch.from_numpy(_read_idx(file, MNIST[name])) for name, file in files.items())
    for name, labels in (("train-labels-idx1-ubyte", y), ("t10k-labels-idx1-ubyte", test_y)):
        check_label_values(labels.numpy(), 10, files[name])
    splits = Split(x[:, None], y.long()), Split(test_x[:, None], test_y.long())
    return Dataset("mnist", splits[0], None, splits[1], NUMBERS, (0.1307,), (0.3081,))


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


def load_cifar10(root: Path, progress: Progress | None = None) -> Dataset:
    """Read CIFAR-10's binary version from `root` or `root`/cifar-10-batches-bin."""
    *training, test = [_read_records(file) for file in find_cifar10(root)]
    train = Split(torch.cat([part.images for part in training]), torch.cat([part.labels for part in training]))
    return Dataset("cifar10", train, None, test, CLASSES, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def find_cifar10(root: Path) -> list[Path]:
    """Return the six files, the test batch last."""
    folder = root / "cifar-10-batches-bin"
    folder = folder if folder.is_dir() else root
    absent = [name for name in BATCHES if not (folder / name).is_file()]
    if absent:
        remedy = f"get them with `subspaces data get cifar10 --data {root}`"
        raise FileNotFoundError(f"cifar10: found no {', '.join(absent)} in {folder}: {remedy}")
    return [folder / name for name in BATCHES]


def _read_records(file: Path) -> Split:
    if (size := file.stat().st_size) != (expected := RECORDS * (1 + PIXELS)):
        raise DataError(f"{file}: expected {expected:,} bytes, found {size:,}: get the file again")
    table = np.fromfile(file, np.uint8).reshape(RECORDS, 1 + PIXELS)
    pixels, labels = np.ascontiguousarray(table[:, 1:]), table[:, 0].astype(np.int64)
    check_label_values(labels, len(CLASSES), file)
    return Split(torch.from_numpy(pixels).view(-1, 3, 32, 32), torch.from_numpy(labels))
