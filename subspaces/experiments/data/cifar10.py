"""CIFAR-10 in its publisher's two versions: binary (.bin) and Python (pickles).

A binary record is one byte of label, then 32 × 32 bytes of red, of green and of blue.
"""

import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from subspaces.errors import DataError
from subspaces.evaluation.display import Progress
from subspaces.images.splits import Dataset, Split, check_label_values

RECORDS = 10_000  # in each file
PIXELS = 3 * 32 * 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
VERSIONS = {"cifar-10-batches-bin": ".bin", "cifar-10-batches-py": ""}


def load(root: Path, progress: Progress | None = None) -> Dataset:
    """Read CIFAR-10 from `root` or its sub-folder cifar-10-batches-bin or cifar-10-batches-py."""
    *training, test = [_read(file) for file in find(root)]
    train = Split(torch.cat([part.images for part in training]), torch.cat([part.labels for part in training]))
    return Dataset("cifar10", train, None, test, CLASSES, MEAN, STD)


def find(root: Path) -> list[Path]:
    """Return the six files of one version, the test batch last; binary goes before Python."""
    remedy = f"get them with `subspaces data get cifar10 --data {root}`"
    for version, suffix in VERSIONS.items():
        for folder in (root, root / version):
            files = [folder / f"{batch}{suffix}" for batch in BATCHES]
            absent = [file.name for file in files if not file.is_file()]
            if not absent:
                return files
            if len(absent) < len(files):
                raise FileNotFoundError(f"cifar10: found no {', '.join(absent)} in {folder}: {remedy}")
    raise FileNotFoundError(f"cifar10: found no data_batch_1.bin … test_batch.bin in {root}: {remedy}")


def _read(file: Path) -> Split:
    if file.suffix == ".bin":
        if (size := file.stat().st_size) != (expected := RECORDS * (1 + PIXELS)):
            raise DataError(f"{file}: expected {expected:,} bytes, found {size:,}: get the file again")
        table = np.fromfile(file, np.uint8).reshape(RECORDS, 1 + PIXELS)
        pixels, labels = np.ascontiguousarray(table[:, 1:]), table[:, 0].astype(np.int64)
    else:
        pixels, labels = _read_pickle(file)
    check_label_values(labels, len(CLASSES), file)
    return Split(torch.from_numpy(pixels).view(-1, 3, 32, 32), torch.from_numpy(labels))


class _Reader(pickle.Unpickler):
    """Reads dicts, lists, numbers, text and numpy arrays; whatever else a pickle asks for would run its code."""

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        **{(f"numpy.{core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for core in ("core", "_core")},
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): lambda text, _: text.encode("latin1"),  # Python 3's bytes in old protocols
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a batch of images does not need")
        return self.allowed[module, name]


def _read_pickle(file: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    try:
        with file.open("rb") as opened:
            content = _Reader(opened, encoding="bytes").load()
        pixels, labels = content[b"data"], np.array(content[b"labels"], np.int64)
    except Exception as error:  # a damaged pickle may fail in any way
        raise DataError(f"{file}: refused to read this pickle ({error!r}): get the file again") from None
    if getattr(pixels, "dtype", None) != np.uint8 or pixels.shape != (RECORDS, PIXELS) or labels.shape != (RECORDS,):
        raise DataError(f"{file}: expected uint8 ({RECORDS}, {PIXELS}) with as many labels: get the file again")
    return np.ascontiguousarray(pixels), labels
