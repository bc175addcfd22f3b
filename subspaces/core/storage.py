"""Families as files: one safetensors file, no pickle.

    vertex.<i>.<name>   vertex i under the network's own parameter names (tied weights once)
    shared.<name>       frozen parameters and persistent buffers
    rng                 the state of the family's random numbers

The header holds the shape and a checksum, and a fingerprint of each frozen parameter that was left out.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import checks, distributed, files
from subspaces.core.family import Subspace
from subspaces.core.files import DamageError, FileError
from subspaces.core.initial import Factory, GetGroups
from subspaces.core.layout import trainable
from subspaces.core.shapes import Bezier, Line, Point, Shape, Simplex
from subspaces.errors import ArgumentError

FORMAT, VERSION = "subspaces", "3"
REMEDY = "use another copy"
_SHAPES: dict[str, type[Shape]] = {kind.__name__: kind for kind in (Bezier, Line, Point, Simplex)}
_HEADER: dict[str, type] = {
    "shape": dict,
    "layerwise": bool,
    "penalised": list,
    "groups": dict,
    "options": list,
    "calibrated": bool,
    "frozen": dict,
}


def save(module: nn.Module, path: str | os.PathLike[str], shared: bool = True) -> str:
    """Write a family to one safetensors file, replacing an existing one only when complete, and return its checksum.

    The same family makes the same file, byte for byte. With `shared=False` its frozen parameters are left out, which
    makes a small file of a few trained weights on a large base; `load` takes them from the network that it is given.
    All ranks of a distributed family call it, and one writes.
    """
    return write(module, path, shared, {})


def write(module: nn.Module, path: str | os.PathLike[str], shared: bool, notes: Mapping[str, str]) -> str:
    """Write a family as `save` does, with notes in its header that `load` ignores."""
    family = distributed.unwrapped(module)
    if not isinstance(family, Subspace):
        raise ArgumentError(
            f"save got a {type(family).__name__}: expected a Subspace; for a network save its state_dict()"
        )
    target = checks.folder("path", path)
    distributed.on_first(family.mesh, lambda: _check_target(target))
    frozen = {} if checks.flag("shared", shared) else _frozen(family)
    tensors: dict[str, Tensor] = {}
    for name, value in _tensors(family):  # all ranks gather them, and one keeps them
        if name not in frozen and distributed.is_first(family.mesh):
            tensors[name] = value.detach().cpu()
    header = {
        **notes,
        "format": FORMAT,
        "version": VERSION,
        "shape": json.dumps(_describe(family.shape)),
        "layerwise": json.dumps(family.layerwise),
        "penalised": json.dumps([e.names[0] for g in family.layout.groups if g.penalised for e in g.entries]),
        "groups": json.dumps({e.names[0]: g.label for g in family.layout.groups for e in g.entries}),
        "options": json.dumps(family.options or [], default=float),  # of a tensor of one number
        "calibrated": json.dumps(family.is_calibrated),
        "frozen": json.dumps(frozen),
    }
    return distributed.on_first(family.mesh, lambda: files.write_tensors(target, tensors, header))


def load(
    path: str | os.PathLike[str], network: nn.Module | Factory, shape: Shape | None = None, *, verify: bool = True
) -> Subspace:
    """Read a family back.

    Args:
        path: a file that `save` has written.
        network: a module of the same architecture, which is copied, or its factory. The family is on its device. Of a
            file without frozen parameters these are the network's, and have to be those of the training.
        shape: needed only for a shape of your own.
        verify: compare the tensors with the file's checksum; False is quicker, for a file that you trust.
    """
    header, tensors = read(path, verify=verify)
    try:
        found = _parsed(header)
        shape = _shape(found["shape"], shape, path)
        _check_count(shape, tensors, path)
        get_groups = _group_maker(found["groups"], found["options"])
    except DamageError as error:
        raise files.damaged(Path(path), error, REMEDY) from None
    family = Subspace(
        network,
        shape,
        found["layerwise"],
        init="point",
        offset=0.0,
        penalised=lambda name, _: name in found["penalised"],
        groups=get_groups,
        seed=0,
    )
    frozen = found["frozen"]
    if frozen:
        _check_frozen(frozen, _frozen(family), path)
    places = {name: place for name, place in _tensors(family) if name not in frozen}
    _check_match(places, tensors, path)
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(tensors[name])
    family.keep_statistics(known=found["calibrated"])
    return family


def read(path: str | os.PathLike[str], verify: bool = True) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a family's file, or raise `FileError` if it is none."""
    place = checks.folder("path", path)
    checks.flag("verify", verify)
    if place.is_dir():
        raise IsADirectoryError(f"load from {path}, which is a folder: expected the file of a family")
    try:
        header, tensors = files.read_tensors(place)
        if header.get("format") != FORMAT:
            raise FileError(f"{path} is a safetensors file but not a family: expected one written by subspaces.save")
        if header.get("version") != VERSION:
            found = str(header.get("version"))[:20]
            raise FileError(
                f"{path} has format version {found}, expected {VERSION}: upgrade subspaces, or save an older file anew"
            )
        if verify:
            files.check(header, tensors)
    except DamageError as error:
        raise files.damaged(place, error, REMEDY) from None
    return header, tensors


