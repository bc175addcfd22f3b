"""MNIST as its four IDX files, plain or gzipped.

An IDX file is 0, 0, a type (8: bytes), the number of dimensions, each length as a big-endian
32-bit integer, and the values.
"""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from subspaces.experiments.data.dataset import DataError, Dataset, Split, check_label_values, missing

TRAINING, TEST = 60_000, 10_000
MEAN, STD = (0.1307,), (0.3081,)
MD5 = {  # of the plain files
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def load(root: Path, training: int = TRAINING, test: int = TEST) -> Dataset:
    """Read MNIST from `root`, `root`/MNIST/raw or `root`/mnist."""
    files = find(root)
    splits = []
    for part, count in (("train", training), ("t10k", test)):
        images = read_idx(files[f"{part}-images-idx3-ubyte"], (count, 28, 28))
        file = files[f"{part}-labels-idx1-ubyte"]
        labels = read_idx(file, (count,))
        check_label_values(labels, 10, file)
        splits.append(Split(torch.from_numpy(images)[:, None], torch.from_numpy(labels).long()))
    return Dataset("mnist", splits[0], None, splits[1], tuple(map(str, range(10))), MEAN, STD)


def find(root: Path) -> dict[str, Path]:
    """Return where each of the four files is, the plain one before the gzipped."""
    folders = [root, root / "MNIST" / "raw", root / "mnist"]
    found = {}
    for name in MD5:
        places = [folder / f"{name}{suffix}" for folder in folders for suffix in ("", ".gz")]
        found[name] = next((place for place in places if place.is_file()), None)
    absent = [f"{name}[.gz]" for name, place in found.items() if place is None]
    if absent:
        raise missing("mnist", absent, folders)
    return {name: place for name, place in found.items() if place is not None}


def read_idx(file: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Return the array of an IDX file of bytes, which must have this shape."""
    header = 4 + 4 * len(shape)
    expected = header + int(np.prod(shape))
    content = _content(file, expected)
    size = f"expected {expected:,} bytes for {shape}, found {len(content):,}"
    if len(content) < header:
        raise DataError(f"{file}: {size}: the file is cut short, get it again")
    magic, *lengths = struct.unpack(f">{1 + len(shape)}I", content[:header])
    if magic != 0x800 + len(shape):
        raise DataError(
            f"{file}: begins with {magic:#x}, expected {0x800 + len(shape):#x} for bytes in {len(shape)} "
            "dimensions: this is another kind of file"
        )
    if tuple(lengths) != shape:
        raise DataError(f"{file}: holds an array of {tuple(lengths)}, expected {shape}: the file was altered")
    if len(content) != expected:
        kind = "is cut short" if len(content) < expected else "is too long"
        raise DataError(f"{file}: {size}{' or more' if len(content) > expected else ''}: the file {kind}, get it again")
    return np.frombuffer(bytearray(content), np.uint8, offset=header).reshape(shape)


def _content(file: Path, expected: int) -> bytes:
    """Return the file's bytes, unpacked where it is gzipped, and never much more than expected."""
    if file.suffix != ".gz":
        with file.open("rb") as plain:
            return plain.read(expected + 1)
    try:
        with gzip.open(file) as packed:
            return packed.read(expected + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{file}: {file.stat().st_size:,} bytes that do not unpack to the expected {expected:,} ({error}): "
            "the file is cut short or altered, get it again"
        ) from None


def problems(root: Path) -> list[str]:
    """Return what is wrong with the files, compared with the published ones."""
    found = []
    for name, file in find(root).items():
        count = TRAINING if name.startswith("train") else TEST
        shape = (count, 28, 28) if "images" in name else (count,)
        try:
            values = read_idx(file, shape)
        except DataError as error:
            found.append(str(error))
            continue
        digest = hashlib.md5(struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape), usedforsecurity=False)
        digest.update(values.data)
        if digest.hexdigest() != MD5[name]:
            found.append(
                f"{file}: md5 {digest.hexdigest()} of the content, published {MD5[name]}: the file was altered"
            )
    return found
