"""Which points are exported, and what the file says of them: the metadata inside it, and the card beside it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from subspaces.core import batchnorm, checks
from subspaces.core.alpha import to_alpha
from subspaces.core.family import Subspace
from subspaces.core.selection import shown
from subspaces.core.shapes import Bezier, Line, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.export import ExportError, ModelError, damaged
from subspaces.text import markdown, printable

FORMAT, VERSION = "subspaces-export", "1"
FILE = "metadata.json"  # in a .pt2 archive
Kind = Literal["network", "ensemble", "family"]
NAMES = ("midpoint", "ensemble", "family")
PAIR = (0.1, 0.9)  # of a line or curve, as evaluation measures it
Point = str | float | Sequence[Any] | Tensor
"""A name, a number, coordinates, several points that are averaged, or a tensor with a point for each layer."""
NUMBERS = 1 << 26  # of an image, at most
TEXTS = ("kind", "name", "point", "network", "task")
READ = ("classes", "image_shape", "mean", "std", "resize", "takes", "returns")
"""The fields that are read again."""


@dataclass(frozen=True)
class Chosen:
    """The points whose networks are exported."""

    kind: Kind
    words: str  # what they are called
    alphas: tuple[Any, ...] = ()  # numbers, coordinates, or a point for each layer; none without a family


def choose(point: Any, shape: Shape, layers: int, middle: str = "midpoint") -> Chosen:
    """Return the points of a family of so many layers that a user names; `middle` is what its midpoint is called."""
    name = point if isinstance(point, str) else ""
    if name == "midpoint":
        return Chosen("network", middle, (0.0 if shape.vertices == 1 else shape.midpoint().tolist(),))
    if shape.vertices == 1:
        raise ExportError(f"point={checks.shown(point)}: there is one network only; expected 'midpoint'")
    if name == "family":
        if not isinstance(shape, (Line, Bezier, Simplex)):
            raise ExportError(f"point='family': {shape} is no Line, Bezier or Simplex; give one point")
        return Chosen("family", f"every point of {shape}")
    if name == "ensemble":
        return _together(torch.eye(shape.vertices).tolist() if shape.point else PAIR)
    if isinstance(point, Tensor) and point.shape == (layers, *shape.point):
        return Chosen("network", "a point for each layer", (point.tolist(),))
    found = point.tolist() if isinstance(point, Tensor) else point
    parts = list(found) if checks.listed(found) else [found]
    if shape.point and parts and not any(isinstance(each, str) or checks.listed(each) for each in parts):
        parts = [parts]  # the coordinates of one point
    alphas = [_alpha(each, shape) for each in parts]
    if not alphas:
        raise ArgumentError(f"point={checks.shown(point)}: expected one point or more, each {shape.domain}")
    if len(alphas) == layers > 1 and not isinstance(parts[0], str):
        raise ArgumentError(
            f"point={checks.shown(point)}: as many points as layers; pass torch.tensor(point) for one in each layer, "
            "or export family.ensemble(points), which averages them"
        )
    return _together(alphas) if len(alphas) > 1 else Chosen("network", f"the point {shown(alphas[0])}", tuple(alphas))


def _together(alphas: Sequence[Any]) -> Chosen:
    """Return several points that are averaged."""
    words = " and ".join(map(shown, alphas)) if len(alphas) < 4 else f"{len(alphas)} points"
    return Chosen("ensemble", f"ensemble of {words}", tuple(alphas))


def _alpha(value: Any, shape: Shape) -> Any:
    """Return a point as a number or as coordinates."""
    try:
        found = [float(part) for part in value.split(",")] if isinstance(value, str) else value
        if isinstance(found, (bool, bytes)):
            raise ValueError
        return to_alpha(found, shape, shape.midpoint().double(), outside=False).reshape(shape.point).tolist()
    except (ValueError, TypeError, RuntimeError):
        expected = f"{', '.join(map(repr, NAMES))}, or {shape.domain}"
        raise ArgumentError(f"point={checks.shown(value)}: not a point of {shape}; expected {expected}") from None


@dataclass(frozen=True)
class Metadata:
    """The header of an exported file: enough to feed it images and to read its answers."""

    kind: Kind  # one network, several that are averaged, or a family with its point as an input
    name: str  # of what was exported, such as a run
    point: str  # where in the family it lies, in words
    network: str  # a registered name (`mlp`, `timm:resnet18`, `package.module:factory`), or the class of a module
    classes: tuple[str, ...] = ()  # in the order of the probabilities; none where there are no classes
    image_shape: tuple[int, ...] = ()  # channels, height and width; none where it does not take images
    mean: tuple[float, ...] = ()  # what the program normalises with, for each channel; none where it does not
    std: tuple[float, ...] = ()
    alphas: tuple[Any, ...] = ()  # the points of the networks
    resize: int = 0  # to which the shorter side of an image file is scaled before its centre is cut out
    task: str = "classification"  # its name, "outputs" for outputs as they are, "" where it is not known
    network_outputs: str = "logits"  # of a classification, for whoever loads weights
    takes: dict[str, str] = field(default_factory=dict)  # type and shape of every input, n for the number of examples
    returns: dict[str, str] = field(default_factory=dict)  # the same of every output
    dataset: str = ""  # that it was trained on
    recipe: dict[str, Any] = field(default_factory=dict)  # all fields of it
    statistics_images: int = 0  # of the batch-norm statistics; 0 if they were not made anew
    anchors: int = 0  # of a family, the number of points where statistics were measured
    commit: str = ""  # of the source tree that it was trained with
    versions: dict[str, str] = field(default_factory=dict)  # that it was exported with

    def flat(self) -> dict[str, str]:
        """Return all fields as text by name, as headers take them; other types than text as JSON."""
        fields = {name: value if isinstance(value, str) else json.dumps(value) for name, value in vars(self).items()}
        return {"format": FORMAT, "version": VERSION, **fields}

    @classmethod
    def of(cls, header: Any, where: object) -> "Metadata":
        """Return the metadata of a classifier of images from the header of a file, each part checked."""
        if not isinstance(header, Mapping) or (header.get("format"), header.get("version")) != (FORMAT, VERSION):
            raise ModelError(f"{where} was not written by `subspaces export` of this version: export it again")
        try:
            found: dict[str, Any] = {name: json.loads(header[name]) for name in READ}
            found = {name: tuple(each) if isinstance(each, list) else each for name, each in found.items()}
            made = cls(**found, **{name: str(header[name]) for name in TEXTS})  # type: ignore[arg-type]
            classifies = made.task == "classification" and made.takes.get("images", "").startswith("float32 [n")
            wrong = made._wrong() if classifies else None
            takes = ", ".join(f"{name} {form}" for name, form in made.takes.items())
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
            raise damaged(where, f"its metadata: {checks.shown(error)}") from None
        if wrong is not None:
            raise damaged(where, f"its metadata: {wrong} is {checks.shown(getattr(made, wrong))}")
        if not classifies or made.kind == "family":
            raise ModelError(
                f"{where} takes {takes[:300]}: expected a classifier of images, float32 [n, C, H, W], and of a family "
                "one point; load this one as its card says"
            )
        return made

    def _wrong(self) -> str | None:
        """Return a field that no export of a classifier of images has so; None if all are right."""
        shape, classes = self.image_shape, self.classes
        sides = len(shape) == 3 and all(checks.integer(n) and n >= 1 for n in shape)
        numbers = [isinstance(x, float) and math.isfinite(x) for x in (*self.mean, *self.std)]
        right = {
            "kind": self.kind in get_args(Kind),
            "image_shape": sides and math.prod(shape) <= NUMBERS,
            "classes": isinstance(classes, tuple) and {*map(type, classes)} == {str},
            "mean": all(numbers) and len(self.mean) in (0, shape[0]),
            "std": len(self.std) == len(self.mean),
            "resize": self.resize == 0
            or (checks.integer(self.resize) and shape[1] == shape[2] <= self.resize <= 4 * shape[1]),
        }
        return next((name for name, fine in right.items() if not fine), None)


def card_of(export: Any, target: Path, tolerance: float) -> str:
    """Return the card of an export, from the template `card.md.jinja`.

    Names come from files and folders of anybody, so whatever the template prints is escaped: neither Markdown nor HTML
    has a meaning in it. What is code, or was escaped before, is `Markup`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else markdown(str(value)),
    )
    environment.filters |= {
        "alpha": shown,
        "quoted": lambda text: Markup(printable(json.dumps(text, ensure_ascii=False))),
        "printable": lambda text: Markup(printable(text)),
    }
    module = export.network if export.weights else export.program.network
    return environment.get_template("card.md.jinja").render(
        about=export.about,
        export=export,
        file=target.name,
        format=target.suffix[1:].lower(),
        tolerance=tolerance,
        types=sorted({str(each.dtype).removeprefix("torch.") for each in module.parameters()}),
        uncalibrated=export.weights and isinstance(module, Subspace) and bool(batchnorm.tracked(module.template)),
    )