def _tensors(family: Subspace) -> Iterator[tuple[str, Tensor]]:
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


def _frozen(family: Subspace) -> dict[str, str]:
    """Return shape, dtype and checksum of each frozen parameter by its name in a file."""
    found = {}
    for name, value in _shared(family).items():
        if isinstance(value, nn.Parameter):
            content = files.checksum({}, {name: value.detach().cpu().contiguous()})
            found[f"shared.{name}"] = f"{tuple(value.shape)} {value.dtype}, checksum {content}"
    return found


def _shared(family: Subspace) -> dict[str, Any]:
    """Return the network's state without the weights of a point, also inside `with family.point()`."""
    state = family.state_dict(keep_vars=True)
    return {name.removeprefix("template."): state[name] for name in state if name.startswith("template.")}


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"save to {target}, which is a folder: expected the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"save to {target}, but there is no folder {target.parent}: make it first")


# The header


def _describe(shape: Shape) -> dict[str, Any]:
    """Return name and fields as they come back from JSON; a shape of the user's that has the name of ours is custom."""
    name = type(shape).__name__
    kind = name if _SHAPES.get(name) is type(shape) else f"custom {name}"
    described: dict[str, Any] = json.loads(json.dumps({"type": kind, **dataclasses.asdict(shape)}))
    return described


def _parsed(header: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in _HEADER.items():
        try:
            value = json.loads(header[name])
        except (KeyError, ValueError, RecursionError):
            value = None
        if not isinstance(value, kind):
            given = str(header.get(name))[:40]
            raise DamageError(f"its header's {name!r} is {given!r}, expected a {kind.__name__}")
        found[name] = value
    return found


def _shape(described: dict[str, Any], given: Shape | None, path: str | os.PathLike[str]) -> Shape:
    if given is not None:
        if not isinstance(given, Shape):
            raise ArgumentError(f"shape={given!r}: expected the family's Shape, {described}, or none")
        if _describe(given) != described:
            raise FileError(
                f"{path} holds a family of shape {described}, not {_describe(given)}: pass that shape, or none"
            )
        return given
    fields = dict(described)
    kind = _SHAPES.get(str(fields.pop("type", None)))
    if kind is None:
        raise FileError(f"{path} holds a family of shape {described}: pass it, load(path, network, shape=…)")
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise DamageError(f"its header's shape is {described}: {error}") from None


def _group_maker(labels: dict[str, str], options: list[dict[str, Any]]) -> GetGroups | None:
    """Return a function that makes the optimiser groups of a file; None if `groups=` made none."""
    if not options:
        return None
    places = {f"group{index}": index for index in range(len(options))}
    strange = [label for label in labels.values() if label not in places]
    if strange or not all(isinstance(each, dict) and "params" not in each for each in options):
        raise DamageError(f"its header has {len(options)} optimiser groups, and {strange[:1]} is none of them")

    def get_groups(network: nn.Module) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{**_tuples(each), "params": []} for each in options]
        for names, parameter in trainable(network):  # one that is not in the file is refused with all its tensors
            found[places.get(labels.get(names[0], ""), 0)]["params"].append(parameter)
        return found

    return get_groups


def _tuples(value: Any) -> Any:
    """Return parsed JSON with tuples for lists, such as betas."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# Comparing a file with the network


def _check_count(shape: Shape, tensors: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Refuse a shape of more or fewer vertices than the file holds, before a family of that many is built."""
    there = len({name.split(".")[1] for name in tensors if name.startswith("vertex.")})
    if there not in (0, shape.vertices):  # a network without trainable parameters has none
        raise FileError(f"{path} holds {there} vertices, and its header says {shape}: {REMEDY}")


def _check_frozen(expected: dict[str, str], found: dict[str, str], path: str | os.PathLike[str]) -> None:
    """Refuse a network whose frozen parameters are not those that were left out of the file."""
    for name in [*expected, *found]:
        wanted, there = (str(each.get(name, "no frozen parameter"))[:200] for each in (expected, found))
        if wanted != there or name not in expected or name not in found:
            raise FileError(
                f"{path} was saved without its frozen parameters (shared=False), and the network's are others: "
                f"{name.removeprefix('shared.')} was {wanted}, and is {there}; load it with the network that the "
                "family was made of, or save it with shared=True"
            )


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
