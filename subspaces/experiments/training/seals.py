"""Seals: how the files of a run folder tell that they are whole, unchanged and in their place.

Each file carries its own, so that it is right at every moment, whenever a process is killed:

    *.json          an entry "seal": {file, run, digest, others}; others are the digests of files that it relies on
    *.safetensors   the header's file, run and checksum
    log.jsonl       an entry "seal" in each line: the digest of the line and of the seal before it (`Log`)

`run` is the key of the run's recipe. A seal finds damage and mistakes, not malice: whoever changes a file on purpose
can make its seal anew.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from subspaces.core import files
from subspaces.errors import ArgumentError, UserError

SEAL = "seal"


class RunError(UserError, RuntimeError):
    """A run folder that cannot be used."""


def damaged(path: Path, why: object, remedy: str) -> RunError:
    """Return the error about a file that is not as it was written."""
    return RunError(f"{path} is damaged ({why}): {remedy}")


def there(path: Path, remedy: str) -> bool:
    """Say whether a file is there; a folder, a pipe or a link to nothing in its place is damage."""
    if not path.is_file() and (path.exists() or path.is_symlink()):
        raise damaged(path, "it is not a file", remedy)
    return path.is_file()


def digest(*content: Any) -> str:
    """Return what tells values that JSON can hold from any others."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def write_json(path: Path, value: Any, run: str, others: Mapping[str, str] | None = None) -> None:
    """Write a mapping or a dataclass as a sealed JSON file; `others` are the digests of files that belong to it."""
    content = json.loads(files.to_json(value))  # as it is written: names of numbers become text
    seal = {"file": path.name, "run": run, "digest": digest(path.name, run, others or {}, content)}
    files.write(path, files.in_lines({**content, SEAL: {**seal, "others": dict(others or {})}}).encode())


class Sealed(NamedTuple):
    """What a sealed JSON file holds, the key of its run, and the digests of the files that it relies on."""

    content: dict[str, Any]
    run: str
    others: dict[str, str]


def read_json(path: Path, run: str | None, remedy: str) -> Sealed:
    """Return what a sealed JSON file holds; `run` is the key that it must have, None for any."""
    if not there(path, remedy):
        raise damaged(path, "it is not there", remedy)
    text = path.read_bytes()
    value = parse(text, path, remedy)
    seal = value.pop(SEAL, None)
    if not isinstance(seal, dict):
        why = "it has no seal, as those of earlier versions, whose families ss.load still reads"
        raise damaged(path, why, remedy)
    named, others = seal.get("run"), seal.get("others")
    if digest(path.name, named, others, value) != seal.get("digest") or seal.get("file") != path.name:
        raise damaged(path, "its content does not match its seal", remedy)
    if not isinstance(named, str) or not isinstance(others, dict) or named != (named if run is None else run):
        raise damaged(path, f"it is of the run {named}, not of {run}", remedy)
    return Sealed(files.from_json(value) if files.MARK in text else value, named, others)


def parse(content: bytes, where: object, remedy: str) -> dict[str, Any]:
    """Return JSON that must be an object."""
    try:
        value = json.loads(content, parse_int=_whole)
        if not isinstance(value, dict):
            raise ArgumentError(f"expected an object, found a {type(value).__name__}")
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is damaged ({error}): {remedy}") from None
    return value


def _whole(digits: str) -> int:
    """Return an integer of a JSON file; a larger one than any that is written cannot become a float or an array."""
    if len(digits) > 20:
        raise ArgumentError(f"a number of {len(digits)} digits")
    return int(digits)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str], run: str) -> None:
    """Write a sealed safetensors file."""
    files.write_tensors(path, tensors, {**header, "file": path.name, "run": run})


def read_tensors(path: Path, run: str | None, remedy: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a sealed safetensors file; `run` is the key that it must have, None for any."""
    try:
        header, tensors = files.read_tensors(path)
        files.check(header, tensors)
        if header.get("file") != path.name:
            raise files.DamageError(f"it was written as {header.get('file')}")
        if run is not None and header.get("run") != run:
            raise files.DamageError(f"it is of the run {header.get('run')}, not of {run}")
    except files.DamageError as error:
        raise damaged(path, error, remedy) from None
    return header, tensors
