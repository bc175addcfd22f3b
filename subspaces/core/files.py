"""Files that are written whole or not at all, with a checksum of their content, and locks between processes.

    *.json          an entry "sha256" over all others (`write_checked`, `read_checked`)
    *.safetensors   an entry "checksum" of the header, over the other entries and all tensors (`write_tensors`, `check`)

The checksums are of the content alone: a renamed or copied file is still itself. They find damage, not malice.
"""

import dataclasses
import errno
import hashlib
import json
import math
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from torch import Tensor

from subspaces.core import devices
from subspaces.errors import ArgumentError

TRIES = 100  # to read or lock what others replace or remove
_LEFT = re.compile(r"\..+\.[0-9a-f]{8}\.partial|\..+\.json(\.[0-9a-f]{16})?\.lock")
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "could not be written, make room on the disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "could not be written, change its permissions"),
    errno.EISDIR: "could not be written, remove what is in its place",
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
    with _named(path):
        with suppress(PermissionError):  # a folder that cannot be listed
            sweep(path.parent, path.name)
        try:
            with writing(partial):
                with open(partial, "wb") as file:
                    for part in content:
                        file.write(part)
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


def append(path: Path, content: bytes) -> None:
    """Append to a file; a crash may leave a part of the content there."""
    with _named(path), open(path, "ab") as file:
        file.write(content)


def sync(path: Path) -> None:
    """Flush a file to the disk."""
    with _named(path), open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file that cannot be written: the error of a full disk names none, or the partial file."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "could not be written, check the disk")
        raise OSError(error.errno, f"{error.strerror}: {advice}", str(path)) from None


# JSON

CHECKSUM = "sha256"
MARK = b'"float"'
"""Part of every text in which `to_json` wrote a NaN or an infinity."""


def write_json(path: Path, value: Any) -> None:
    """Write a value as an indented JSON file without a checksum, for people and other programs."""
    write(path, (to_json(value, indent=2) + "\n").encode())


def write_checked(path: Path, value: Any) -> None:
    """Write a mapping or a dataclass as a JSON file with a checksum; `read_checked` reads it."""
    content = json.loads(to_json(value))  # as it is read: the keys of a dict become text
    write(path, in_lines({**content, "sha256": _sha256(content)}).encode())


