"""The classes of images, as an exported program has them: files in, labels out.

Nothing that is read is trusted to be what it says, but a .pt2 file, which needs trust.
"""

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.evaluation.display import Progress, bars, counted
from subspaces.export import ModelError, damaged
from subspaces.export.description import FILE, Metadata
from subspaces.export.formats import quiet, read_onnx
from subspaces.images.decoding import ARRAYS, DAMAGED, Form, UnreadableError, array_images, read_image
from subspaces.images.splits import SUFFIXES
from subspaces.networks.factories import in_words

NUMBERS = 1 << 22  # of a batch, at most
BATCH = 256
OFF = 1e-3  # of a probability, and of their sum, in float32
Model = tuple[Metadata, Callable[..., Any]]
"""What is known of a classifier of images, and a function that runs it."""


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of one image with their probabilities, in descending order."""

    file: str
    top: tuple[tuple[str, float], ...]
    disagreement: float | None = None

    @property
    def label(self) -> str:
        """The likeliest class."""
        return self.top[0][0]

    @property
    def probability(self) -> float:
        """The probability of the likeliest class."""
        return self.top[0][1]


@dataclass(frozen=True)
class Skipped:
    """An input that could not be read, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Predictions:
    """The predictions for all images that could be read, and those that could not."""

    model: str
    predictions: tuple[Prediction, ...]
    skipped: tuple[Skipped, ...]


def _read_model(path: Path, trust: bool = False) -> Model:
    """Return the model in an exported file."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: expected a file of `subspaces export`")
    if (path / "config.json").exists():
        raise ModelError(f"{path} is the folder of a run: export it first, subspaces export {path} --out net.onnx")
    ending = path.suffix.lower() if path.is_file() else ""
    if ending == ".safetensors":
        raise ModelError(f"{path} holds weights alone: export the network as .onnx or .pt2")
    if ending not in (".onnx", ".pt2"):
        raise ModelError(f"{path} is no model: expected an .onnx or .pt2 file of `subspaces export`")
    return read_onnx(path) if ending == ".onnx" else _read_pt2(path, trust)


def _read_pt2(path: Path, trust: bool) -> Model:
    """Read a .pt2 file, which torch may run code of while it reads it."""
    if trust is not True:
        raise ModelError(
            f"{path} is a .pt2 file, which runs code of whoever made it when it is read: pass --trust (trust=True) if "
            "you trust them, or use an .onnx export, which needs no trust"
        )
    content, found = io.BytesIO(path.read_bytes()), {FILE: "{}"}
    try:
        with zipfile.ZipFile(content) as archive:
            if (broken := archive.testzip()) is not None:  # torch does not look at the checksums
                raise zipfile.BadZipFile(checks.shown(broken))
    except DAMAGED as error:
        raise damaged(path, in_words(error)) from None
    try:
        content.seek(0)
        with quiet():
            program = torch.export.load(content, extra_files=found).module()
        header = json.loads(found[FILE])
    except Exception as error:  # whatever torch makes of a file of another version
        raise ModelError(
            f"{path} cannot be read by torch {torch.__version__} ({in_words(error)[:300]}): use another copy, or the "
            "version of torch that it was exported with"
        ) from error
    return Metadata.of(header, path), program


# Images


def predict_with(model: Any, inputs: Any, top: int, trust: bool, progress: bool | Progress) -> Predictions:
    """Return what the model of a file predicts for image files, folders and arrays; see `ss.predict`."""
    expected = "an image file, a folder, an array, or several of them"
    paths = [checks.folder("inputs", each) for each in checks.all_of("inputs", inputs, (str, os.PathLike), expected)]
    checks.whole("top", top, 1)
    path = checks.folder("model", model)
    opened, skipped = _read_model(path, trust), list[Skipped]()
    with bars(progress) as shown:
        predictions = _predicted(opened, path, _images(list(_files(paths, skipped)), opened[0], skipped, shown), top)
    return Predictions(os.fspath(path), tuple(predictions), tuple(skipped))


def _predicted(model: Model, path: Path, images: Iterator[tuple[str, Tensor]], top: int) -> list[Prediction]:
    """Return the predictions of a model, batch by batch."""
    (about, call), predictions = model, list[Prediction]()
    while batch := list(islice(images, max(1, min(BATCH, NUMBERS // math.prod(about.image_shape))))):
        names, pixels = zip(*batch, strict=True)
        try:
            with torch.no_grad():
                answer = call(torch.stack(pixels))
        except Exception as error:  # whatever a program does
            raise ModelError(f"{path} cannot be run ({in_words(error)[:300]}): use another copy") from error
        probabilities, disagreement = _checked(answer, about, names, path)
        best = probabilities.topk(min(top, len(about.classes)))
        rows = zip(names, best.indices.tolist(), best.values.tolist(), disagreement, strict=True)
        for name, places, shares, doubt in rows:
            labels = [about.classes[place] for place in places]
            predictions.append(Prediction(name, tuple(zip(labels, shares, strict=True)), doubt))
    return predictions


def _shown(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be written anywhere, also one that is no text."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _files(paths: Sequence[Path], skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the files that are meant, those of folders in the order of their names and without hidden ones."""

    def skip(path: str | os.PathLike[str], reason: str) -> None:
        skipped.append(Skipped(_shown(path), reason))

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        images = others = 0
        for folder, inner, names in os.walk(path, onerror=lambda error: skip(error.filename, str(error.strerror))):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(name for name in names if not name.startswith(".")):
                if name.lower().endswith((*SUFFIXES, *ARRAYS)):
                    images += 1
                    yield Path(folder) / name
                else:
                    others += 1
        if others or not images:
            skip(path, f"{others} of its files do not end as images do" if others else "a folder without images")


