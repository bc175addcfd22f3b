"""Opening files that somebody else may have made: regular files only, and no more of them than their size allows."""

import io
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from subspaces.errors import DataError

TEXT = 1 << 26  # bytes of a text file; the largest of a publisher, TinyImageNet's words, has less than 3 million
ANY = "biufcSUV"  # all kinds of dtypes but objects
DAMAGED = (ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What is raised for files of arrays that are damaged, encrypted or compressed in an unknown way."""
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


def read_arrays(path: Path, kinds: Mapping[str, str] | None = None, most: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Return arrays of a .npz file; raise one of `DAMAGED` if their headers promise more than the file holds.

    Args:
        path: the file.
        kinds: which arrays, and the kinds of dtypes that each may have, such as {"labels": "iu"}; by default all.
        most: bytes that the arrays may unpack to; by default none is compressed.
    """
    found = {}
    with open_regular(path) as file, zipfile.ZipFile(file) as packed:
        left = most or os.fstat(file.fileno()).st_size
        every = dict.fromkeys((name.removesuffix(".npy") for name in packed.namelist()), ANY)
        for name, kind in (every if kinds is None else kinds).items():
            member = packed.getinfo(f"{name}.npy")
            if member.file_size > left or (member.compress_type != zipfile.ZIP_STORED and not most):
                raise ValueError(
                    f"{name} has {member.file_size:,} bytes, more than {left:,}, or is compressed: save it as .npy"
                )
            left -= member.file_size
            content = io.BytesIO(packed.read(member))
            shape, order, dtype = _read_header(content)
            size = len(content.getbuffer()) - content.tell()
            if dtype.kind not in kind or not shape or dtype.itemsize * math.prod(shape) != size:
                raise ValueError(f"{name} is {dtype} {shape} in {size:,} bytes")
            if not size and any(shape):
                raise ValueError(f"{name} is {shape} of nothing")
            found[name] = np.frombuffer(content.getbuffer(), dtype, offset=content.tell()).reshape(shape, order=order)
    return found


def map_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of a .npy file, mapped from it; it can be written to, which leaves the file as it is."""
    with open_regular(path) as file:
        shape, order, dtype = _read_header(file)
        return np.memmap(file, dtype, "c", file.tell(), shape, order)


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("expected version 1.0 of the .npy format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    return shape, "F" if fortran else "C", dtype
