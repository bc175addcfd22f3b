"""The classes of images, as an exported file or a point of a run has them: files in, labels out.

Nothing that is read is trusted to be what it says, but a .pt2 file, which needs trust. A safetensors file of a few
bytes can name a network of any size: that is built without memory first, on torch's `meta` device, and for real only if
the file holds its weights.
"""

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subspaces.core import checks, files, storage
from subspaces.core.ensemble import Ensemble
from subspaces.core.shapes import Line, Simplex
from subspaces.errors import ArgumentError
from subspaces.evaluation.display import Progress, counted
from subspaces.evaluation.tasks import Classification
from subspaces.export import ModelError, damaged
from subspaces.export.arguments import Inputs, Point, choose
from subspaces.export.formats import quiet
from subspaces.export.metadata import FILE, Metadata
from subspaces.export.onnx_files import in_short, read_onnx
from subspaces.export.program import Program
from subspaces.images.decoding import UnreadableError
from subspaces.images.fitting import ARRAYS, Form, read_arrays, read_image
from subspaces.images.listing import SUFFIXES
from subspaces.images.reading import DAMAGED
from subspaces.networks import registry
from subspaces.networks.factories import is_factory

HEADER = 1 << 23  # bytes of the description of the tensors, which takes many times that when it is read
NUMBERS = 1 << 22  # of a batch, at most
BATCH = 256
OFF = 1e-3  # of a probability, and of their sum, in float32
NAMED = 3  # of the files in a folder that are no images
Read = tuple[Metadata, Callable[..., Any]]


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
        """Of the likeliest class."""
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


# Models


class Model(NamedTuple):
    """A classifier of images: a function of images, and of a family alpha, with what is known of it."""

    where: Path
    about: Metadata
    call: Callable[..., Any]
    alpha: Tensor | None = None


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
    several = about.kind == "ensemble"
    members = {name.split(".")[1] for name in tensors if name.startswith("members.")} if several else {""}
    prefixes = [f"members.{index}." if several else "" for index in range(max(1, len(members)))]
    networks = _networks(path, about, tensors, prefixes, trust)
    average: Any = "logits" if about.average == "logits" else "probabilities"
    outputs: Any = about.network_outputs or "logits"
    inputs = Inputs((torch.zeros(1, *about.image_shape),), {}, ("images",))
    ensemble = Ensemble(networks, average, outputs=outputs)
    return about, Program(ensemble, inputs, Classification(), mean=about.mean, std=about.std, several=several).eval()


def _networks(
    path: Path, about: Metadata, tensors: Mapping[str, Tensor], prefixes: Sequence[str], trust: bool
) -> list[nn.Module]:
    """Return the network that the metadata names for each prefix of the tensors' names, which have to be its own."""
    foreign = is_factory(about.network)
    if foreign and trust is not True:
        module, _, factory = about.network.partition(":")
        raise ModelError(
            f"{path} names the network {about.network!r}; to build it would import module {module!r} and call "
            f"{factory!r}: pass --trust (trust=True) if you trust it"
        )
    with torch.device("cpu" if foreign else "meta"):
        state, left = _built(path, about).state_dict(), dict(tensors)
    expected = ((f"{prefix}{name}", value) for prefix in prefixes for name, value in state.items())
    for name, value in chain(expected, ((name, None) for name in tensors if name in left)):
        wanted, found = _described(value), _described(left.pop(name, None))
        if wanted != found:
            raise ModelError(
                f"{path} holds other weights than those of {about.network!r}: {checks.shown(name)} is {found} in the "
                f"file and {wanted} in the network; use another copy"
            )
    networks = [_built(path, about) for _ in prefixes]
    for prefix, network in zip(prefixes, networks, strict=True):
        network.load_state_dict({name: tensors[f"{prefix}{name}"] for name in state}, strict=True)
    return networks


def _built(path: Path, about: Metadata) -> nn.Module:
    shape: Any = tuple(about.image_shape)
    try:
        network = registry.build(about.network, classes=len(about.classes), image_shape=shape, dropout=about.dropout)
    except ArgumentError as error:
        raise ModelError(
            f"{path} holds the weights of {about.network!r}, which cannot be built here ({error}): load them "
            "yourself, or export the network as --format pt2 or onnx"
        ) from None
    return network.eval()


def _described(value: Tensor | None) -> str:
    """Return shape and type, which is the same for floats of any precision."""
    if value is None:
        return "missing"
    return f"{checks.shown(tuple(value.shape))} {'floats' if value.is_floating_point() else value.dtype}"


