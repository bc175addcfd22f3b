"""Files of arrays that somebody else may have made: regular files only, no pickles, no more than their size allows."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspaces.errors import DataError

UNPACKED = 1 << 32  # bytes of an .npz file; an .npy file is mapped
DAMAGED = (
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What is raised for files of arrays that are damaged, encrypted or compressed in an unknown way."""


def check_regular(path: Path) -> None:
    """Refuse a folder, a pipe or a device, which reading may wait for."""
    path.stat()  # which says if there is no such file
    if not path.is_file():
        raise DataError(f"{path}: not a regular file")


def map_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file, mapped from it; writing to it leaves the file as it is."""
    check_regular(path)
    array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="c")
    return array


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file; raise one of `DAMAGED` where it is none, or too large."""
    check_regular(path)
    with zipfile.ZipFile(path) as packed:
        if (size := sum(member.file_size for member in packed.infolist())) > UNPACKED:
            raise ValueError(f"{size:,} bytes, more than {UNPACKED:,}: save it as .npy")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
