"""Files that are either whole or not there, and tensors in them that tell when they have been changed."""

import dataclasses
import errno
import hashlib
import json
import math
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
from safetensors import SafetensorError, safe_open
from torch import Tensor

from subspaces.core import devices, locks
from subspaces.errors import ArgumentError

_LEFT = re.compile(r"\..+\.[0-9a-f]{8}\.partial|\..+\.json(\.[0-9a-f]{16})?\.lock")


TRIES = 100  # to read a file that others replace
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "could not be written, make room on the disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "could not be written, change its permissions"),
    errno.EISDIR: "could not be written, remove what is in its place",
}


class DamageError(ArgumentError):
    """Says what is wrong with the content of a file, without its name."""


def write(path: Path, *content: bytes | memoryview) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    swept = False
    with _named(path):
        with suppress(OSError):  # what a killed process left of this very file; whoever cannot look says so below
            sweep(path.parent, path.name)
        try:
            with open(partial, "xb") as file:
                with suppress(OSError):  # on a disk without locks nothing is swept either
                    locks.hold(file.fileno())
                for part in content:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.replace(partial, path)
            except FileNotFoundError:
                swept = path.parent.is_dir()  # in the moment before it was held, or after
                if not swept:
                    raise
        finally:
            partial.unlink(missing_ok=True)
    if swept:
        write(path, *content)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file; a crash may leave a part of it there."""
    with _named(path), open(path, "ab") as file:
        file.write(content)


def sync(path: Path) -> None:
    """Bring what was added to a file to the disk."""
    with _named(path), open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file that cannot be written: a full disk names none, and nobody knows the partial one."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "could not be written, check the disk")
        raise OSError(error.errno, f"{error.strerror}: {advice}", str(path)) from None


def write_json(path: Path, value: Any) -> None:
    """Write a value as an indented JSON file."""
    write(path, (to_json(value, indent=2) + "\n").encode())


MARK = b'"float"'
"""What every text has in which `to_json` wrote a number that JSON does not know."""


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, which knows no NaN and no infinity: such a number becomes {"float": "nan"}."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value, also a dataclass, as what JSON knows."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        finite = set(map(type, value)) == {float} and all(map(math.isfinite, value))  # most are lists of numbers
        return value if finite else [_plain(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    return value


def in_lines(value: Mapping[str, Any]) -> str:
    """Return what JSON holds with a line for each entry, and for each part of a list: as readable, and quickly made."""

    def entry(name: str, each: Any) -> str:
        parts = isinstance(each, list) and each and isinstance(each[0], (dict, list))
        text = "[\n" + ",\n".join(map(json.dumps, each)) + "\n]" if parts else json.dumps(each)
        return f"{json.dumps(name)}: {text}"

    return "{\n" + ",\n".join(entry(name, each) for name, each in value.items()) + "\n}\n"


def from_json(value: Any) -> Any:
    """Return what `to_json` was given, from what JSON gives."""
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {name: from_json(each) for name, each in value.items()}
    nested = isinstance(value, list) and not {dict, list}.isdisjoint(map(type, value))  # most are lists of numbers
    return [from_json(each) for each in value] if nested else value


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Write a safetensors file with a checksum in its header, and return that.

    The same tensors and header make the same bytes: safetensors' own writer has another order of the header each time.
    """
    header = {**header, "layout": _layout(tensors)}
    found = checksum(header, tensors)
    try:
        packed = memoryview(safetensors.torch.save(dict(tensors), {**header, "checksum": found}))
    except KeyError as error:  # from safetensors' table of dtypes
        names = ", ".join(name for name, value in tensors.items() if value.dtype in error.args)
        raise ArgumentError(f"the state {names} has dtype {error}, which safetensors cannot hold") from None
    end = 8 + int.from_bytes(packed[:8], "little")
    names = json.loads(bytes(packed[8:end]))
    names["__metadata__"] = dict(sorted(names["__metadata__"].items()))
    text = json.dumps(names, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors stay aligned
    write(path, len(text).to_bytes(8, "little"), text, packed[end:])
    return found


def read_header(path: Path) -> dict[str, str]:
    """Return the header of a safetensors file; whether its tensors are right is not looked at."""
    return _opened(path, names_only=True)[0]


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a safetensors file; `check` says whether they belong together."""
    return _opened(path, names_only=False)


def _opened(path: Path, names_only: bool) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read a file that stays the same meanwhile: safetensors opens it twice, and it may be replaced between."""
    for tries in range(TRIES):
        before = _stamp(path)
        path.open("rb").close()  # an error of safetensors would not name the path
        try:
            with safe_open(path, framework="pt") as file:
                names = [] if names_only else list(file.keys())
                found = file.metadata() or {}, {name: file.get_tensor(name) for name in names}
            if _stamp(path) == before:
                return found
        except (SafetensorError, ValueError, RuntimeError) as error:  # dtypes and sizes that torch does not know too
            if devices.ran_out(error):
                raise
            # once it may also have been a signal: safetensors makes another error of Ctrl-C
            if tries and _stamp(path) == before:
                size = path.stat().st_size
                raise DamageError(f"{size} bytes that are not a complete safetensors file: {error}") from None
    raise DamageError(f"it was replaced {TRIES} times while it was read")


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what tells a file from another of its name; what is no file is refused: a pipe would be waited for."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise DamageError("it is not a file")
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def check(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors and a header that are not those the checksum was made of."""
    same = header.get("layout") in (None, _layout(tensors))  # files of earlier versions have none
    if not same or checksum(header, tensors) != header.get("checksum"):
        raise DamageError("its tensors do not match its checksum")


def checksum(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Return what tells the bytes of these tensors under this header from any others."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(sorted(item for item in header.items() if item[0] != "checksum")).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def fingerprint(name: str, value: Tensor) -> str:
    """Return what tells a tensor from any other: shape and type in words, and a checksum of name, layout and bytes."""
    dense = {name: value.detach().cpu().contiguous()}
    found = checksum({"layout": _layout(dense)}, dense)
    return f"{tuple(value.shape)} {value.dtype}, checksum {found}"


def _layout(tensors: Mapping[str, Tensor]) -> str:
    """Return what tells these types and shapes from any others with the same bytes."""
    listed = [(name, str(value.dtype), tuple(value.shape)) for name, value in sorted(tensors.items())]
    return hashlib.blake2b(repr(listed).encode(), digest_size=16).hexdigest()


def stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies on the CPU, as a file takes them; all of them have to be dense tensors."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            kind = f"a tensor with {value.layout}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ArgumentError(f"the state {name!r} is {kind}: only dense tensors can be saved")
    return {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}


def sweep(folder: Path, of: str = "") -> None:
    """Remove what killed processes left in a folder: files that were not written to their end, and locks beside others.

    Those of a living process are held, and stay. With `of` only what is left of that file is looked at.
    """
    for name in os.listdir(folder):
        if name.startswith(f".{of}") and _LEFT.fullmatch(name):
            with suppress(OSError), open(folder / name, "rb+") as file:
                found = os.stat(folder / name, follow_symlinks=False)
                if locks.hold(file.fileno()) and os.path.samestat(found, os.fstat(file.fileno())):
                    (folder / name).unlink()


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder, or sweep one that is there; at the end remove what was made here and is still empty."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # whoever needs the folder says what is wrong with it
            sweep(folder)
        yield
    finally:
        for each in new:
            with suppress(OSError):
                each.rmdir()
