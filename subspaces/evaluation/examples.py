"""Images whose predicted class changes along a subspace, for a page."""

import base64

import torch
from torch import Tensor

from subspaces.evaluation.points import to_place
from subspaces.evaluation.predictions import Predictions
from subspaces.evaluation.record import Examples, Record
from subspaces.evaluation.subject import Subject

LIMIT = 48
SPLIT = "test"


def renew(record: Record, predictions: Predictions, subject: Subject, anew: bool) -> Examples | None:
    """Return the examples of a record: those that are there, unless more was measured since."""
    alphas = [row.alphas[0] for row in record.rows if row.kind == "point" and row.split == SPLIT]
    if len(alphas) < 2 or SPLIT not in predictions.labels:
        return record.examples
    if not anew and record.examples is not None and record.examples.alphas == alphas:
        return record.examples
    said = predictions.stacked(SPLIT, [to_place(alpha) for alpha in alphas])
    chosen = choose(said.predicted, said.confidence)
    labels = predictions.labels[SPLIT]
    images = subject.images(SPLIT, chosen.tolist(), labels)
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
        raise ValueError(f"{len(content)} bytes of images: expected {'x'.join(map(str, shape))}")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape) if content else torch.zeros(shape).byte()


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
