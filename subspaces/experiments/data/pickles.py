"""Reading a pickled batch of bytes without running anything that the file brings along.

A pickle is a program: it names functions and calls them. This reader knows four names, those in
which numpy writes an array, and puts its own harmless stand-ins in their places.
"""

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from subspaces.experiments.data.dataset import DataError


class _Dtype:
    """Stands in for numpy.dtype; only bytes are allowed."""

    def __init__(self, kind: Any, *_: Any) -> None:
        if kind not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"an array of type {kind!r}, expected unsigned bytes")

    def __setstate__(self, state: Any) -> None:
        pass


class _Array:
    """Stands in for numpy.ndarray: takes its shape and bytes, after a look at both."""

    array: npt.NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        sizes = isinstance(shape, tuple) and all(isinstance(length, int) and length >= 0 for length in shape)
        if not (sizes and isinstance(dtype, _Dtype) and isinstance(content, bytes)):
            raise pickle.UnpicklingError("an array that is not plain bytes")
        order: Any = "F" if fortran else "C"
        self.array = np.frombuffer(bytearray(content), np.uint8).reshape(shape, order=order)


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    """Stand in for codecs.encode, with which Python 3 writes bytes in old protocols."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"text encoded as {encoding!r}, expected latin1")
    return text.encode("latin1")


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a batch of images does not need")
        return _NAMES[module, name]


def read(content: bytes, where: object) -> dict[bytes, Any]:
    """Return the dict in a pickle, by keys as bytes, with its arrays of bytes as numpy arrays."""
    try:
        found = _Reader(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may stumble over anything
        raise DataError(f"{where}: refused to read this pickle of {len(content):,} bytes: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{where}: holds a {type(found).__name__}, expected a dict with data and labels")
    return {
        key.encode() if isinstance(key, str) else key: value.array if isinstance(value, _Array) else value
        for key, value in found.items()
    }