def read_checked(path: Path) -> dict[str, Any]:
    """Return the content of a file of `write_checked`, or raise `DamageError` if it is not as it was written."""
    if not path.is_file() and (path.exists() or path.is_symlink()):
        raise DamageError("it is not a file")
    try:
        text = path.read_bytes()
        content = json.loads(text, parse_int=_integer)
    except FileNotFoundError:
        raise DamageError("it is not there") from None
    except (ValueError, RecursionError) as error:
        raise DamageError(f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DamageError(f"expected an object, found a {type(content).__name__}")
    if content.pop("sha256", None) != _sha256(content):
        raise DamageError("its content does not match its checksum")
    found: dict[str, Any] = from_json(content) if MARK in text else content
    return found


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _integer(digits: str) -> int:
    """Return an integer of a JSON file; a longer one than any that is written cannot become a float or a tensor."""
    if len(digits) > 20:
        raise ArgumentError(f"a number of {len(digits)} digits")
    return int(digits)


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with {"float": "nan"} and the like for the numbers that JSON does not have."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value with dicts for dataclasses, and without NaN and infinity."""
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
    """Return JSON with a line for each entry, and for each row of a table, which is quicker than an indent."""

    def entry(each: Any) -> str:
        rows = isinstance(each, list) and each and isinstance(each[0], (dict, list))
        return "[\n" + ",\n".join(map(json.dumps, each)) + "\n]" if rows else json.dumps(each)

    return "{\n" + ",\n".join(f"{json.dumps(name)}: {entry(each)}" for name, each in value.items()) + "\n}\n"


def from_json(value: Any) -> Any:
    """Return what `to_json` was given, from parsed JSON."""
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {name: from_json(each) for name, each in value.items()}
    nested = isinstance(value, list) and not {dict, list}.isdisjoint(map(type, value))  # most are lists of numbers
    return [from_json(each) for each in value] if nested else value


# Lines of JSON that are added one by one, each with a checksum


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append a mapping to a file as a line of JSON with a checksum, in place of what is left of an unfinished line."""
    content = json.loads(json.dumps(value))
    if path.exists() and (whole := _whole_lines(path)) < path.stat().st_size:
        os.truncate(path, whole)
    append(path, json.dumps({**content, CHECKSUM: _sha256(content)}).encode() + b"\n")


def _whole_lines(path: Path) -> int:
    """Return where the last whole line of a file ends."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        return size if file.read() == b"\n" else path.read_bytes().rfind(b"\n") + 1


def read_lines(path: Path, remedy: str) -> list[dict[str, Any]]:
    """Return what `append_line` has written, without a last line that was not written to its end.

    Any other damage is a `FileError` that names the file and the number of the line.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ArgumentError("it is not a file")
        *lines, last = path.read_bytes().split(b"\n")
    except (OSError, ArgumentError) as error:
        raise damaged(path, error, remedy) from None
    found = []
    for number, line in enumerate([*lines, *([last] if last else [])], 1):
        try:
            if number > len(lines) and _is_cut_off(line):
                break
            found.append(_checked(line))
        except (ValueError, RecursionError) as error:
            raise damaged(path, f"line {number}: {error}", remedy) from None
    return found[: len(lines)]


def _checked(text: bytes) -> dict[str, Any]:
    """Return the content of a JSON object, without the checksum that it must have."""
    content = json.loads(text, parse_int=_integer)
    if not isinstance(content, dict):
        raise ArgumentError(f"expected an object, found a {type(content).__name__}")
    if content.pop(CHECKSUM, None) != _sha256(content):
        raise ArgumentError("its content does not match its checksum")
    return content


def _is_cut_off(line: bytes) -> bool:
    """Return whether a line without its end may be the beginning of one that `append_line` was writing."""
    try:
        json.JSONDecoder(parse_int=_integer).raw_decode(line.decode("ascii"))
    except json.JSONDecodeError:
        return line[:2] in (b"{", b'{"')
    return False


# Tensors


def stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return dense tensors on the CPU as a file takes them; those that are there already are not copied."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            kind = f"a tensor with {value.layout}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ArgumentError(f"the state {name!r} is {kind}: only dense tensors can be saved")
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Write tensors that `stored` has returned as a safetensors file with a checksum in its header, and return that.

    Nothing is copied, and the same content makes the same bytes; safetensors' `save_file` shuffles the header.
    """
    found = checksum(header, tensors)
    entries: dict[str, Any] = {"__metadata__": dict(sorted({**header, "checksum": found}.items()))}
    dtypes, end = _dtypes(tensors), 0
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so all are aligned
    for name in names:
        start, end = end, end + tensors[name].nbytes
        entries[name] = {"dtype": dtypes[name], "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write(path, len(text).to_bytes(8, "little"), text, *(_bytes(tensors[name]) for name in names))
    return found


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
    return _opened(path, names_only=True)[0]


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a safetensors file; `check` compares them with their checksum."""
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


def fingerprint(name: str, value: Tensor) -> str:
    """Return the shape and dtype of a tensor, and a checksum of its name and content, in words."""
    found = checksum({}, stored({name: value}))
    return f"{tuple(value.shape)} {value.dtype}, checksum {found}"


# Locks between processes, and what killed processes leave


def this_process() -> str:
    """Return what `attempt` calls this process."""
    return f"process {os.getpid()}"


@contextmanager
def attempt(path: Path, keep: bool = True) -> Iterator[str | None]:
    """Lock a file if no other process has it locked, and yield None, or else the name of that process.

    The folder is made if need be. The lock ends with the process, however that ends; with `keep=False` the file is
    removed at the end.
    """
    lock = _acquired(path, blocking=False)
    if lock is None:
        yield _holder(path)
        return
    try:
        with suppress(OSError):  # a full disk; the lock holds nevertheless
            path.write_text(f"{os.getpid()} {socket.gethostname()}")
        yield None
    finally:
        with suppress(OSError):
            os.truncate(path, 0) if keep else path.unlink()
        lock.release()


@contextmanager
def waited(path: Path) -> Iterator[None]:
    """Lock a file, after other processes if need be, and remove it at the end."""
    lock = _acquired(path, blocking=True)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        if lock is not None:
            lock.release()


def _acquired(path: Path, blocking: bool) -> FileLock | None:
    """Return the lock of a file, or None if another process has it and it is not waited for."""
    for tries in range(TRIES):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise OSError(f"{path} is a link or no file: expected a lock that is made here; remove it")
        try:
            lock = FileLock(path)
            lock.acquire(blocking=blocking, poll_interval=0.01)
            return lock
        except Timeout:
            return None
        except FileNotFoundError:  # another process has just removed the folder
            if tries == TRIES - 1:
                raise
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
                advice = "change its permissions, or work with a copy"
                raise OSError(f"{path.parent} cannot be written to ({error.strerror}): {advice}") from None
            raise OSError(f"{path} cannot be locked ({error.strerror}): choose a folder on another disk") from None
    return None


def _holder(path: Path) -> str:
    """Return the name of the process that has written into a lock file."""
    try:
        number, _, host = path.read_bytes()[:200].decode(errors="replace").partition(" ")
    except OSError:
        number = host = ""
    elsewhere = f" on {host}" if host not in ("", socket.gethostname()) else ""
    return f"process {number or '?'}{elsewhere}"


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


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder, or sweep one that is there; at the end remove what was made here and is still empty."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # whoever needs the folder reports what is wrong with it
            sweep(folder)
        yield
    finally:
        for each in new:
            with suppress(OSError):
                each.rmdir()
