"""Files that are written whole or not at all, and tensors with a checksum.

A checksum is of the content alone, so a renamed or copied file is still itself. It finds damage, not malice.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from torch import Tensor

from subspaces.core import memory
from subspaces.errors import ArgumentError

TRIES = 100  # to read or lock what others replace or remove
_LEFT = re.compile(r"\..+\.[0-9a-f]{8}\.partial|\..+\.json(\.[0-9a-f]{16})?\.lock")
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room on the disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "change its permissions"),
    errno.EISDIR: "remove what is in its place",
}


class DamageError(ArgumentError):
    """What is wrong with the content of a file, without its name."""


class FileError(ArgumentError):
    """A file that is damaged, or not the one that was expected."""


def damaged(path: Path, why: object, remedy: str) -> FileError:
    """Return the error about a file that is not as it was written."""
    return FileError(f"{path} is damaged ({why}): {remedy}")


# Writing


def write(path: Path, *content: bytes | memoryview) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    with naming(path):
        with suppress(PermissionError):  # a folder that cannot be listed
            sweep(path.parent, path.name)
        try:
            with writing(partial):
                with open(partial, "wb") as file:
                    file.writelines(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def writing(partial: Path) -> Iterator[None]:
    """Lock a partial file while it is written, so that `sweep` leaves it alone; on Windows it does so anyway."""
    lock = FileLock(partial)
    with suppress(OSError):  # a disk without locks, where nothing is swept either
        if os.name == "posix":
            lock.acquire(blocking=False)
    try:
        yield
    finally:
        lock.release()


def sweep(folder: Path, of: str = "") -> None:
    """Remove partial files and locks of killed processes from a folder; with `of` only those of the file of that name.

    Those of living processes are locked, and stay.
    """
    for name in os.listdir(folder):
        if name.startswith(f".{of}") and _LEFT.fullmatch(name):
            with suppress(OSError):
                lock = FileLock(folder / name)
                lock.acquire(blocking=False)
                try:
                    (folder / name).unlink()
                finally:
                    lock.release()


def append(path: Path, content: bytes) -> None:
    """Append to a file; a crash may leave a part of the content there."""
    with naming(path), open(path, "ab") as file:
        file.write(content)


def sync(path: Path) -> None:
    """Flush a file to the disk."""
    with naming(path), open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file that cannot be written: the error of a full disk names none, or the partial file."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk")
        raise OSError(error.errno, f"{error.strerror}: could not be written, {advice}", str(path)) from None


# Tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Write dense tensors as a safetensors file with a checksum in its header, and return the checksum.

    Tensors on the CPU are not copied, and the same content makes the same bytes; safetensors' `save_file` shuffles the
    header.
    """
    stored = {name: _stored(name, value) for name, value in tensors.items()}
    found = checksum(header, stored)
    entries: dict[str, Any] = {"__metadata__": dict(sorted({**header, "checksum": found}.items()))}
    dtypes, end = _dtypes(stored), 0
    names = sorted(stored, key=lambda name: (-stored[name].element_size(), name))  # so all are aligned
    for name in names:
        start, end = end, end + stored[name].nbytes
        entries[name] = {"dtype": dtypes[name], "shape": list(stored[name].shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write(path, len(text).to_bytes(8, "little"), text, *(_bytes(stored[name]) for name in names))
    return found


def _stored(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        kind = f"a tensor with {value.layout}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise ArgumentError(f"the state {name!r} is {kind}: only dense tensors can be saved")
    return value.detach().cpu().contiguous()


def _dtypes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names of dtypes that safetensors has in its files."""
    empty = {name: torch.empty(0, dtype=value.dtype) for name, value in tensors.items()}
    try:
        packed = safetensors.torch.save(empty)
    except KeyError as error:  # from safetensors' table
        names = ", ".join(name for name, value in tensors.items() if value.dtype in error.args)
        raise ArgumentError(f"the state {names} has dtype {error}, which safetensors cannot hold") from None
    header = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])
    return {name: header[name]["dtype"] for name in tensors}


def _bytes(value: Tensor) -> memoryview:
    return value.reshape(-1).view(torch.uint8).numpy().data


def read_header(path: Path) -> dict[str, str]:
    """Return the header of a safetensors file, without a look at its tensors."""
    return read_tensors(path, header_only=True)[0]


def read_tensors(path: Path, header_only: bool = False) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a safetensors file; `check` compares them with their checksum.

    The file has to stay the same meanwhile: safetensors opens it twice, and it may be replaced between.
    """
    for tries in range(TRIES):
        before = _stamp(path)
        path.open("rb").close()  # an error of safetensors would not name the path
        try:
            with safe_open(path, framework="pt") as file:
                names = [] if header_only else list(file.keys())
                found = file.metadata() or {}, {name: file.get_tensor(name) for name in names}
            if _stamp(path) == before:
                return found
        except (SafetensorError, ValueError, RuntimeError) as error:  # dtypes and sizes that torch does not know too
            if memory.ran_out(error):
                raise
            # the first time it may have been a signal: safetensors makes another error of Ctrl-C
            if tries and _stamp(path) == before:
                size = path.stat().st_size
                raise DamageError(f"{size} bytes that are not a complete safetensors file: {error}") from None
    raise DamageError(f"it was replaced {TRIES} times while it was read")


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what identifies a file; what is not a regular one is refused, as opening a pipe would block."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise DamageError("it is not a file")
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def check(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    """Raise `DamageError` if tensors and header do not match the header's checksum."""
    if checksum(header, tensors) != header.get("checksum"):
        raise DamageError("its tensors do not match its checksum")


def checksum(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a header and of names, dtypes, shapes and bytes of tensors."""
    layout = [(name, str(value.dtype), tuple(value.shape)) for name, value in sorted(tensors.items())]
    digest = hashlib.sha256(repr([sorted({**header, "checksum": ""}.items()), layout]).encode())
    for name, *_ in layout:
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()
