"""Exported files as classifiers of images; nothing that is read is trusted to be what it says, but a .pt2 file.

A safetensors file of a few bytes can name a network of any size. That is built without memory first, on torch's `meta`
device, and for real only if the file holds its weights.
"""

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import checks, files, storage
from subspaces.core.ensemble import Ensemble
from subspaces.core.shapes import Line, Simplex
from subspaces.errors import ArgumentError
from subspaces.evaluation.tasks import Classification
from subspaces.export import ModelError, damaged
from subspaces.export.formats import quiet
from subspaces.export.inputs import Inputs
from subspaces.export.metadata import FILE, Metadata
from subspaces.export.onnx_files import in_short, read_onnx
from subspaces.export.points import Point, choose
from subspaces.export.program import Program
from subspaces.images.reading import DAMAGED
from subspaces.networks import registry
from subspaces.networks.factories import is_factory

HEADER = 1 << 23  # bytes of the description of the tensors, which takes many times that when it is read
Read = tuple[Metadata, Callable[..., Any]]


@dataclass(frozen=True)
class Model:
    """A classifier of images: a function of images, and of a family alpha, with what is known of it."""

    where: Path
    about: Metadata
    call: Callable[..., Any]
    alpha: Tensor | None = None

    @torch.no_grad()
    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return probabilities [n, classes] and, of an ensemble, disagreement [n]."""
        found = self.call(images) if self.alpha is None else self.call(images, self.alpha)
        found = found if isinstance(found, (tuple, list)) else [found]
        classes, n = len(self.about.classes), len(images)
        expected = [(n, classes), (n,)][: len(self.about.outputs)]
        if [tuple(each.shape) for each in found] != expected or not all(each.is_floating_point() for each in found):
            shapes = ", ".join(f"{tuple(each.shape)} {each.dtype}" for each in found)
            raise ModelError(f"{self.where} answers {n} images with {shapes}: expected {expected}; use another copy")
        return found[0], found[1] if len(found) > 1 else None


def read_model(path: str | os.PathLike[str], point: Point | None = None, trust: bool = False) -> Model:
    """Return the model in an exported file."""
    place = checks.folder("model", path)
    if not place.exists():
        raise FileNotFoundError(f"there is no {place}: expected a file of `subspaces export`, or the folder of a run")
    if not place.is_file():
        raise ModelError(f"{place} is no file: expected one of `subspaces export`, or the folder of a run")
    readers = {".onnx": lambda path, _: read_onnx(path), ".pt2": _read_pt2, ".safetensors": _read_weights}
    if (ending := place.suffix.lower()) not in readers:
        raise ModelError(
            f"{place} is no model: expected a .pt2, .onnx or .safetensors file of `subspaces export`, or a run"
        )
    about, call = readers[ending](place, trust)
    return Model(place, about, call, _alpha(about, point))


def _alpha(about: Metadata, point: Any) -> Tensor | None:
    """Return the point of a family, by default the midpoint; nothing else has points."""
    if about.kind != "family":
        if point is not None:
            raise ArgumentError(f"point={checks.shown(point)}: this export is {about.point}, and has no other point")
        return None
    chosen = choose(
        "midpoint" if point is None else point, Line() if about.domain == "number" else Simplex(int(about.domain))
    )
    if chosen.kind != "network":
        raise ArgumentError(f"point={checks.shown(point)}: expected 'midpoint' or one point")
    return torch.tensor(chosen.alphas[0], dtype=torch.float32)


def _read_pt2(path: Path, trust: bool) -> Read:
    """Read a .pt2 file, which torch may run code of while it reads it."""
    if trust is not True:
        raise ModelError(
            f"{path} is a .pt2 file, which runs code of whoever made it when it is read: pass --trust (trust=True) if "
            "you trust them, or use a .safetensors or .onnx export, which need no trust"
        )
    content, found = io.BytesIO(path.read_bytes()), {FILE: "{}"}
    try:
        with zipfile.ZipFile(content) as archive:
            if (broken := archive.testzip()) is not None:  # torch does not look at the checksums
                raise zipfile.BadZipFile(checks.shown(broken))
    except DAMAGED as error:
        raise damaged(path, in_short(error)) from None
    try:
        content.seek(0)
        with quiet():
            program = torch.export.load(content, extra_files=found).module()
        header = json.loads(found[FILE])
    except Exception as error:  # whatever torch makes of a file of another version
        raise ModelError(
            f"{path} cannot be read by torch {torch.__version__} ({in_short(error)}): use another copy, or the version "
            "of torch that it was exported with"
        ) from error

    def call(*inputs: Tensor) -> Any:
        try:
            return program(*inputs)
        except Exception as error:  # whatever the program does
            raise ModelError(f"{path} cannot be run ({in_short(error)}): use another copy") from error

    return Metadata.of(header, path), call


def _read_weights(path: Path, trust: bool) -> Read:
    """Read a safetensors file, and fill the network that it names."""
    with open(path, "rb") as file:
        if int.from_bytes(file.read(8), "little") > HEADER:
            raise damaged(path, f"its header has more than {HEADER:,} bytes")
    try:
        header, tensors = files.read_tensors(path)
        if header.get("format") == storage.FORMAT:
            raise ModelError(
                f"{path} holds the weights of a family, for `ss.load`: export a point of it, or the family as --format "
                "pt2 or onnx"
            )
        about = Metadata.of(header, path)
        files.check(header, tensors)
    except files.DamageError as error:
        raise damaged(path, error) from None
    if about.kind == "family":
        raise damaged(path, "its metadata says that it is a family")
    parts = [tensors] if about.kind == "network" else _members(path, tensors)
    networks = [_filled(path, about, each, trust) for each in parts]
    average: Any = "logits" if about.average == "logits" else "probabilities"
    outputs: Any = about.network_outputs or "logits"
    inputs = Inputs((torch.zeros(1, *about.image_shape),), {}, ("images",))
    ensemble = Ensemble(networks, average, outputs=outputs)
    several = about.kind == "ensemble"
    return about, Program(ensemble, inputs, Classification(), mean=about.mean, std=about.std, several=several).eval()


def _members(path: Path, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the tensors of each member of an ensemble."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, index, rest = f"{name}..".split(".", 2)
        found.setdefault(index if kind == "members" else "", {})[rest.removesuffix("..")] = value
    if not found or set(found) != set(map(str, range(len(found)))):
        raise damaged(path, "it holds no whole members")
    return [found[str(index)] for index in range(len(found))]


def _filled(path: Path, about: Metadata, tensors: Mapping[str, Tensor], trust: bool) -> nn.Module:
    """Return the network that the metadata names with these weights, which have to be all of its own."""
    foreign = is_factory(about.network)
    if foreign and trust is not True:
        module, _, factory = about.network.partition(":")
        raise ModelError(
            f"{path} names the network {about.network!r}; to build it would import module {module!r} and call "
            f"{factory!r}: pass --trust (trust=True) if you trust it"
        )

    def built() -> nn.Module:
        try:
            return registry.build(
                about.network,
                classes=len(about.classes),
                image_shape=tuple(about.image_shape),  # type: ignore[arg-type]
                dropout=about.dropout,
            )
        except ArgumentError as error:
            raise ModelError(
                f"{path} holds the weights of {about.network!r}, which cannot be built here ({error}): load them "
                "yourself, or export the network as --format pt2 or onnx"
            ) from None

    with torch.device("cpu" if foreign else "meta"):
        expected = built().state_dict()
    for name in [*expected, *tensors]:
        wanted, found = (_described(each.get(name)) for each in (expected, tensors))
        if wanted != found:
            raise ModelError(
                f"{path} holds other weights than those of {about.network!r}: {checks.shown(name)} is {found} in the "
                f"file and {wanted} in the network; use another copy"
            )
    network = built()
    network.load_state_dict(tensors, strict=True)
    return network.eval()


def _described(value: Tensor | None) -> str:
    """Return shape and type, which is the same for floats of any precision."""
    if value is None:
        return "missing"
    return f"{checks.shown(tuple(value.shape))} {'floats' if value.is_floating_point() else value.dtype}"
