"""Exports and run folders as what predicts; nothing that is read is trusted to be what it says, but a .pt2 file."""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.core.alpha import to_alpha
from subspaces.core.shapes import Line, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.experiments.data.dataset import Progress
from subspaces.export.choosing import Point
from subspaces.export.errors import ModelError
from subspaces.export.exporting import of_run
from subspaces.export.formats import quiet
from subspaces.export.metadata import FILE, Metadata
from subspaces.export.models import Model, called
from subspaces.export.onnx_files import read_onnx
from subspaces.export.weights import read_weights

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
    place = checks.folder("model", path)
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
        assert made.program is not None
        return Model(place, made.about, called(made.program))
    if not place.is_file():
        raise ModelError(f"{place} is no file: expected one of `subspaces export`, or the folder of a run")
    readers: dict[str, Callable[[Path], Model]] = {
        ".pt2": partial(_pt2, trust=trust),
        ".safetensors": partial(read_weights, trust=trust),
        ".onnx": read_onnx,
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
                f"point={checks.shown(point)}: this export is {model.about.point}, and has no other point"
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
        raise ArgumentError(f"point={checks.shown(point)}: expected {shape.domain}")
    return Model(model.where, model.about, model.call, alpha)


def _pt2(path: Path, trust: bool) -> Model:
    """Return the model of a .pt2 file, which torch may run code of while it reads it."""
    if trust is not True:
        raise ModelError(
            f"{path} is a .pt2 file, which runs code of whoever made it when it is read: pass --trust (trust=True) if "
            "you trust them, or use a .safetensors or .onnx export, which need no trust"
        )
    content, found = io.BytesIO(path.read_bytes()), {FILE: "{}"}
    try:
        with zipfile.ZipFile(content) as archive:
            broken = archive.testzip()  # torch does not look at the checksums
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        broken = _said(error)
    if broken is not None:
        raise ModelError(f"{path} is damaged ({checks.shown(broken)}): use another copy")
    try:
        content.seek(0)
        with quiet():
            program = torch.export.load(content, extra_files=found).module()
    except Exception as error:  # whatever torch makes of a file of another version
        raise ModelError(
            f"{path} cannot be read by torch {torch.__version__} ({_said(error)}): use another copy, or the version "
            "of torch that it was exported with"
        ) from error
    try:
        header = json.loads(found[FILE])
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged (its metadata: {error}): use another copy") from None
    if not isinstance(header, dict):
        raise ModelError(f"{path} is damaged (its metadata is {checks.shown(header)}): use another copy")
    run = called(program)

    def call(*inputs: Tensor) -> Sequence[Tensor]:
        try:
            return run(*inputs)
        except Exception as error:  # whatever the program does
            raise ModelError(f"{path} cannot be run ({_said(error)}): use another copy") from error

    return Model(path, Metadata.of(header, path), call)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
