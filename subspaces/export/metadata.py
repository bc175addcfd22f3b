"""The metadata inside an exported file: enough to feed it images and to read its answers."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from subspaces.core import checks
from subspaces.core.ensemble import Average
from subspaces.core.outputs import Outputs
from subspaces.errors import ArgumentError
from subspaces.export import ModelError, damaged

FORMAT = "subspaces-export"
FILE = "metadata.json"  # in a .pt2 archive
VERSION = 1
Kind = Literal["network", "ensemble", "family"]
SIDE = 1 << 14  # pixels
CLASSES = 1_000_000
NUMBERS = 1 << 26  # of an image


@dataclass(frozen=True)
class Metadata:
    """The header of an exported file."""

    kind: Kind  # one network, several that are averaged, or a family with its point as an input
    name: str  # of what was exported, such as a run
    point: str  # where in the family it lies, in words
    network: str  # a registered name (`mlp`, `timm:resnet18`, `package.module:factory`), or the class of a module
    classes: tuple[str, ...] = ()  # in the order of the probabilities; none where there are no classes
    image_shape: tuple[int, ...] = ()  # channels, height and width; none where it does not take images
    mean: tuple[float, ...] = ()  # what the program normalises with, for each channel; none where it does not
    std: tuple[float, ...] = ()
    alphas: tuple[Any, ...] = ()  # the points of the networks
    average: str = ""  # of the members of an ensemble
    resize: int = 0  # to which the shorter side of an image file is scaled before its centre is cut out
    dropout: float = 0.0  # the rate that the network was built with
    domain: str = ""  # of a family's alpha: "number" or the number of barycentric coordinates
    task: str = "classification"  # its name, "outputs" for outputs as they are, "" where it is not known
    network_outputs: str = "logits"  # of a classification, for the reader of weights
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
        return {"format": FORMAT, "version": str(VERSION), **fields}

    @classmethod
    def of(cls, header: Any, where: object) -> "Metadata":
        """Return the metadata of a classifier of images from the header of a file, each part checked."""
        if not isinstance(header, Mapping) or header.get("format") != FORMAT:
            raise ModelError(f"{where} was not written by `subspaces export`: expected a file of that command")
        if header.get("version") != str(VERSION):
            found = checks.shown(header.get("version"))
            raise ModelError(f"{where} has version {found}, this is {str(VERSION)!r}: upgrade subspaces")
        try:
            made = cls(**{each.name: _read(each, header) for each in dataclasses.fields(cls) if each.name in header})
            wrong = next((name for name, right in made._checks() if not right), None)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            raise damaged(where, f"its metadata: {error}") from None
        if wrong is not None:
            raise damaged(where, f"its metadata: {wrong} is {checks.shown(getattr(made, wrong))}")
        images = made.takes.get("images", "" if made.takes else "float32 [n")
        if made.task != "classification" or not made.image_shape or not images.startswith("float32 [n"):
            takes, returns = (", ".join(map(" ".join, each.items())) for each in (made.takes, made.returns))
            what = f"takes {takes} and returns {returns}" if takes and returns else "holds the weights of a network"
            raise ModelError(
                f"{where} {what[:300]}: expected a classifier of images, float32 [n, C, H, W], which was exported with "
                "example=images; load this one as its card says"
            )
        return made

    def _checks(self) -> Iterator[tuple[str, bool]]:
        """Yield fields, and whether an export may have their values."""
        yield "kind", self.kind in get_args(Kind)
        yield "network", len(self.network) <= 1000
        yield "point", len(self.point) <= 1000
        yield "average", self.average in ("", *get_args(Average))
        yield "domain", self.kind != "family" or bool(re.fullmatch(r"number|[1-9][0-9]{0,5}", self.domain))
        yield "network_outputs", self.network_outputs in ("", *get_args(Outputs))
        for name, texts in (
            ("takes", self.takes.values()),
            ("returns", self.returns.values()),
            ("classes", self.classes),
        ):
            yield name, all(isinstance(each, str) for each in texts)
        shape, sides = self.image_shape, self.image_shape[1:]
        if not shape or not self.task:
            return
        yield "image_shape", len(shape) == 3 and all(checks.integer(n) and 1 <= n <= SIDE for n in shape)
        yield "image_shape", math.prod(shape) <= NUMBERS
        yield "classes", 1 <= len(self.classes) <= CLASSES
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            yield name, len(numbers) in (0, shape[0]) and len(numbers) == len(self.mean)
            yield name, all(isinstance(x, float) and math.isfinite(x) for x in numbers)
        yield "dropout", 0 <= self.dropout <= 1
        yield "resize", self.resize == 0 or (sides[0] == sides[1] <= self.resize <= SIDE)


def _read(entry: "dataclasses.Field[Any]", header: Mapping[str, str]) -> Any:
    """Return one entry of a header in the type of its field."""
    text = header[entry.name]
    if not isinstance(text, str):
        raise ArgumentError(f"{entry.name} is no text")
    kind: Any = get_origin(entry.type) or entry.type
    if kind in (str, Literal):
        return text
    value: Any = json.loads(text)
    expected: Any = {tuple: list, float: (int, float)}.get(kind, kind)
    if not isinstance(value, expected) or isinstance(value, bool):
        raise ArgumentError(f"{entry.name} is {checks.shown(value)}")
    return tuple(value) if kind is tuple else value
