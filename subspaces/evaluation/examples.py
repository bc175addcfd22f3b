"""What every measured point answers, example by example, and the images whose predicted class changes along them.

The answers are `predictions.safetensors` in a run folder: with it, an evaluation that was interrupted knows what the
points behind it have said, and choices and images can be made again without the networks. Of long splits the first
examples are kept.
"""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation.points import Place, to_alpha, to_place
from subspaces.evaluation.record import Examples, Record
from subspaces.experiments.training import seals

FILE = "predictions.safetensors"
KEPT = 100_000  # examples of a split
LIMIT = 48  # images on a page
SPLIT = "test"


class Said(NamedTuple):
    """The predicted classes of a split's examples, and how probable they are."""

    predicted: Tensor  # int32 [n], -1 where the prediction is NaN
    confidence: Tensor  # float32 [n]


class Predictions:
    """What points say on each split, beside the labels; `stamp` says what they were made with."""

    def __init__(self, run: str = "", stamp: str = "") -> None:
        self.run = run  # the key of its recipe
        self.stamp = stamp
        self.labels: dict[str, Tensor] = {}  # int64 [n]
        self.points: dict[Place, dict[str, Said]] = {}

    def add(self, place: Place, split: str, said: Said, labels: Tensor) -> None:
        """Add what a point says on a split, which must be the same examples in the same order each time."""
        same_order(split, self.labels.setdefault(split, labels), labels)
        self.points.setdefault(place, {})[split] = said

    def stacked(self, split: str, places: list[Place]) -> Said:
        """Return what several points say: [p, n]."""
        chosen = [self.points[place][split] for place in places]
        return Said(*(torch.stack(values) for values in zip(*chosen, strict=True)))

    def each(self, place: Place, split: str) -> Tensor:
        """Return the confidences of a point, and whether its answers are right: float64 [n, 2]."""
        said = self.points[place][split]
        return torch.stack([said.confidence.double(), (said.predicted == self.labels[split]).double()], dim=1)

    def write(self, folder: Path) -> None:
        """Write everything into a run folder, whole or not at all."""
        places = list(self.points)
        tensors = {f"{split}.labels": labels for split, labels in self.labels.items()}
        for split in self.labels if places else ():
            for name, values in self.stacked(split, places)._asdict().items():
                tensors[f"{split}.{name}"] = values
        header = {"stamp": self.stamp, "points": json.dumps([to_alpha(place) for place in places])}
        seals.write_tensors(folder / FILE, tensors, header, self.run)

    @classmethod
    def read(cls, folder: Path, run: str, stamp: str) -> "Predictions | None":
        """Return what a run folder holds; None if there is nothing, or if it was made with something else."""
        remedy = "remove it, and the points are measured again"
        if not seals.there(folder / FILE, remedy):
            return None
        header, tensors = seals.read_tensors(folder / FILE, run, remedy)
        if header.get("stamp") != stamp:
            return None
        try:
            read = cls(run, stamp)
            names = [name for name in tensors if name.endswith(".labels")]
            read.labels = {name.removesuffix(".labels"): tensors[name] for name in names}
            for index, alpha in enumerate(json.loads(header["points"])):
                read.points[to_place(alpha)] = {
                    split: Said(*(tensors[f"{split}.{name}"][index] for name in Said._fields)) for split in read.labels
                }
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise seals.damaged(folder / FILE, error, remedy) from None
        return read


def same_order(split: str, first: Tensor, second: Tensor) -> None:
    """Refuse a loader whose labels are others the second time."""
    if not torch.equal(first, second):
        raise ArgumentError(
            f"the {split} loader gave other labels, or another order of them, the second time: pass one that does "
            "not shuffle"
        )


def said(confidence: Tensor, predicted: Tensor) -> Said:
    """Return the most probable classes of a batch, as they are kept."""
    return Said(predicted.to("cpu", torch.int32), confidence.float().cpu())


def joined(parts: list[Said]) -> Said:
    """Return what was said about the batches of a split, up to so many examples."""
    return Said(*(torch.cat(values)[:KEPT] for values in zip(*parts, strict=True)))


Images = Callable[[str, Sequence[int], Tensor], Tensor | None]
"""Gives small pictures, uint8 [k, C, H, W], of a split, some indices and all labels."""


def renew(record: Record, predictions: Predictions, images_of: Images, anew: bool) -> Examples | None:
    """Return the examples of a record: those that are there, unless more was measured since."""
    alphas = [row.alphas[0] for row in record.rows if row.kind == "point" and row.split == SPLIT]
    if len(alphas) < 2 or SPLIT not in predictions.labels:
        return record.examples
    if not anew and record.examples is not None and record.examples.alphas == alphas:
        return record.examples
    said = predictions.stacked(SPLIT, [to_place(alpha) for alpha in alphas])
    chosen = choose(said.predicted, said.confidence)
    labels = predictions.labels[SPLIT]
    images = images_of(SPLIT, chosen.tolist(), labels)
    if images is None:
        return record.examples
    return Examples(
        split=SPLIT,
        alphas=alphas,
        size=list(images.shape[1:]),
        images=base64.b64encode(images.contiguous().numpy().tobytes()).decode(),
        labels=labels[chosen].tolist(),
        indices=chosen.tolist(),
        predicted=said.predicted[:, chosen].tolist(),
        confidence=said.confidence[:, chosen].tolist(),
    )


def pictures(examples: Examples) -> Tensor:
    """Return the images, uint8 [k, C, H, W]."""
    content = bytearray(base64.b64decode(examples.images))
    shape = (len(examples.labels), *examples.size)
    if len(content) != torch.Size(shape).numel():
        raise ArgumentError(f"{len(content)} bytes of images: expected {'x'.join(map(str, shape))}")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape) if content else torch.zeros(shape).byte()


def choose(predicted: Tensor, confidence: Tensor, limit: int = LIMIT) -> Tensor:
    """Return the indices of up to `limit` images whose predicted class changes along p points.

    Those with the most different classes come first, then those that change most often from one point to the
    next, then the most confident on average, then the first ones. `predicted` and `confidence` are [p, n].
    """
    if predicted.ndim != 2 or predicted.shape != confidence.shape:
        raise ArgumentError(
            f"predicted has shape {tuple(predicted.shape)} and confidence {tuple(confidence.shape)}: expected [p, n]"
        )
    classes = (predicted.sort(0).values.diff(dim=0) != 0).sum(0)  # [n], one less than there are different classes
    changes = (predicted.diff(dim=0) != 0).sum(0)
    order = torch.arange(predicted.shape[1], device=predicted.device)
    for key in (confidence.double().nan_to_num(nan=0.0).mean(0), changes, classes):  # stable: the last key counts most
        order = order[key[order].argsort(descending=True, stable=True)]
    return order[classes[order] > 0][:limit]
