"""The classes of images, as an exported file has them: files in, labels out.

Nothing that is read is trusted to be what it says, but a .pt2 file, which needs trust. A safetensors file of a few
bytes can name a network of any size: that is built without memory first, on torch's `meta` device, and for real only if
the file holds its weights.
"""

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import checks, storage
from subspaces.core.ensemble import Ensemble
from subspaces.errors import ArgumentError
from subspaces.evaluation.display import Progress, counted
from subspaces.evaluation.tasks import Classification
from subspaces.export import ModelError, damaged
from subspaces.export.arguments import Inputs
from subspaces.export.description import FILE, Metadata
from subspaces.export.formats import in_short, quiet, read_onnx
from subspaces.export.program import Program
from subspaces.images.decoding import ARRAYS, DAMAGED, Form, UnreadableError, array_images, read_image
from subspaces.images.splits import SUFFIXES
from subspaces.networks import registry
from subspaces.networks.factories import is_factory

HEADER = 1 << 23  # bytes of the description of the tensors, which takes many times that when it is read
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


def read_model(path: Path, trust: bool = False) -> Model:
    """Return the model in an exported file."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: expected a file of `subspaces export`")
    if (path / "config.json").exists():
        raise ModelError(f"{path} is the folder of a run: export it first, subspaces export {path} --out net.onnx")
    readers = {".onnx": lambda path, _: read_onnx(path), ".pt2": _read_pt2, ".safetensors": _read_weights}
    if (ending := path.suffix.lower()) not in readers or not path.is_file():
        raise ModelError(f"{path} is no model: expected a .pt2, .onnx or .safetensors file of `subspaces export`")
    return readers[ending](path, trust)


def _read_pt2(path: Path, trust: bool) -> Model:
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
    return Metadata.of(header, path), program


def _read_weights(path: Path, trust: bool) -> Model:
    """Read a safetensors file, and fill the network that it names."""
    with open(path, "rb") as file:
        if int.from_bytes(file.read(8), "little") > HEADER:
            raise damaged(path, f"its header has more than {HEADER:,} bytes")
    try:
        header, tensors = storage.read_tensors(path)
        if header.get("format") == storage.FORMAT:
            raise ModelError(f"{path} holds the weights of a family, for `ss.load`: export a point of it")
        about = Metadata.of(header, path)
        storage.check(header, tensors)
    except storage.DamageError as error:
        raise damaged(path, error) from None
    if about.kind != "network":
        raise ModelError(f"{path} holds the weights of several networks: export them as .pt2 or .onnx")
    outputs: Any = about.network_outputs or "logits"
    network = Ensemble([_filled(path, about, tensors, trust)], outputs=outputs)
    inputs = Inputs.of(network.members[0], torch.zeros(1, *about.image_shape))
    return about, Program(network, inputs, Classification(), mean=about.mean, std=about.std).eval()


def _filled(path: Path, about: Metadata, tensors: Mapping[str, Tensor], trust: bool) -> nn.Module:
    """Return the network that the metadata names, with the tensors, which have to be its own."""
    foreign = is_factory(about.network)
    if foreign and trust is not True:
        module, _, factory = about.network.partition(":")
        raise ModelError(
            f"{path} names the network {about.network!r}; to build it would import module {module!r} and call "
            f"{factory!r}: pass --trust (trust=True) if you trust it"
        )
    with torch.device("cpu" if foreign else "meta"):
        state = _built(path, about).state_dict()
    for name in (*state, *tensors):
        wanted, found = _described(state.get(name)), _described(tensors.get(name))
        if wanted != found:
            raise ModelError(
                f"{path} holds other weights than those of {about.network!r}: {checks.shown(name)} is {found} in the "
                f"file and {wanted} in the network; use another copy"
            )
    network = _built(path, about)
    network.load_state_dict(tensors, strict=True)
    return network


def _built(path: Path, about: Metadata) -> nn.Module:
    shape: Any = tuple(about.image_shape)
    try:
        network = registry.build(about.network, classes=len(about.classes), image_shape=shape, dropout=about.dropout)
    except ArgumentError as error:
        raise ModelError(
            f"{path} holds the weights of {about.network!r}, which cannot be built here ({error}): load them "
            "yourself, or export the network as .pt2 or .onnx"
        ) from None
    return network.eval()


def _described(value: Tensor | None) -> str:
    """Return shape and type, which is the same for floats of any precision."""
    if value is None:
        return "missing"
    return f"{checks.shown(tuple(value.shape))} {'floats' if value.is_floating_point() else value.dtype}"


# Images


def predict_with(model: Model, path: Path, inputs: Sequence[Path], top: int, progress: Progress) -> Predictions:
    """Return what the model of a file predicts for image files, folders and arrays."""
    (about, call), skipped, predictions = model, list[Skipped](), list[Prediction]()
    channels, height, width = about.image_shape
    images = _images(list(_files(inputs, skipped)), Form(channels, height, width, about.resize), skipped, progress)
    while batch := list(islice(images, max(1, min(BATCH, NUMBERS // math.prod(about.image_shape))))):
        names, pixels = zip(*batch, strict=True)
        try:
            with torch.no_grad():
                answer = call(torch.stack(pixels))
        except Exception as error:  # whatever a program does
            raise ModelError(f"{path} cannot be run ({in_short(error)}): use another copy") from error
        probabilities, disagreement = _checked(answer, about, names, path)
        best = probabilities.topk(min(top, len(about.classes)))
        rows = zip(names, best.indices.tolist(), best.values.tolist(), disagreement, strict=True)
        for name, places, shares, doubt in rows:
            labels = [about.classes[place] for place in places]
            predictions.append(Prediction(name, tuple(zip(labels, shares, strict=True)), doubt))
    return Predictions(os.fspath(path), tuple(predictions), tuple(skipped))


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
    found: Sequence[Path], form: Form, skipped: list[Skipped], progress: Progress
) -> Iterator[tuple[str, Tensor]]:
    """Yield every image with its name; what cannot be read is noted."""
    tick = counted(progress, "images", 0, len(found))
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
