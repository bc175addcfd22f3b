"""Images whose predicted class changes along a subspace: `examples.safetensors` in a run folder."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from subspaces.evaluation.record import REMEDY, Alpha, Record
from subspaces.training import seals

FILE = "examples.safetensors"
LIMIT = 48
_DTYPES = {
    "images": torch.uint8,
    "labels": torch.int64,
    "indices": torch.int64,
    "predicted": torch.int64,
    "confidence": torch.float32,
}


@dataclass(frozen=True, eq=False)
class Examples:
    """k images of a split, and what each of p points of a subspace says about them."""

    images: Tensor  # uint8 [k, C, H, W]
    labels: Tensor  # int64 [k]
    indices: Tensor  # int64 [k], in the split
    predicted: Tensor  # int64 [p, k]
    confidence: Tensor  # float32 [p, k], of the predicted class
    alphas: list[Alpha]  # p
    split: str
    run: str = ""  # the key of its recipe
    family: str = ""  # the checksum of the family that answered

    def __post_init__(self) -> None:
        k, p = len(self.labels), len(self.alphas)
        shapes = {
            "images": (k, *self.images.shape[1:4]),
            "labels": (k,),
            "indices": (k,),
            "predicted": (p, k),
            "confidence": (p, k),
        }
        for name, dtype in _DTYPES.items():
            value = getattr(self, name)
            if value.dtype != dtype or value.shape != shapes[name] or self.images.ndim != 4:
                raise ValueError(
                    f"{name} is {value.dtype} {tuple(value.shape)}: expected {dtype} {shapes[name]} "
                    f"for {k} labels and {p} alphas, and images [k, C, H, W]"
                )

    @classmethod
    def read(cls, folder: Path) -> "Examples | None":
        """Return the examples of a run folder; None if it has none."""
        path = Path(folder) / FILE
        if not seals.there(path, REMEDY):
            return None
        header, found = seals.read_tensors(path, None, REMEDY)
        try:
            return cls(
                **{name: found[name] for name in _DTYPES},
                alphas=_alphas(header["alphas"]),
                split=header["split"],
                run=header["run"],
                family=header["family"],
            )
        except KeyError as error:
            raise seals.damaged(path, f"it has no {error}", REMEDY) from None
        except (ValueError, TypeError) as error:
            raise seals.damaged(path, error, REMEDY) from None

    @classmethod
    def of(cls, record: Record, folder: Path) -> "Examples | None":
        """Return the examples that belong to a record; others that lie in its folder are refused."""
        found = cls.read(folder)
        if found is not None and (found.run, found.family) != (record.key, str(record.family)):
            raise seals.damaged(Path(folder) / FILE, "it was made with another family than evaluation.json", REMEDY)
        return found

    def write(self, folder: Path) -> None:
        """Write the examples into a run folder, whole or not at all."""
        tensors = {name: getattr(self, name) for name in _DTYPES}
        header = {"alphas": json.dumps(self.alphas), "split": self.split, "family": self.family}
        seals.write_tensors(Path(folder) / FILE, tensors, header, self.run)


def _alphas(text: str) -> list[Alpha]:
    values = json.loads(text)
    if not isinstance(values, list):
        raise ValueError(f"alphas is {text}: expected a list")
    return values


def choose(predicted: Tensor, confidence: Tensor, limit: int = LIMIT) -> Tensor:
    """Return the indices of up to `limit` images whose predicted class changes along p points.

    Those with the most different classes come first, then those that change most often from one point to the
    next, then the most confident on average, then the first ones. `predicted` and `confidence` are [p, n].
    """
    if predicted.ndim != 2 or predicted.shape != confidence.shape:
        raise ValueError(
            f"predicted has shape {tuple(predicted.shape)} and confidence {tuple(confidence.shape)}: expected [p, n]"
        )
    classes = (predicted.sort(0).values.diff(dim=0) != 0).sum(0)  # [n], one less than there are different classes
    changes = (predicted.diff(dim=0) != 0).sum(0)
    order = torch.arange(predicted.shape[1], device=predicted.device)
    for key in (confidence.double().mean(0), changes, classes):  # stable: the last key counts most
        order = order[key[order].argsort(descending=True, stable=True)]
    return order[classes[order] > 0][:limit]
