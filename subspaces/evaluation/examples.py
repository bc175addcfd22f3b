"""The predictions of each point, and the images whose predicted class changes along the points.

Predictions are stored with the measurements of each point, so that images need no networks. Of long splits the first
examples are kept.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation.rows import Alpha, Examples

KEPT = 100_000  # examples of a split
LIMIT = 48  # images on a page
SMALL = 64 * 64  # pixels of one
SPLIT = "test"


class Predicted(NamedTuple):
    """The predicted classes of a split's examples, and how probable they are."""

    classes: Tensor  # int32 [n], -1 where the prediction is NaN
    confidence: Tensor  # float32 [n]

    @classmethod
    def of(cls, confidence: Tensor, classes: Tensor) -> Self:
        """Return the most probable classes of a batch."""
        return cls(classes.to("cpu", torch.int32), confidence.float().cpu())

    @classmethod
    def joined(cls, parts: Iterable["Predicted"]) -> Self:
        """Return those of the batches of a split, up to so many examples."""
        return cls(*(torch.cat(values)[:KEPT] for values in zip(*parts, strict=True)))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what `to_text` was given."""
        classes, confidence = from_text(text).view(2, -1)
        return cls(classes, confidence.view(torch.float32))

    def to_text(self) -> str:
        """Return both as text."""
        return to_text(torch.cat([self.classes, self.confidence.view(torch.int32)]))


def to_text(numbers: Tensor) -> str:
    """Return integers [n] as text, four bytes each."""
    return base64.b64encode(numbers.to(torch.int32).contiguous().numpy().tobytes()).decode()


def from_text(text: str) -> Tensor:
    """Return int32 [n] from the text of `to_text`."""
    return torch.frombuffer(bytearray(base64.b64decode(text, validate=True) or b""), dtype=torch.int32).clone()


def same_order(split: str, first: Tensor, second: Tensor) -> None:
    """Refuse a loader whose labels are others the second time."""
    if not torch.equal(first, second):
        raise ArgumentError(
            f"the {split} loader gave other labels, or another order of them, the second time: pass one that does "
            "not shuffle"
        )


def examples_of(
    alphas: Sequence[Alpha],
    predicted: Sequence[Predicted],
    labels: Tensor,
    images_of: Callable[[str, Sequence[int], Tensor], Tensor | None],
) -> Examples | None:
    """Return the images whose predicted class changes along some points; None where they cannot be shown.

    `images_of` gives small pictures, uint8 [k, C, H, W], of a split, some indices and all labels.
    """
    classes, confidence = (torch.stack(values) for values in zip(*predicted, strict=True))
    chosen = choose(classes, confidence)
    images = images_of(SPLIT, chosen.tolist(), labels)
    if images is None:
        return None
    return Examples(
        split=SPLIT,
        alphas=list(alphas),
        size=list(images.shape[1:]),
        images=base64.b64encode(images.contiguous().numpy().tobytes()).decode(),
        labels=labels[chosen].tolist(),
        indices=chosen.tolist(),
        predicted=classes[:, chosen].tolist(),
        confidence=confidence[:, chosen].tolist(),
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
    classes = (predicted.sort(0).values.diff(dim=0) != 0).sum(0)  # [n], one less than there are different classes
    changes = (predicted.diff(dim=0) != 0).sum(0)
    order = torch.arange(predicted.shape[1], device=predicted.device)
    for key in (confidence.double().nan_to_num(nan=0.0).mean(0), changes, classes):  # stable: the last key counts most
        order = order[key[order].argsort(descending=True, stable=True)]
    return order[classes[order] > 0][:limit]


def small_pictures(images: Tensor) -> Tensor | None:
    """Return images as uint8 if they are small enough for a page; those of any numbers are stretched to 0 … 255."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.shape[-2] * images.shape[-1] > SMALL:
        return None
    if images.dtype == torch.uint8:
        return images.cpu()
    flat = images.detach().cpu().double().flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    stretched = 255 * (flat - low) / (high - low).clamp(min=1e-12)
    return stretched.round().to(torch.uint8).reshape(images.shape)