def _images(
    found: Sequence[Path], about: Metadata, skipped: list[Skipped], progress: Progress
) -> Iterator[tuple[str, Tensor]]:
    """Yield every image with its name; what cannot be read is noted."""
    tick = counted(progress, "images", 0, len(found))
    channels, height, width = about.image_shape
    form = Form(channels, height, width, about.resize)
    for path in found:
        try:
            if not path.is_file():
                raise UnreadableError("it is not a file" if path.exists() else "there is no such file")
            array = path.suffix.lower() in ARRAYS
            for place, read in array_images(path, form) if array else [("", partial(read_image, path, form))]:
                name = f"{_shown(path)}{place}"
                try:
                    yield name, read()
                except UnreadableError as error:
                    skipped.append(Skipped(name, str(error)))
        except (UnreadableError, OSError) as error:
            skipped.append(Skipped(_shown(path), getattr(error, "strerror", None) or str(error)))
        tick(1)


def _checked(answer: Any, about: Metadata, names: Sequence[str], path: Path) -> tuple[Tensor, Sequence[float | None]]:
    """Return probabilities, which have to be distributions over the classes, and the disagreement of an ensemble."""
    found = answer if isinstance(answer, (tuple, list)) else [answer]
    n = len(names)
    expected = [(n, len(about.classes)), (n,)][: 2 if about.kind == "ensemble" else 1]
    if [tuple(each.shape) for each in found] != expected or not all(each.is_floating_point() for each in found):
        shapes = ", ".join(f"{tuple(each.shape)} {each.dtype}" for each in found)
        raise ModelError(f"{path} answers {n} images with {shapes}: expected {expected}; use another copy")
    probabilities = found[0]
    good = ((probabilities >= -OFF) & (probabilities <= 1 + OFF)).all(1)  # NaN is neither
    good &= ((probabilities.double().sum(1) - 1).abs() <= OFF) & found[-1].reshape(n, -1).isfinite().all(1)
    if not bool(good.all()):
        worst = int(good.int().argmin())
        raise ModelError(
            f"{path} answers {names[worst]} with {checks.shown(probabilities[worst].tolist())}: expected "
            "probabilities, which are from 0 to 1 and sum to 1; train or export the network again"
        )
    return probabilities, found[1].tolist() if len(found) > 1 else [None] * n
