"""Weights as what predicts: the network that their file names, built and filled.

A file of a few bytes can name a network of any size. It is built without memory first, on torch's `meta` device, and
for real only if the file holds its weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from subspaces.core import checks, files, storage
from subspaces.core.batchnorm import tracked
from subspaces.errors import ArgumentError
from subspaces.export.answers import answer_of
from subspaces.export.errors import ModelError
from subspaces.export.metadata import FORMAT, VERSION, Metadata
from subspaces.export.models import Call, Model
from subspaces.export.programs import channels
from subspaces.networks import registry
from subspaces.networks.factories import is_factory

HEADER = 1 << 23  # bytes of the description of the tensors, which takes many times that when it is read
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_weights(path: Path, trust: bool) -> Model:
    """Return the model of a safetensors file."""
    with open(path, "rb") as file:
        if int.from_bytes(file.read(8), "little") > HEADER:
            raise ModelError(f"{path} is damaged (its header has more than {HEADER:,} bytes): use another copy")
    try:
        header, tensors = files.read_tensors(path)
        if header.get("format") == storage.FORMAT:
            return _family(path, header, tensors, trust)
        about = Metadata.of(header, path)
        _check_types(path, tensors)
        files.check(header, tensors)
    except files.DamageError as error:
        raise ModelError(f"{path} is damaged ({error}): use another copy") from None
    if about.kind == "network":
        networks = [_network(path, about, tensors, trust)]
    elif about.kind == "ensemble":
        networks = [_network(path, about, each, trust) for each in _members(path, tensors)]
    else:
        raise ModelError(f"{path} is damaged (its metadata says that it is a family): use another copy")
    return Model(path, about, _called(networks, about))


def _called(networks: Sequence[nn.Module], about: Metadata) -> Call:
    """Return networks as what a model calls; a family takes alpha as well."""
    answer = answer_of(None, about.network_outputs or "logits")  # type: ignore[arg-type]
    average = "" if about.kind != "ensemble" else "logits" if about.average == "logits" else "probabilities"
    answer = replace(answer, average=average)
    mean, std = (channels(each, 4) if each else None for each in (about.mean, about.std))

    def call(images: Tensor, *alpha: Tensor) -> list[Tensor]:
        scaled = images if mean is None or std is None else (images - mean) / std
        at = {"alpha": alpha[0]} if alpha else {}
        return list(answer([network(scaled, **at) for network in networks]).values())

    return call


def _members(path: Path, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the tensors of each member of an ensemble."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        index, _, rest = rest.partition(".")
        found.setdefault(index if kind == "members" else "", {})[rest] = value
    if set(found) != {str(index) for index in range(len(found))} or not found:
        raise ModelError(f"{path} is damaged (it holds no whole members): use another copy")
    return [found[str(index)] for index in range(len(found))]


def _family(path: Path, header: dict[str, str], tensors: dict[str, Tensor], trust: bool) -> Model:
    """Return a family that needs no statistics, at a point that is given later."""
    notes = {name.removeprefix("export."): value for name, value in header.items() if name.startswith("export.")}
    if not notes:
        raise ModelError(f"{path} is a family without its network: export it, `subspaces export RUN --point family`")
    about = Metadata.of({**notes, "format": FORMAT, "version": str(VERSION)}, path)
    if about.kind != "family":
        raise ModelError(f"{path} is damaged (its metadata says that it is a {about.kind}): use another copy")
    _check_types(path, tensors)
    sketch = _sketch(path, about, trust)
    if tracked(sketch):
        raise ModelError(
            f"{path} holds the weights of a family with batch norm, whose statistics belong to a point: export a "
            "point, or the family as --format pt2 or onnx, which hold statistics for all of it"
        )
    vertices = [value.numel() for name, value in tensors.items() if name.startswith("vertex.")]
    first = {name.removeprefix("vertex.0."): each for name, each in tensors.items() if name.startswith("vertex.0.")}
    shared = {name.removeprefix("shared."): each for name, each in tensors.items() if name.startswith("shared.")}
    once = {name for named in (sketch.named_parameters(), sketch.named_buffers()) for name, _ in named}  # tied weights
    expected = {name: value for name, value in sketch.state_dict().items() if name in once}
    _check_match(path, about, expected, {**first, **shared})
    count = len({name.split(".")[1] for name in tensors if name.startswith("vertex.")})
    if not first or sum(vertices) != count * sum(each.numel() for each in first.values()):
        raise ModelError(f"{path} is damaged (its vertices are of several sizes): use another copy")
    family = storage.load(path, _built(path, about, trust)).eval()
    return Model(path, about, _called([family], about))


def _built(path: Path, about: Metadata, trust: bool) -> nn.Module:
    """Return the network that the metadata names, if it may be built."""
    if is_factory(about.network) and trust is not True:
        module, _, factory = about.network.partition(":")
        raise ModelError(
            f"{path} names the network {about.network!r}; to build it would import module {module!r} and call "
            f"{factory!r}: pass --trust (trust=True) if you trust it"
        )
    shape = (about.image_shape[0], about.image_shape[1], about.image_shape[2])
    try:
        return registry.build(about.network, classes=len(about.classes), image_shape=shape, dropout=about.dropout)
    except ArgumentError as error:
        raise ModelError(
            f"{path} holds the weights of {about.network!r}, which cannot be built here ({error}): load them yourself, "
            "or export the network as --format pt2 or onnx"
        ) from None


def _sketch(path: Path, about: Metadata, trust: bool) -> nn.Module:
    """Return the network without memory for its weights; one of somebody else's, who is trusted, as it is."""
    if is_factory(about.network):
        return _built(path, about, trust)
    with torch.device("meta"):
        return _built(path, about, trust)


def _network(path: Path, about: Metadata, tensors: Mapping[str, Tensor], trust: bool) -> nn.Module:
    """Return the network with these weights, in its own precision."""
    _check_match(path, about, _sketch(path, about, trust).state_dict(), tensors)
    network = _built(path, about, trust)
    network.load_state_dict(tensors, strict=True)
    return network.eval()


def _check_match(path: Path, about: Metadata, expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those expected, by name and shape; those of floats may have another precision."""

    def described(value: Tensor | None) -> str:
        if value is None:
            return "missing"
        return f"{checks.shown(tuple(value.shape))} {'floats' if value.is_floating_point() else value.dtype}"

    for name in [*expected, *tensors]:
        wanted, found = described(expected.get(name)), described(tensors.get(name))
        if wanted != found:
            raise ModelError(
                f"{path} holds other weights than those of {about.network!r}: {checks.shown(name)} is {found} in the "
                f"file and {wanted} in the network; use another copy"
            )


def _check_types(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse numbers that no network here computes with."""
    for name, value in tensors.items():
        if value.dtype not in (*FLOATS, torch.int64, torch.bool, torch.uint8):
            raise ModelError(
                f"{path} holds {checks.shown(name)} as {value.dtype}: expected weights of float16, bfloat16, float32 "
                "or float64; use another copy"
            )
