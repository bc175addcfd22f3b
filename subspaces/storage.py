"""Families as files: one safetensors file, no pickle.

    vertex.<i>.<name>   vertex i under the network's own parameter names (tied weights once)
    shared.<name>       frozen parameters and persistent buffers
    rng                 the state of the family's random numbers

The header says which shape it is and holds a checksum over all tensors.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from subspaces import files, shapes
from subspaces.initial import Factory
from subspaces.shapes import Shape
from subspaces.subspace import Subspace
from subspaces.template import unwrapped

FORMAT = "subspaces"
VERSION = 1


class FileError(ValueError):
    """A file that is not a whole family, or not one of the given network."""


def save(module: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a family to one safetensors file; an existing file is replaced only by a complete one."""
    family = unwrapped(module)
    if not isinstance(family, Subspace):
        raise TypeError(f"save got a {type(family).__name__}: expected a Subspace; for a network save its state_dict()")
    target = Path(path)
    _check_target(target)
    tensors = {name: _stored(name, value) for name, value in _tensors(family).items()}
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "shape": json.dumps(_describe(family.shape)),
        "layerwise": json.dumps(family.layerwise),
        "penalised": json.dumps([e.names[0] for g in family.layout.groups if g.penalised for e in g.entries]),
        "groups": json.dumps({e.names[0]: g.label for g in family.layout.groups for e in g.entries}),
    }
    header["checksum"] = _checksum(header, tensors)
    content = _serialised(tensors, header)
    files.write(target, content)  # not by safetensors' save_file, which makes it unreadable for others


def load(path: str | os.PathLike[str], network: nn.Module | Factory, shape: Shape | None = None) -> Subspace:
    """Read a family back; `network` is a module of the same architecture (it is copied) or its factory.

    `shape` is needed only for a shape of your own. The family is on the network's device.
    """
    header, tensors = _read(Path(path))
    shape = _shape(header, shape, path)
    penalised, groups = set(json.loads(header["penalised"])), json.loads(header["groups"])
    family = Subspace(
        network,
        shape,
        json.loads(header["layerwise"]),
        init="point",
        penalised=lambda name, _: name in penalised,
        group=lambda name, _: groups.get(name, "unknown"),
        seed=0,
    )
    places = _tensors(family)
    _check_match(places, tensors, path)
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(tensors[name])
    return family


def _tensors(family: Subspace) -> dict[str, Tensor]:
    """Return all tensors of a family by their names in a file; writing into them writes into it."""
    found = {"rng": family.rng}
    for name, value in family.template.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise TypeError(f"the network's state {name!r} is a {type(value).__name__}: only tensors can be saved")
        found[f"shared.{name}"] = value
    for index in range(family.shape.vertices):
        vertex = family.vertex(index)
        entries = (entry for group in family.layout.groups for entry in group.entries)
        found |= {f"vertex.{index}.{entry.names[0]}": vertex[entry.names[0]] for entry in entries}
    return found


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"save to {target}, which is a folder: expected the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"save to {target}, but there is no folder {target.parent}: make it first")


def _stored(name: str, value: Tensor) -> Tensor:
    """Return a dense copy on the CPU."""
    if value.layout != torch.strided:
        raise TypeError(f"the network's {name} is {value.layout}: only dense tensors can be saved")
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _serialised(tensors: dict[str, Tensor], header: dict[str, str]) -> bytes:
    try:
        return safetensors.torch.save(tensors, header)
    except KeyError as error:  # from its table of dtypes
        names = ", ".join(name for name, value in tensors.items() if value.dtype in error.args)
        raise TypeError(f"the network's {names} has dtype {error}, which safetensors cannot hold") from None


def _ours(name: str) -> type[Shape] | None:
    """Return the shape of that name among those of this package."""
    kind = vars(shapes).get(name)
    return kind if isinstance(kind, type) and issubclass(kind, Shape) else None


def _describe(shape: Shape) -> dict[str, Any]:
    """Return name and fields as they come back from JSON; no other shape passes for one of ours."""
    name = type(shape).__name__
    kind = name if _ours(name) is type(shape) else f"custom {name}"
    described: dict[str, Any] = json.loads(json.dumps({"type": kind, **dataclasses.asdict(shape)}))
    return described


def _shape(header: dict[str, str], given: Shape | None, path: str | os.PathLike[str]) -> Shape:
    described = json.loads(header["shape"])
    if given is not None:
        if not isinstance(given, Shape):
            raise TypeError(f"shape={given!r}: expected the family's Shape, {described}, or none")
        if _describe(given) != described:
            raise FileError(
                f"{path} holds a family of shape {described}, not {_describe(given)}: pass that shape, or none"
            )
        return given
    fields = dict(described)
    kind = _ours(fields.pop("type"))
    if kind is None:
        raise FileError(f"{path} holds a family of shape {described}: pass it, load(path, network, shape=…)")
    return kind(**fields)


def _checksum(header: dict[str, str], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(sorted(item for item in header.items() if item[0] != "checksum")).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a file, or say why it is not a family."""
    path.open("rb").close()  # an error of safetensors would not name the path
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise FileError(
                    f"{path} is a safetensors file but not a family: expected one written by subspaces.save"
                )
            if not header.get("version", "").isdigit() or int(header["version"]) > VERSION:
                raise FileError(
                    f"{path} has format version {header.get('version')}, this is {VERSION}: upgrade subspaces"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        size = path.stat().st_size
        raise FileError(f"{path} ({size} bytes) is not a complete safetensors file: {error}") from None
    if _checksum(header, tensors) != header.get("checksum"):
        raise FileError(f"{path} is damaged: its tensors do not match its checksum; use another copy")
    return header, tensors


def _check_match(places: dict[str, Tensor], tensors: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Refuse a file whose tensors are not those of the network."""

    def describe(value: Tensor | None) -> str:
        return "missing" if value is None else f"{tuple(value.shape)} {value.dtype}"

    for name in [*places, *tensors]:
        expected, found = describe(places.get(name)), describe(tensors.get(name))
        if expected != found:
            raise FileError(
                f"{path} is a family of another network: {name} is {found} in the file and {expected} in the network"
            )
