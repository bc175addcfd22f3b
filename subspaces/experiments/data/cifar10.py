"""CIFAR-10 in its publisher's two versions: binary (.bin) and Python (pickles).

A binary record is one byte of label, then 32 × 32 bytes of red, of green and of blue.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from subspaces.experiments.data import pickles
from subspaces.experiments.data.dataset import DataError, Dataset, Split, check_label_values, missing
from subspaces.images.reading import open_regular

RECORDS = 10_000  # in each file
PIXELS = 3 * 32 * 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


class Published(NamedTuple):
    """Size and checksum of a file of the Python or binary version."""

    bytes: int
    md5: str


PYTHON = dict(
    zip(
        BATCHES,
        (
            Published(31_035_704, "c99cafc152244af753f735de768cd75f"),
            Published(31_035_320, "d4bba439e000b95fd0a9bffe97cbabec"),
            Published(31_035_999, "54ebc095f3ab1f0389bbae665268c751"),
            Published(31_035_696, "634d18415352ddfa80567beed471001a"),
            Published(31_035_623, "482c414d41f54cd18b22e5b47cb7c3cb"),
            Published(31_035_526, "40351d587109b95175f43aff81a1287e"),
        ),
        strict=True,
    )
)
BINARY = dict(
    zip(
        (f"{batch}.bin" for batch in BATCHES),
        (
            Published(RECORDS * (1 + PIXELS), "5dd7e06a14cb22eb9f671a540d1b7c25"),
            Published(RECORDS * (1 + PIXELS), "5ea93a67294ea407fff1d09f752e9692"),
            Published(RECORDS * (1 + PIXELS), "942cd6a4bcdd0dd3c604fbe906cb4421"),
            Published(RECORDS * (1 + PIXELS), "ae636b3ba5c66a11e91e8cb52e771fcb"),
            Published(RECORDS * (1 + PIXELS), "53f37980c15c3d472c316c40844f3f0d"),
            Published(RECORDS * (1 + PIXELS), "803d5f7f4d78ea53de84dbe85f74fb6d"),
        ),
        strict=True,
    )
)
VERSIONS = {"cifar-10-batches-bin": BINARY, "cifar-10-batches-py": PYTHON}
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]  # [n, 3072], [n]


def load(root: Path, records: int = RECORDS) -> Dataset:
    """Read CIFAR-10 from `root` or its sub-folder cifar-10-batches-bin or cifar-10-batches-py."""
    *training, test = [_split(read(file, records)) for file in find(root)]
    train = Split(torch.cat([part.images for part in training]), torch.cat([part.labels for part in training]))
    return Dataset("cifar10", train, None, test, CLASSES, MEAN, STD)


def find(root: Path) -> list[Path]:
    """Return the six files of one version, the test batch last; binary goes before Python."""
    folders = [root, *(root / version for version in VERSIONS)]
    for version, files in VERSIONS.items():
        for folder in (root, root / version):
            there = [name for name in files if (folder / name).is_file()]
            if len(there) == len(files):
                return [folder / name for name in files]
            if there:
                raise missing("cifar10", [name for name in files if name not in there], [folder])
    raise missing("cifar10", ["data_batch_1.bin … test_batch.bin, nor data_batch_1 … test_batch"], folders)


def read(file: Path, records: int = RECORDS) -> Batch:
    """Return pixels uint8 [n, 3072] and labels [n] of one file of either version."""
    pixels, labels = _read_binary(file, records) if file.suffix == ".bin" else _read_python(file, records)
    check_label_values(labels, len(CLASSES), file)
    return pixels, labels


def _split(batch: Batch) -> Split:
    pixels, labels = batch
    return Split(torch.from_numpy(pixels).view(-1, 3, 32, 32), torch.from_numpy(labels.astype(np.int64)))


def _read_binary(file: Path, records: int) -> Batch:
    expected, found = records * (1 + PIXELS), file.stat().st_size
    if found != expected:
        kind = "is cut short" if found < expected else "is too long"
        raise DataError(
            f"{file}: expected {expected:,} bytes for {records:,} images, found {found:,}: "
            f"the file {kind}, get it again"
        )
    table = np.fromfile(file, np.uint8).reshape(records, 1 + PIXELS)
    return np.ascontiguousarray(table[:, 1:]), table[:, 0]


def _read_python(file: Path, records: int) -> Batch:
    content = _published_content(file) if records == RECORDS else file.read_bytes()
    batch = pickles.read(content, file)
    pixels, labels = batch.get(b"data"), batch.get(b"labels")
    if not isinstance(pixels, np.ndarray) or pixels.shape != (records, PIXELS):
        shape = getattr(pixels, "shape", type(pixels).__name__)
        raise DataError(f"{file}: data is {shape}, expected ({records}, {PIXELS}): the file was altered, get it again")
    if not isinstance(labels, list) or len(labels) != records or not all(type(label) is int for label in labels):
        found = len(labels) if isinstance(labels, list) else type(labels).__name__
        raise DataError(f"{file}: labels are {found}, expected a list of {records} whole numbers: get the file again")
    return pixels, np.array(labels)


def _published_content(file: Path) -> bytes:
    """Return the content of a published pickle, and refuse any other: a pickle of a few bytes can take for ever."""
    published = PYTHON[file.name]
    with open_regular(file) as opened:
        content = opened.read(published.bytes + 1)
    if len(content) != published.bytes:
        found = "more" if len(content) > published.bytes else f"{len(content):,}"
        raise DataError(f"{file}: expected {published.bytes:,} bytes, found {found}: get the file again")
    _check_md5(content, published, file)
    return content


def _check_md5(content: bytes, published: Published, file: Path) -> None:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != published.md5:
        raise DataError(f"{file}: md5 {digest}, published {published.md5}: the file was altered, get it again")


def problems(root: Path) -> list[str]:
    """Return what is wrong with the files, compared with the published ones."""
    found = []
    for file in find(root):
        try:
            read(file)
            if file.suffix == ".bin":  # pickles are compared before they are read
                _check_md5(file.read_bytes(), BINARY[file.name], file)
        except DataError as error:
            found.append(str(error))
    return found
