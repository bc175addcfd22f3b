"""Files that are written whole or not at all, tensors with a checksum, and families as files.

A family is one safetensors file, no pickle:

    vertex.<i>.<name>   vertex i under the network's own parameter names (tied weights once)
    shared.<name>       frozen parameters and persistent buffers
    rng                 the state of the family's random numbers

A checksum is of the content alone, so a renamed or copied file is still itself. It finds damage, not malice.
"""

import dataclasses
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from subspaces.core import checks, distributed, memory
from subspaces.core.initial import Factory, GetGroups
from subspaces.core.shapes import Bezier, Line, Point, Shape, Simplex
from subspaces.errors import ArgumentError

Family = TypeVar("Family")
FORMAT, VERSION = "subspaces", "4"
TRIES = 100  # to read a file that others replace
_REMEDY = "use another copy"
_SHAPES: dict[str, type[Shape]] = {kind.__name__: kind for kind in (Bezier, Line, Point, Simplex)}
_LEFT = re.compile(r"\..+\.[0-9a-f]{8}\.partial|\..+\.json(\.[0-9a-f]{16})?\.lock")
_ABOUT = {"shape": dict, "layerwise": bool, "penalised": list, "groups": bool, "calibrated": bool, "frozen": str}


class DamageError(ArgumentError):
    """What is wrong with the content of a file, without its name."""


class FileError(ArgumentError):
    """A file that is damaged, or not the one that was expected.

    Example:
        >>> with contextlib.suppress(ss.FileError):
        ...     family = ss.load("another.safetensors", make_net)
    """


def damaged(path: Path, why: object, remedy: str) -> FileError:
    """Return the error about a file that is not as it was written."""
    return FileError(f"{path} is damaged ({why}): {remedy}")


# Families


def save(module: nn.Module, path: str | os.PathLike[str], shared: bool = True) -> str:
    """Write a family to one safetensors file, replacing an existing one only when complete, and return its checksum.

    The same family makes the same file, byte for byte. All ranks of a distributed family call it, and one writes. With
    `shared=False` its frozen parameters are left out, and `load` takes them from the network that it is given.

    Example:
        >>> checksum = ss.save(family, "family.safetensors")
    """
    family: Any = distributed.unwrapped(module)
    if not distributed.is_family(family):
        raise ArgumentError(f"save got a {type(family).__name__}: expected a Subspace; of a network, its state_dict()")
    target = checks.folder("path", path)
    frozen = {} if checks.flag("shared", shared) else _frozen(family)
    tensors: dict[str, Tensor] = {}
    for name, value in _tensors(family):  # all ranks gather them, and one keeps them
        if name not in frozen and distributed.is_first(family.mesh):
            tensors[name] = value.detach().cpu()
    about = {
        "shape": describe(family.shape),
        "layerwise": family.layerwise,
        "penalised": [e.names[0] for g in family.layout.groups if g.penalised for e in g.entries],
        "groups": family.options is not None,
        "calibrated": family.is_calibrated,
        "frozen": checksum({}, frozen) if frozen else "",
    }
    header = {"format": FORMAT, "version": VERSION, "family": json.dumps(about)}
    return distributed.on_first(family.mesh, lambda: write_tensors(target, tensors, header))


def load_as(
    kind: Callable[..., Family],
    path: str | os.PathLike[str],
    network: nn.Module | Factory,
    shape: Shape | None = None,
    *,
    groups: GetGroups | None = None,
    verify: bool = True,
) -> Family:
    """Read a family back; `kind` is `Subspace`, which is built on this file, or a subclass."""
    about, tensors = _read(path, verify)
    if about["groups"] and groups is None:
        raise FileError(f"{path} holds a family that was made with groups=: pass that function, load(…, groups=…)")
    shape = _shape(about["shape"], shape, path)
    there = len({name.split(".")[1] for name in tensors if name.startswith("vertex.")})
    if there not in (0, shape.vertices):  # before a family of that many is built
        raise FileError(f"{path} holds {there} vertices, and its header says {shape}: {_REMEDY}")
    options: dict[str, Any] = {"penalised": lambda name, _: name in about["penalised"], "groups": groups, "seed": 0}
    family = kind(network, shape, about["layerwise"], init="point", offset=0.0, **options)
    _fill(family, about, tensors, path)
    return family


