"""Image files decoded once into an array of bytes, which is kept in a file and mapped from it afterwards."""

import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspaces.core import storage
from subspaces.experiments.data.dataset import DataError, Progress
from subspaces.images import reading
from subspaces.images.decoding import Pixels

AT_ONCE = 1000  # so that an error does not wait for all the others
View = Callable[[Path], Pixels]  # an image file as [size, size, 3]


def kept(cache: Path, shape: tuple[int, ...]) -> Pixels | None:
    """Return the array of that shape, mapped from its file; None if there is none or it is not whole."""
    try:
        array = reading.map_array(cache)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 and array.flags.c_contiguous else None


def build(paths: Sequence[Path], cache: Path | None, size: int, view: View, progress: Progress | None) -> Pixels:
    """Decode all files into the cache, [n, size, size, 3]; where it cannot be written, into memory."""
    shape = (len(paths), size, size, 3)
    partial = _reserved(cache, shape)
    if cache is None or partial is None:
        array: Pixels = np.zeros(shape, np.uint8)
        _decode_into(array, paths, view, progress)
        return array
    try:
        with storage.writing(partial):
            target = np.lib.format.open_memmap(partial, "r+")
            _decode_into(target, paths, view, progress)
            target.flush()
            del target
        os.replace(partial, cache)
    finally:
        partial.unlink(missing_ok=True)
    array_again = kept(cache, shape)
    if array_again is None:
        raise DataError(f"{cache}: was written and cannot be read back: delete it and check the disk")
    return array_again


def write_arrays(path: Path, **arrays: npt.NDArray[Any]) -> None:
    """Keep notes of what was found, whole or not at all; where nothing can be written they are made again next time."""
    partial = path.with_name(f"{path.stem}.{secrets.token_hex(4)}.partial.npz")
    try:
        np.savez(partial, allow_pickle=False, **arrays)
        os.replace(partial, path)
    except OSError:
        pass
    finally:
        partial.unlink(missing_ok=True)


def _reserved(cache: Path | None, shape: tuple[int, ...]) -> Path | None:
    """Return a file beside the cache that has room for the array; None where there is no such place."""
    if cache is None or not os.access(cache.parent, os.W_OK):
        return None
    name = cache.name.lstrip(".")
    partial = cache.with_name(f".{name}.{secrets.token_hex(4)}.partial")
    try:
        storage.sweep(cache.parent, name)  # what a killed process left
        np.lib.format.open_memmap(partial, "w+", np.uint8, shape)
        with open(partial, "rb+") as file:
            if hasattr(os, "posix_fallocate"):  # a mapped file on a full disk would end the process later
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    except OSError:
        partial.unlink(missing_ok=True)
        return None
    return partial


def _decode_into(array: Pixels, paths: Sequence[Path], view: View, progress: Progress | None) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside the interpreter's lock
        for start in range(0, len(paths), AT_ONCE):
            for index, pixels in enumerate(pool.map(view, paths[start : start + AT_ONCE]), start):
                array[index] = pixels
            if progress is not None:
                progress("decoding images", min(start + AT_ONCE, len(paths)), len(paths))
