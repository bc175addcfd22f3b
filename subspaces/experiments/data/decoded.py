"""Image files decoded once into an array of bytes, which is kept in a file and mapped from it afterwards."""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from subspaces.core import storage
from subspaces.evaluation.display import Progress
from subspaces.images.decoding import Pixels
from subspaces.images.reading import map_array

AT_ONCE = 1000  # so that an error does not wait for all the others
View = Callable[[Path], Pixels]  # an image file as [size, size, 3]


def kept(cache: Path, shape: tuple[int, ...]) -> Pixels | None:
    """Return the array of that shape, mapped from its file; None if there is none or it is not whole."""
    try:
        array = map_array(cache)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 and array.flags.c_contiguous else None


def build(paths: Sequence[Path], cache: Path, size: int, view: View, progress: Progress | None) -> Pixels:
    """Decode all files into the cache, [n, size, size, 3]; where it cannot be written, into memory."""
    shape = (len(paths), size, size, 3)
    if not os.access(cache.parent, os.W_OK):
        return np.fromiter(_decode(paths, view, progress), np.dtype((np.uint8, shape[1:])), len(paths))
    partial = cache.with_name(f".{cache.name}.{secrets.token_hex(4)}.partial")
    storage.sweep(cache.parent, cache.name)  # what a killed process left
    try:
        with storage.writing(partial), open(partial, "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for pixels in _decode(paths, view, progress):
                file.write(pixels.tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, cache)
    finally:
        partial.unlink(missing_ok=True)
    return map_array(cache)


def _decode(paths: Sequence[Path], view: View, progress: Progress | None) -> Iterator[Pixels]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside the interpreter's lock
        for start in range(0, len(paths), AT_ONCE):
            yield from pool.map(view, paths[start : start + AT_ONCE])
            if progress is not None:
                progress("decoding images", min(start + AT_ONCE, len(paths)), len(paths))
