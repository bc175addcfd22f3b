"""What every measured point answers, example by example: `predictions.safetensors` in a run folder.

With it, an evaluation that was interrupted knows what the points behind it have said, and a choice or
the examples can be made again without the networks. Of long splits the first examples are kept.
"""

import json
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from subspaces.evaluation.points import Place, to_alpha, to_place
from subspaces.training import seals

FILE = "predictions.safetensors"
KEPT = 100_000  # examples of a split


class Said(NamedTuple):
    """The predicted classes of a split's examples, and how probable they are."""

    predicted: Tensor  # int32 [n]
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
        raise ValueError(
            f"the {split} loader gave other labels, or another order of them, the second time: pass one that does "
            "not shuffle"
        )


def said(confidence: Tensor, predicted: Tensor) -> Said:
    """Return the most probable classes of a batch, as they are kept."""
    return Said(predicted.to("cpu", torch.int32), confidence.float().cpu())


def joined(parts: list[Said]) -> Said:
    """Return what was said about the batches of a split, up to so many examples."""
    return Said(*(torch.cat(values)[:KEPT] for values in zip(*parts, strict=True)))