# Images


def predict_with(model: Model, name: str, paths: Sequence[Path], top: int, progress: Progress) -> Predictions:
    """Return what a model predicts for image files, folders and arrays."""
    skipped: list[Skipped] = []
    found = list(_files(paths, skipped))
    channels, height, width = model.about.image_shape
    size = max(1, min(BATCH, NUMBERS // (channels * height * width)))
    images = _images(
        found, Form(channels, height, width, model.about.resize), skipped, counted(progress, "images", 0, len(found))
    )
    predictions: list[Prediction] = []
    while batch := list(islice(images, size)):
        names, pixels = zip(*batch, strict=True)
        predictions += _batch(model, names, torch.stack(pixels), top)
    return Predictions(name, tuple(predictions), tuple(skipped))


def _shown(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be written anywhere, also one that is no text."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _files(paths: Sequence[Path], skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the files that are meant, those of folders in the order of their names and without hidden ones."""

    def unreadable(error: OSError) -> None:
        skipped.append(Skipped(_shown(error.filename), str(error.strerror)))

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        before, count = len(skipped), 0
        for folder, inner, names in os.walk(path, onerror=unreadable):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            seen = sorted(name for name in names if not name.startswith("."))
            known = [name for name in seen if name.lower().endswith((*SUFFIXES, *ARRAYS))]
            others = [name for name in seen if name not in known]
            count += len(known)
            yield from (Path(folder) / name for name in known)
            if others:
                listed = ", ".join(map(_shown, others[:NAMED])) + (", …" if len(others) > NAMED else "")
                skipped.append(Skipped(_shown(folder), f"{len(others)} of its files do not end as images do: {listed}"))
        if not count and len(skipped) == before:
            skipped.append(Skipped(_shown(path), "a folder without images"))


def _images(
    found: Sequence[Path], form: Form, skipped: list[Skipped], tick: Callable[[int], None]
) -> Iterator[tuple[str, Tensor]]:
    """Yield every image with its name; what cannot be read is noted."""
    for path in found:
        try:
            if not path.is_file():
                raise UnreadableError("it is not a file" if path.exists() else "there is no such file")
            array = path.suffix.lower() in ARRAYS
            for place, read in read_arrays(path, form) if array else [("", partial(read_image, path, form))]:
                name = f"{_shown(path)}{place}"
                try:
                    yield name, read()
                except UnreadableError as error:
                    skipped.append(Skipped(name, str(error)))
        except (UnreadableError, OSError) as error:
            skipped.append(Skipped(_shown(path), getattr(error, "strerror", None) or str(error)))
        tick(1)


def _batch(model: Model, names: Sequence[str], images: Tensor, top: int) -> Iterator[Prediction]:
    """Yield the predictions for a batch, which have to be distributions over the classes."""
    with torch.no_grad():
        found = model.call(images) if model.alpha is None else model.call(images, model.alpha)
    found = found if isinstance(found, (tuple, list)) else [found]
    n, classes = len(images), model.about.classes
    expected = [(n, len(classes)), (n,)][: 2 if model.about.kind == "ensemble" else 1]
    if [tuple(each.shape) for each in found] != expected or not all(each.is_floating_point() for each in found):
        shapes = ", ".join(f"{tuple(each.shape)} {each.dtype}" for each in found)
        raise ModelError(f"{model.where} answers {n} images with {shapes}: expected {expected}; use another copy")
    probabilities, disagreement = found[0], found[1] if len(found) > 1 else None
    finite = probabilities.isfinite().all(1) & (True if disagreement is None else disagreement.isfinite())
    within = ((probabilities >= -OFF) & (probabilities <= 1 + OFF)).all(1)
    good = finite & within & ((probabilities.double().sum(1) - 1).abs() <= OFF)
    if not bool(good.all()):
        worst = int(good.int().argmin())
        raise ModelError(
            f"{model.where} answers {names[worst]} with {checks.shown(probabilities[worst].tolist())}: expected "
            "probabilities, which are from 0 to 1 and sum to 1; train or export the network again"
        )
    best = probabilities.topk(min(top, probabilities.shape[1]))
    doubts = [None] * len(names) if disagreement is None else disagreement.tolist()
    for name, places, shares, doubt in zip(names, best.indices.tolist(), best.values.tolist(), doubts, strict=True):
        labels = [classes[place] for place in places]
        yield Prediction(name, tuple(zip(labels, shares, strict=True)), doubt)