def restore(family: Any, path: str | os.PathLike[str]) -> None:
    """Give a family the vertices, buffers and random numbers of a file of one with the same shape and network."""
    if family.mesh is not None:
        raise ArgumentError("restore got a distributed family: load the file first, and distribute what comes of it")
    about, tensors = _read(path, True)
    _shape(about["shape"], family.shape, path)
    _fill(family, about, tensors, path)


def _read(path: str | os.PathLike[str], verify: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what the header of a family's file says, and its tensors."""
    place = checks.folder("path", path)
    if place.is_dir():
        raise FileError(f"{path} is a folder: expected the file of a family, as subspaces.save writes it")
    try:
        header, tensors = read_tensors(place)
        if header.get("format") != FORMAT:
            raise FileError(f"{path} is a safetensors file but not a family: expected one written by subspaces.save")
        if header.get("version") != VERSION:
            found = str(header.get("version"))[:20]
            remedy = "load it with the release that wrote it, and carry its state_dict() over to a family of this one"
            raise FileError(f"{path} has format version {found}, expected {VERSION}: {remedy}")
        if checks.flag("verify", verify):
            check(header, tensors)
    except DamageError as error:
        raise damaged(place, error, _REMEDY) from None
    try:
        said = json.loads(header["family"])
        about = {name: said[name] for name in _ABOUT}
        for name, kind in _ABOUT.items():
            if not isinstance(about[name], kind):
                raise TypeError(f"{name} is {checks.shown(about[name])}")
        return about, tensors
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise damaged(place, f"its header: {error!r}"[:200], _REMEDY) from None


@torch.no_grad()
def _fill(family: Any, about: Mapping[str, Any], tensors: dict[str, Tensor], path: object) -> None:
    frozen = _frozen(family) if about["frozen"] else {}
    if about["frozen"] and checksum({}, frozen) != about["frozen"]:
        raise FileError(
            f"{path} was saved without its frozen parameters (shared=False), and the network's are others: load it "
            "with the network that the family was made of, or save it with shared=True"
        )
    places = {name: place for name, place in _tensors(family) if name not in frozen}
    for name in [*places, *tensors]:
        pair = (each.get(name) for each in (places, tensors))
        expected, found = ("missing" if each is None else f"{tuple(each.shape)} {each.dtype}" for each in pair)
        if expected != found:
            raise FileError(
                f"{path} is a family of another network: {name} is {found} in the file and {expected} in the network"
            )
    for name, place in places.items():
        place.copy_(tensors[name])
    family.keep_statistics(known=about["calibrated"])


def _tensors(family: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors of a family with their names in a file; they are views, into which `load` writes."""
    yield "rng", family.rng
    for name, value in _shared(family).items():
        if not isinstance(value, Tensor):
            raise ArgumentError(f"the network's state {name!r} is a {type(value).__name__}: only tensors can be saved")
        yield f"shared.{name}", value
    for index in range(family.shape.vertices):
        vertex = family.vertex(index)
        entries = (entry for group in family.layout.groups for entry in group.entries)
        yield from ((f"vertex.{index}.{entry.names[0]}", vertex[entry.names[0]]) for entry in entries)


def _frozen(family: Any) -> dict[str, Tensor]:
    """Return the frozen parameters by their names in a file."""
    found = {f"shared.{name}": value for name, value in _shared(family).items() if isinstance(value, nn.Parameter)}
    return {name: value.detach().cpu().contiguous() for name, value in found.items()}


def _shared(family: Any) -> dict[str, Any]:
    """Return the network's state without the weights of a point, also inside `with family.point()`."""
    state = family.state_dict(keep_vars=True)
    return {name.removeprefix("template."): state[name] for name in state if name.startswith("template.")}


def describe(shape: Shape) -> dict[str, Any]:
    """Return name and fields as they come back from JSON; a shape of the user's that has the name of ours is custom."""
    name = type(shape).__name__
    kind = name if _SHAPES.get(name) is type(shape) else f"custom {name}"
    found: dict[str, Any] = json.loads(json.dumps({"type": kind, **dataclasses.asdict(shape)}))
    return found


def _shape(described: dict[str, Any], given: Shape | None, path: object) -> Shape:
    if given is None:
        if (kind := _SHAPES.get(str(described.get("type")))) is None:
            raise FileError(f"{path} holds a family of shape {described}: pass it, load(path, network, shape=…)")
        try:
            return kind(**{name: value for name, value in described.items() if name != "type"})
        except TypeError as error:  # of fields that it does not have, or does not take
            raise damaged(Path(str(path)), f"its header: shape {error}"[:200], _REMEDY) from None
    if not isinstance(given, Shape):
        raise ArgumentError(f"shape={given!r}: expected the family's Shape, {described}, or none")
    if describe(given) != described:
        raise FileError(f"{path} holds a family of shape {described}, not {describe(given)}: pass that, or none")
    return given


# Tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Write dense tensors as a safetensors file with a checksum in its header, and return the checksum.

    Unlike those of `save_file` its bytes depend on the content alone, and its permissions are those of any new file.
    """
    stored = {name: _stored(name, value) for name, value in tensors.items()}
    found, end = checksum(header, stored), 0
    entries: dict[str, Any] = {"__metadata__": dict(sorted({**header, "checksum": found}.items()))}
    try:  # to name the dtypes as safetensors does
        packed = safetensors.torch.save({name: value.new_empty(0) for name, value in stored.items()})
    except KeyError as error:
        several = ", ".join(name for name, value in stored.items() if value.dtype in error.args)
        raise ArgumentError(f"the state {several} has dtype {error}, which safetensors cannot hold") from None
    dtypes = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])
    names = sorted(stored, key=lambda name: (-stored[name].element_size(), name))  # so all are aligned
    for name in names:
        start, end = end, end + stored[name].nbytes
        shape = list(stored[name].shape)
        entries[name] = {"dtype": dtypes[name]["dtype"], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write(path, len(text).to_bytes(8, "little"), text, *(_bytes(stored[name]) for name in names))
    return found


def _stored(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        kind = f"a tensor with {value.layout}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise ArgumentError(f"the state {name!r} is {kind}: only dense tensors can be saved")
    return value.detach().cpu().contiguous()


def read_tensors(path: Path, header_only: bool = False) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a safetensors file; `check` compares them with their checksum."""
    for tries in range(TRIES):
        before = _stamp(path)
        path.open("rb").close()  # an error of safetensors would not name the path
        try:
            with safe_open(path, framework="pt") as file:
                names = [] if header_only else list(file.keys())
                found = file.metadata() or {}, {name: file.get_tensor(name) for name in names}
            if _stamp(path) == before:  # safetensors opens a file twice, and it may be replaced between
                return found
        except (SafetensorError, ValueError, RuntimeError) as error:  # dtypes and sizes that torch does not know too
            if memory.ran_out(error):
                raise
            if tries and _stamp(path) == before:  # the first time it may be Ctrl-C, of which safetensors makes another
                raise DamageError(f"{before[-1]} bytes that are not a complete safetensors file: {error}") from None
    raise DamageError(f"it was replaced {TRIES} times while it was read")


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what identifies a file; what is not a regular one is refused, as opening a pipe would block."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise DamageError("it is not a file")
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def read_header(path: Path) -> dict[str, str]:
    """Return the header of a safetensors file, without a look at its tensors."""
    return read_tensors(path, header_only=True)[0]


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


def _bytes(value: Tensor) -> memoryview:
    return value.reshape(-1).view(torch.uint8).numpy().data


# Any file


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
    """Remove what killed processes left in a folder, or of one file there; what living ones write is locked."""
    for name in os.listdir(folder):
        if name.startswith(f".{of}") and _LEFT.fullmatch(name):
            with suppress(OSError), FileLock(folder / name, blocking=False):
                (folder / name).unlink()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file that cannot be written: the error of a full disk names none, or the partial file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: could not be written", str(path)) from None
