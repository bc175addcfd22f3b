"""Opening files that somebody else may have made: regular files only, and no more of them than their size allows."""

import io
import os
import stat
import zipfile
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from subspaces.data.dataset import DataError

TEXT = 1 << 26  # bytes of a text file; the largest of a publisher, TinyImageNet's words, has less than 3 million
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode), "a device"),
)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file, or a link to one, for reading; refuse anything else without waiting for it."""
    _check_regular(path, os.stat(path).st_mode)  # opening a device may already do something
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    try:
        _check_regular(path, os.fstat(file.fileno()).st_mode)  # it may have been replaced in between
    except DataError:
        file.close()
        raise
    return file


def _check_regular(path: str | os.PathLike[str], mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((kind for of_kind, kind in _KINDS if of_kind(mode)), "no file")
        raise DataError(f"{os.fspath(path)}: {kind}, expected a regular file")


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file."""
    with open_regular(path) as file:
        content = file.read(TEXT + 1)
    if len(content) > TEXT:
        raise DataError(f"{path}: more than {TEXT:,} bytes of text: the file was altered, get it again")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not text in UTF-8 ({error}): the file was altered, get it again") from None


def read_arrays(path: Path, **dtypes: str) -> dict[str, npt.NDArray[Any]]:
    """Return arrays of an uncompressed .npz file by name, each of the kind (`dtype.kind`) that is passed.

    Raises:
        ValueError: if the file is damaged or its headers promise more than it holds, and other errors of its readers.
    """
    found = {}
    with open_regular(path) as file, zipfile.ZipFile(file) as packed:
        for name, kind in dtypes.items():
            member = packed.getinfo(f"{name}.npy")
            most = os.fstat(file.fileno()).st_size
            if member.compress_type != zipfile.ZIP_STORED or max(member.file_size, member.compress_size) > most:
                raise ValueError(f"{name} is compressed, or larger than its file")
            content = io.BytesIO(packed.read(member))
            shape, fortran, dtype = read_header(content)
            size = len(content.getbuffer()) - content.tell()
            if dtype.kind != kind or fortran or not shape or dtype.itemsize * int(np.prod(shape, dtype=object)) != size:
                raise ValueError(f"{name} is {dtype} {shape} in {size} bytes")
            if not size and any(shape):
                raise ValueError(f"{name} is {shape} of nothing")
            found[name] = np.frombuffer(content.getbuffer(), dtype, offset=content.tell()).reshape(shape)
    return found


def read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether it is in Fortran order, and dtype of an array in the .npy format; refuse objects."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("expected version 1.0 of the .npy format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    return shape, fortran, dtype
