"""What was measured: rows of points and ensembles on some data, and planes, choices and examples beside them.

The predictions of each point are stored with its measurements, so that the images whose predicted class changes need
no networks. Of long splits the first examples are kept.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.text import nearest

Kind = Literal["point", "ensemble"]
Alpha = float | list[float]
Grid = list[list[float | None]]
SPLIT = "test"
OUTLIERS = "outliers"  # the group of rows about outliers
KEPT = 100_000  # examples of a split whose predictions are stored
LIMIT = 48  # images on a page
SMALL = 64 * 64  # pixels of one
ABOUT = ["answer", "kind", "role", "alpha", "alphas", "average", "networks", "data", "severity", "group", "source"]
ABOUT += ["count"]
"""The columns of a frame that say what was measured; all others are metrics."""


@dataclass(frozen=True)
class Reliability:
    """Predictions by confidence, in bins of equal width; an empty bin has None."""

    count: list[int]
    confidence: list[float | None]
    accuracy: list[float | None]


@dataclass(frozen=True)
class About:
    """What a row is about: a point, or several that answer together."""

    kind: Kind
    role: str
    alphas: list[Alpha]
    average: str | None = None
    networks: int = 1


@dataclass(frozen=True)
class Row:
    """How good one point, or the ensemble of several, is on one set of examples.

    `row.accuracy` is `row.metrics["accuracy"]`. `data` is a split, or the name of shifted data or outliers, which have
    a `group` (noise, blur, weather, digital, extra, given; outliers) and a `source`: "made", "given", "data", or the
    name of a folder. `scaled` are the metrics after temperature scaling, with the temperature, which is fitted on
    validation examples alone.
    """

    kind: Kind
    role: str
    alphas: list[Alpha]
    coefficients: list[list[float]]
    data: str
    count: int
    metrics: dict[str, float]
    reliability: Reliability | None = None
    average: str | None = None
    diversity: dict[str, float] | None = None
    scaled: dict[str, float] | None = None
    networks: int = 1
    severity: int = 0
    group: str = ""
    source: str = ""

    @property
    def split(self) -> str:
        """The same as `data`."""
        return self.data

    def __getattr__(self, name: str) -> float:
        known: Mapping[str, float] = self.__dict__.get("metrics", {})
        if name not in known:
            raise AttributeError(f"a row has no {name!r}: {nearest(name, known)}")
        return known[name]


@dataclass(frozen=True)
class Answered:
    """One way in which a family answers, in words, and which rows are its."""

    name: str
    words: str
    networks: int
    role: str
    alphas: list[Alpha]
    average: str | None

    def is_of(self, row: Row | About) -> bool:
        found = (row.role, row.alphas, row.average, row.networks)
        return found == (self.role, self.alphas, self.average, self.networks)


def hashable(alphas: Sequence[Alpha]) -> tuple[float | tuple[float, ...], ...]:
    """Return points as tuples, for columns of a frame."""
    return tuple(tuple(alpha) if isinstance(alpha, list) else alpha for alpha in alphas)


@dataclass(frozen=True)
class Corner:
    """A network that a plane goes through."""

    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Drawn:
    """A subspace or networks in the coordinates of a plane, and how far off it they lie."""

    label: str
    kind: Literal["path", "point"]
    x: list[float]
    y: list[float]
    distance: list[float]


@dataclass(frozen=True)
class Plane:
    """Metrics on a grid of the plane through three networks, by name [y][x]; None where not computed yet."""

    name: str
    corners: list[Corner]
    xs: list[float]
    ys: list[float]
    values: dict[str, Grid]
    split: str
    count: int
    statistics_images: int
    drawn: list[Drawn] = field(default_factory=list)


@dataclass(frozen=True)
class Choice:
    """Something that was chosen by a metric; `on_test` marks a choice on the split that is reported."""

    what: Literal["point", "pair"]
    by: str
    chosen_on: str
    on_test: bool
    value: Any
    reported: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Examples:
    """k images of a split whose predicted class changes along p points, and what each of those says about them."""

    split: str
    alphas: list[Alpha]  # p
    size: list[int]  # C, H, W
    images: str  # uint8 [k, C, H, W] in base64
    labels: list[int]  # k
    indices: list[int]  # k, in the split
    predicted: list[list[int]]  # [p][k]
    confidence: list[list[float]]  # [p][k], of the predicted class


@dataclass(frozen=True)
class Training:
    """How a run was trained, as far as tables, figures and pages tell it."""

    group: str  # the same for runs that differ in their seed only
    label: str  # the method in words
    settings: dict[str, Any]  # in which runs may differ, by name
    words: dict[str, str]  # what these are called, of those that the label does not tell
    order: list[Any]  # by which methods are sorted
    seeds: list[int]  # one; of an ensemble of runs, those of its members
    data: str  # the data set, as people call it
    fingerprint: str  # the same for runs on the same data
    network: str
    label_noise: float
    epochs: int
    vertices: int  # that were trained; 1 of a single network, whatever was made of it
    log: list[dict[str, Any]]  # a row per epoch
    seconds: float | None  # that the steps of training took, where it is known
    folder: str
    recipe: dict[str, Any]
    starts: list[dict[str, Any]] = field(default_factory=list)  # where each start of it ran


# Predictions of each point (class and confidence), and the images whose predicted class changes along the points


def to_predictions(confidence: Tensor, classes: Tensor) -> Tensor:
    """Return classes, -1 where a prediction is NaN, and the bits of float32 confidences as int32 [2, n]."""
    return torch.stack([classes.to("cpu", torch.int32), confidence.float().cpu().view(torch.int32)])


def to_text(numbers: Tensor) -> str:
    """Return integers as text, four bytes each."""
    return base64.b64encode(numbers.to(torch.int32).contiguous().numpy().tobytes()).decode()


def from_text(text: str) -> Tensor:
    """Return int32 [n] from the text of `to_text`."""
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.int32)


def same_order(split: str, first: Tensor, second: Tensor) -> None:
    """Refuse a loader whose labels are others the second time."""
    if not torch.equal(first, second):
        raise ArgumentError(
            f"the {split} loader gave other labels, or another order of them, the second time: pass one that does "
            "not shuffle"
        )


def examples_of(
    alphas: Sequence[Alpha],
    predictions: Sequence[Tensor],
    labels: Tensor,
    images_of: Callable[[str, Sequence[int], Tensor], Tensor | None],
) -> Examples | None:
    """Return the images whose predicted class changes along some points; None where they cannot be shown.

    `images_of` gives small pictures, uint8 [k, C, H, W], of a split, some indices and all labels.
    """
    several = torch.stack(list(predictions))  # [p, 2, n]
    classes, confidence = several[:, 0], several[:, 1].contiguous().view(torch.float32)
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
    content, shape = bytearray(base64.b64decode(examples.images)), (len(examples.labels), *examples.size)
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
    if images.shape[1] not in (1, 3) or images.shape[-2] * images.shape[-1] > SMALL:
        return None
    if images.dtype == torch.uint8:
        return images.cpu()
    flat = images.detach().cpu().double().flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    stretched = 255 * (flat - low) / (high - low).clamp(min=1e-12)
    return stretched.round().to(torch.uint8).reshape(images.shape)
