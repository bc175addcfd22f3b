"""Exports and run folders as what predicts; nothing that is read is trusted to be what it says."""

import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subspaces import values
from subspaces.data.dataset import Progress
from subspaces.errors import ArgumentError
from subspaces.points import to_alpha
from subspaces.production import archives
from subspaces.production.choosing import Point
from subspaces.production.errors import ModelError, install
from subspaces.production.exporting import of_run
from subspaces.production.formats import unchanged
from subspaces.production.metadata import FILE, Metadata
from subspaces.production.models import Model, called
from subspaces.production.weights import read_weights
from subspaces.shapes import Line, Shape, Simplex

ENDINGS = (".pt2", ".safetensors", ".onnx")


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
            raise ArgumentError(
                "point='family': which network shall answer? Expected 'midpoint' or a point such as 0.3"
            )
        made, _ = of_run(place, chosen, None, data, trust, progress)
        return Model(made.about, called(made.program))
    if not place.is_file():
        raise ModelError(f"{place} is no file: expected one of `subspaces export`, or the folder of a run")
    readers: dict[str, Callable[[Path], Model]] = {
        ".pt2": partial(_pt2, trust=trust),
        ".safetensors": partial(read_weights, trust=trust),
        ".onnx": _onnx,
    }
    return _at(readers[_kind(place)](place), point)


def _kind(path: Path) -> str:
    """Return the format of a file, by how it begins and by its name, which must not contradict each other."""
    with open(path, "rb") as file:
        start = file.read(9)
    ending = path.suffix.lower()
    looks = ".pt2" if start[:4] == b"PK\x03\x04" else ".safetensors" if start[8:] == b"{" else ""
    if ending not in ENDINGS:
        if not looks:
            raise ModelError(
                f"{path} is no model: expected a .pt2, .onnx or .safetensors file of `subspaces export`, or a run"
            )
        return looks
    if looks and looks != ending:
        raise ModelError(f"{path} is a {looks} file under another name: use the file that belongs there, or rename it")
    return ending


def _at(model: Model, point: Point | None) -> Model:
    """Return a family at a point, by default in the middle; nothing else has points."""
    if model.about.kind != "family":
        if point is not None:
            raise ArgumentError(
                f"point={values.shown(point)}: this export is {model.about.point}, and has no other point"
            )
        return model
    shape: Shape = Line() if model.about.domain == "number" else Simplex(int(model.about.domain))
    given: Any = shape.midpoint() if point is None or point == "midpoint" else point
    if isinstance(given, str):
        try:
            numbers = [float(part) for part in given.split(",")]
        except ValueError:
            raise ArgumentError(f"point={given!r}: expected {shape.domain}, or 'midpoint'") from None
        given = numbers[0] if len(numbers) == 1 else numbers
    alpha = to_alpha(given, shape, torch.empty(0), outside=False)
    if alpha.shape != shape.point:
        raise ArgumentError(f"point={values.shown(point)}: expected {shape.domain}")
    return Model(model.about, model.call, alpha)


def _pt2(path: Path, trust: bool) -> Model:
    content = path.read_bytes()
    if trust is True:
        found: dict[str, Any] = {FILE: "{}"}
        program = _loaded(path, content, found)
        return Model(Metadata.of(archives.parsed(path, found[FILE]), path), called(program))
    header, packed = archives.vetted(path, content)
    return Model(Metadata.of(header, path), called(_loaded(path, packed, {})))


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
