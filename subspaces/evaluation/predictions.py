"""What every measured point answers, image by image: `predictions.safetensors` in a run folder.

With it, an evaluation that was interrupted knows what the points behind it have said, and a choice or
the strip of examples can be made again without the networks.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from subspaces.evaluation.points import Place, to_alpha, to_place
from subspaces.training import seals

FILE = "predictions.safetensors"


class Answers(NamedTuple):
    """The predicted classes of a split's images, and how probable they are."""

    predicted: Tensor  # int32 [n]
    confidence: Tensor  # float32 [n]


class Predictions:
    """The answers of points on each split, beside the labels; `stamp` says what they were made with."""

    def __init__(self, run: str, stamp: str, labels: Mapping[str, Tensor]) -> None:
        self.run = run  # the key of its recipe
        self.stamp = stamp
        self.labels = {split: values.cpu() for split, values in labels.items()}  # int64 [n]
        self.points: dict[Place, dict[str, Answers]] = {}

    def add(self, place: Place, logits: Mapping[str, Tensor]) -> None:
        """Add what a point says, from its logits [n, classes] on each split."""
        found = {}
        for split, values in logits.items():
            confidence, predicted = values.softmax(1).max(1)
            found[split] = Answers(predicted.to("cpu", torch.int32), confidence.cpu())
        self.points[place] = found

    def stacked(self, split: str, places: list[Place]) -> Answers:
        """Return the answers of several points: [p, n]."""
        chosen = [self.points[place][split] for place in places]
        return Answers(*(torch.stack(values) for values in zip(*chosen, strict=True)))

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
            splits = [name.removesuffix(".labels") for name in tensors if name.endswith(".labels")]
            read = cls(run, stamp, {split: tensors[f"{split}.labels"] for split in splits})
            for index, alpha in enumerate(json.loads(header["points"])):
                read.points[to_place(alpha)] = {
                    split: Answers(*(tensors[f"{split}.{name}"][index] for name in Answers._fields)) for split in splits
                }
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise seals.damaged(folder / FILE, error, remedy) from None
        return read
