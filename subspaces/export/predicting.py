"""The classes of images, as an exported model or a point of a run has them: files in, labels out."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.evaluation.display import Progress, counted
from subspaces.export import ModelError
from subspaces.export.reading import Model
from subspaces.images.decoding import UnreadableError
from subspaces.images.fitting import ARRAYS, Form, read_arrays, read_image
from subspaces.images.listing import SUFFIXES

NUMBERS = 1 << 22  # of a batch, at most
BATCH = 256
OFF = 1e-3  # of a probability, and of their sum, in float32
NAMED = 3  # of the files in a folder that are no images


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
    probabilities, disagreement = model(images)
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
        labels = [model.about.classes[place] for place in places]
        yield Prediction(name, tuple(zip(labels, shares, strict=True)), doubt)
