"""The call behind `subspaces predict`: files in, labels out."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.images.decoding import UnreadableError
from subspaces.evaluation.images.listing import SUFFIXES
from subspaces.experiments.data.dataset import Progress
from subspaces.export.choosing import Point
from subspaces.export.errors import ModelError
from subspaces.export.images import ARRAYS, Form, read_arrays, read_image
from subspaces.export.models import Model
from subspaces.export.reading import open_model

NUMBERS = 1 << 22  # of a batch, at most
BATCH = 256
OFF = 1e-3  # of a probability, and of their sum, in float32
NAMED = 3  # of the files in a folder that are none


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image: the likeliest classes with their probabilities, the first of them first."""

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
    """What a model says of all images that could be read, and which could not."""

    model: str
    predictions: tuple[Prediction, ...]
    skipped: tuple[Skipped, ...]


def predict(
    model: str | os.PathLike[str],
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    top: int = 1,
    point: Point | None = None,
    data: str | os.PathLike[str] | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
) -> Predictions:
    """Predict the classes of images with an exported model, or with a point of a run.

    Args:
        model: a .pt2, .onnx or .safetensors file of `export`, or a run folder.
        inputs: image files, folders of them at any depth, .npy or .npz arrays.
        top: how many of the likeliest classes.
        point: of a run ("midpoint", "selected", "ensemble", 0.3, …) or of an exported family; by default the midpoint.
        data: the folder with the data sets of runs.
        trust: also load a .pt2 file, which runs code of whoever made it, or a network of theirs
            (`package.module:factory`).
        progress: True for bars, False for none, or a function of (what, done, total).

    Example:
        >>> for each in ss.predict("midpoint.onnx", "photos", top=3).predictions:
        ...     print(each.file, each.label, each.probability)
    """
    paths = [checks.folder("inputs", each) for each in _listed(inputs)]
    checks.whole("top", top, 1)
    with bars(progress) as shown:
        opened = open_model(model, point=point, data=data, trust=trust, progress=shown)
        skipped: list[Skipped] = []
        found = list(_files(paths, skipped))
        said = list(_predictions(opened, found, top, skipped, shown))
    return Predictions(os.fspath(model), tuple(said), tuple(skipped))


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be written anywhere, also one that is no text."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _listed(inputs: Any) -> list[Any]:
    return checks.all_of("inputs", inputs, (str, os.PathLike), "an image file, a folder, an array, or several of them")


def _files(paths: Sequence[Path], skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the files that are meant, those of folders in the order of their names and without hidden ones."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        before = len(skipped)
        count = 0
        for folder, inner, names in os.walk(path, onerror=lambda error: _unreadable(error, skipped)):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            seen = sorted(name for name in names if not name.startswith("."))
            known = [name for name in seen if name.lower().endswith((*SUFFIXES, *ARRAYS))]
            others = [name for name in seen if name not in known]
            count += len(known)
            yield from (Path(folder) / name for name in known)
            if others:
                listed = ", ".join(map(shown, others[:NAMED])) + (", …" if len(others) > NAMED else "")
                skipped.append(Skipped(shown(folder), f"{len(others)} of its files do not end as images do: {listed}"))
        if not count and len(skipped) == before:
            skipped.append(Skipped(shown(path), "a folder without images"))


def _unreadable(error: OSError, skipped: list[Skipped]) -> None:
    skipped.append(Skipped(shown(error.filename), str(error.strerror)))


def _images(found: Sequence[Path], form: Form, skipped: list[Skipped]) -> Iterator[tuple[int, str, Tensor]]:
    """Yield every image with the number of its file and its name; what cannot be read is noted."""
    for number, path in enumerate(found):
        try:
            for place, read in _parts(path, form):
                name = f"{shown(path)}{place}"
                try:
                    image = read()
                except UnreadableError as error:
                    skipped.append(Skipped(name, str(error)))
                else:
                    yield number, name, image
        except (UnreadableError, OSError) as error:
            skipped.append(Skipped(shown(path), getattr(error, "strerror", None) or str(error)))


def _parts(path: Path, form: Form) -> Iterable[tuple[str, Callable[[], Tensor]]]:
    """Return the images of a file, each with its place in it and a function that reads it."""
    if not path.is_file():
        raise UnreadableError("it is not a file" if path.exists() else "there is no such file")
    return read_arrays(path, form) if path.suffix.lower() in ARRAYS else [("", partial(read_image, path, form))]


def _predictions(
    model: Model, found: Sequence[Path], top: int, skipped: list[Skipped], progress: Progress
) -> Iterator[Prediction]:
    """Yield what the model says, batch by batch."""
    channels, height, width = model.about.image_shape
    form = Form(channels, height, width, model.about.resize)
    size = max(1, min(BATCH, NUMBERS // (form.channels * form.height * form.width)))
    tick = counted(progress, "images", 0, len(found))
    names: list[str] = []
    images: list[Tensor] = []
    done = 0
    for number, name, image in _images(found, form, skipped):
        names.append(name)
        images.append(image)
        if len(images) == size:
            yield from _said(model, names, torch.stack(images), top)
            names, images = [], []
            tick(number - done)
            done = number
    if images:
        yield from _said(model, names, torch.stack(images), top)
    tick(len(found) - done)


def _said(model: Model, names: Sequence[str], images: Tensor, top: int) -> Iterator[Prediction]:
    probabilities, disagreement = model(images)
    _check_probabilities(model, names, probabilities, disagreement)
    best = probabilities.topk(min(top, probabilities.shape[1]))
    unsure = [None] * len(names) if disagreement is None else disagreement.tolist()
    for name, places, shares, doubt in zip(names, best.indices.tolist(), best.values.tolist(), unsure, strict=True):
        labels = [model.about.classes[place] for place in places]
        yield Prediction(name, tuple(zip(labels, shares, strict=True)), doubt)


def _check_probabilities(
    model: Model, names: Sequence[str], probabilities: Tensor, disagreement: Tensor | None
) -> None:
    """Refuse what is no distribution over the classes, such as NaN or logits."""
    finite = probabilities.isfinite().all(1) & (True if disagreement is None else disagreement.isfinite())
    within = ((probabilities >= -OFF) & (probabilities <= 1 + OFF)).all(1)
    good = finite & within & ((probabilities.double().sum(1) - 1).abs() <= OFF)
    if not bool(good.all()):
        worst = int(good.int().argmin())
        raise ModelError(
            f"{model.where} answers {names[worst]} with {checks.shown(probabilities[worst].tolist())}: expected "
            "probabilities, which are from 0 to 1 and sum to 1; train or export the network again"
        )
