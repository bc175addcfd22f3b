"""Exports and run folders as what predicts; nothing that is read is trusted to be what it says."""

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subspaces import files, storage, values
from subspaces.data.dataset import Progress
from subspaces.ensembles import Ensemble
from subspaces.networks import registry
from subspaces.networks.factories import is_factory
from subspaces.norms import tracked
from subspaces.points import to_alpha
from subspaces.production import archives
from subspaces.production.choosing import Point
from subspaces.production.errors import ModelError, install
from subspaces.production.exporting import of_run
from subspaces.production.formats import unchanged
from subspaces.production.metadata import FILE, FORMAT, VERSION, Metadata
from subspaces.production.programs import OneNetwork, Program, Several
from subspaces.shapes import Line, Shape, Simplex

Call = Callable[..., Sequence[Tensor]]
"""From images, and of a family alpha, to probabilities, and of an ensemble disagreement."""


@dataclass(frozen=True)
class Model:
    """Something that predicts."""

    about: Metadata
    call: Call
    alpha: Tensor | None = None

    @torch.no_grad()
    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return probabilities [n, classes] and, of an ensemble, disagreement [n]."""
        said = self.call(images) if self.alpha is None else self.call(images, self.alpha)
        classes, n = len(self.about.classes), len(images)
        shapes = [(n, classes), (n,)][: len(self.about.outputs)]
        if [tuple(each.shape) for each in said] != shapes:
            found = ", ".join(str(tuple(each.shape)) for each in said)
            raise ModelError(f"the program answers {n} images with {found}: expected {shapes}; use another copy")
        return said[0], said[1] if len(said) > 1 else None


def open_model(
    path: str | os.PathLike[str],
    *,
    point: Point | None = None,
    data: str | os.PathLike[str] | None = None,
    trust: bool = False,
    progress: Progress,
) -> Model:
    """Return the model of an exported file, or of a point of a run folder."""
    place = values.folder("model", path)
    if not place.exists():
        raise FileNotFoundError(f"there is no {place}: expected a file of `subspaces export`, or the folder of a run")
    if place.is_dir():
        if not (place / "config.json").exists():
            raise ModelError(f"{place} is a folder without a run: expected one with, or a file of `subspaces export`")
        chosen = "midpoint" if point is None else point
        if isinstance(chosen, str) and chosen == "family":
            raise ValueError("point='family': which network shall answer? Expected 'midpoint' or a point such as 0.3")
        made, _ = of_run(place, chosen, None, data, trust, progress)
        return Model(made.about, _called(made.program))
    if not place.is_file():
        raise ModelError(f"{place} is no file: expected one of `subspaces export`, or the folder of a run")
    with open(place, "rb") as file:
        start = file.read(9)
    ending = place.suffix.lower()
    if start[:4] == b"PK\x03\x04" or ending == ".pt2":
        model = _pt2(place, trust)
    elif start[8:9] == b"{" or ending == ".safetensors":
        model = _safetensors(place, trust)
    elif ending == ".onnx":
        model = _onnx(place)
    else:
        raise ModelError(
            f"{place} is no model: expected a .pt2, .onnx or .safetensors file of `subspaces export`, or a run"
        )
    return _at(model, point)


def _at(model: Model, point: Point | None) -> Model:
    """Return a family at a point, by default in the middle; nothing else has points."""
    if model.about.kind != "family":
        if point is not None:
            raise ValueError(f"point={values.shown(point)}: this export is {model.about.point}, and has no other point")
        return model
    shape: Shape = Line() if model.about.domain == "number" else Simplex(int(model.about.domain))
    given: Any = shape.midpoint() if point is None or point == "midpoint" else point
    if isinstance(given, str):
        try:
            numbers = [float(part) for part in given.split(",")]
        except ValueError:
            raise ValueError(f"point={given!r}: expected {shape.domain}, or 'midpoint'") from None
        given = numbers[0] if len(numbers) == 1 else numbers
    alpha = to_alpha(given, shape, torch.empty(0), outside=False)
    if alpha.shape != shape.point:
        raise ValueError(f"point={values.shown(point)}: expected {shape.domain}")
    return Model(model.about, model.call, alpha)


def _called(program: nn.Module) -> Call:
    def call(*inputs: Tensor) -> Sequence[Tensor]:
        said = program(*inputs)
        return said if isinstance(said, (tuple, list)) else (said,)

    return call


def _pt2(path: Path, trust: bool) -> Model:
    content = path.read_bytes()
    if trust is True:
        found: dict[str, Any] = {FILE: "{}"}
        program = _loaded(path, content, found)
        return Model(Metadata.of(archives.parsed(path, found[FILE]), path), _called(program))
    header, packed = archives.vetted(path, content)
    return Model(Metadata.of(header, path), _called(_loaded(path, packed, {})))


def _loaded(path: Path, content: bytes, extra: dict[str, Any]) -> nn.Module:
    try:
        return torch.export.load(io.BytesIO(content), extra_files=extra).module()
    except Exception as error:  # whatever torch makes of a file of another version
        said = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{path} cannot be read by torch {torch.__version__} ({said}): use another copy, or the version of torch "
            "that it was exported with"
        ) from error


def _onnx(path: Path) -> Model:
    try:
        import onnxruntime
    except ImportError:
        raise install("onnxruntime", "reading an ONNX file", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = path.read_bytes()
    try:  # from bytes: a file could name others beside it
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of its own kinds
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"{path} cannot be read by onnxruntime ({said}): use another copy") from None
    header = session.get_modelmeta().custom_metadata_map
    about = Metadata.of(header, path)
    if not unchanged(content, header.get("checksum", "")):
        raise ModelError(f"{path} is damaged (its bytes do not match its checksum): use another copy")
    names = [each.name for each in session.get_inputs()]
    if names != list(about.inputs):
        raise ModelError(f"{path} takes {names}, and its metadata says {list(about.inputs)}: use another copy")

    def call(*inputs: Tensor) -> list[Tensor]:
        fed = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, fed)]

    return Model(about, call)


def _safetensors(path: Path, trust: bool) -> Model:
    try:
        header, tensors = files.read_tensors(path)
        if header.get("format") == storage.FORMAT:
            return _family(path, header, trust)
        about = Metadata.of(header, path)
        files.check(header, tensors)
    except files.DamageError as error:
        raise ModelError(f"{path} is damaged ({error}): use another copy") from None
    if about.kind == "ensemble":
        count = len({name.split(".")[1] for name in tensors if name.startswith("members.")})
        if not 1 <= count <= len(tensors):
            raise ModelError(f"{path} is damaged (it holds no members): use another copy")
        members = [_network(path, about, _below(f"members.{index}.", tensors), trust) for index in range(count)]
        average: Any = "logits" if about.average == "logits" else "probabilities"
        program: Program = Several(Ensemble(members, average), about.mean, about.std)
    else:
        program = OneNetwork(_network(path, about, tensors, trust), about.mean, about.std)
    return Model(about, _called(program.eval()))


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _family(path: Path, header: dict[str, str], trust: bool) -> Model:
    """Return a family that needs no statistics, at a point that is given later."""
    notes = {name.removeprefix("export."): value for name, value in header.items() if name.startswith("export.")}
    if not notes:
        raise ModelError(f"{path} is a family without its network: export it, `subspaces export RUN --point family`")
    about = Metadata.of({**notes, "format": FORMAT, "version": str(VERSION)}, path)
    network = _built(path, about, trust)
    if tracked(network):
        raise ModelError(
            f"{path} holds the weights of a family with batch norm, whose statistics belong to a point: export a "
            "point, or the family as --format pt2 or onnx, which hold statistics for all of it"
        )
    family = storage.load(path, network).eval()
    program = OneNetwork(family, about.mean, about.std)

    def call(images: Tensor, alpha: Tensor) -> list[Tensor]:
        logits = family(program.normalised(images), alpha=alpha)
        return [logits.softmax(-1)]

    return Model(about, call)


def _built(path: Path, about: Metadata, trust: bool) -> nn.Module:
    """Return the network that the metadata names, if it may be built."""
    if is_factory(about.network) and trust is not True:
        module, _, factory = about.network.partition(":")
        raise ModelError(
            f"{path} names the network {about.network!r}; to build it would import module {module!r} and call "
            f"{factory!r}: pass --trust (trust=True) if you trust it"
        )
    if len(about.image_shape) != 3:
        raise ModelError(f"{path} takes inputs of shape {about.image_shape}, which are no images")
    shape = (about.image_shape[0], about.image_shape[1], about.image_shape[2])
    try:
        return registry.build(about.network, classes=len(about.classes), image_shape=shape, dropout=about.dropout)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"{path} holds the weights of {about.network!r}, which cannot be built here ({error}): load them yourself, "
            "or export the network as --format pt2 or onnx"
        ) from None


def _network(path: Path, about: Metadata, tensors: dict[str, Tensor], trust: bool) -> nn.Module:
    """Return the network with these weights."""
    if is_factory(about.network) or ":" in about.network:
        network = _built(path, about, trust)
    else:
        with torch.device("meta"):  # a size that only the metadata claims takes no memory
            network = _built(path, about, trust)
    try:
        network.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        said = " ".join(str(error).split())[:300]
        raise ModelError(
            f"{path} holds other weights than those of {about.network!r} ({said}): use another copy"
        ) from None
    return network.eval()
