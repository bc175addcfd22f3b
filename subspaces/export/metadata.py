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
            for name in made._wrong():
                raise ArgumentError(f"{name} is {checks.shown(getattr(made, name))}")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise damaged(where, f"its metadata: {error}") from None
        images = made.takes.get("images", "" if made.takes else "float32 [n")
        if made.task != "classification" or not made.image_shape or not images.startswith("float32 [n"):
            takes, returns = (", ".join(map(" ".join, each.items())) for each in (made.takes, made.returns))
            what = f"takes {takes} and returns {returns}" if takes and returns else "holds the weights of a network"
            raise ModelError(
                f"{where} {what[:300]}: expected a classifier of images, float32 [n, C, H, W], which was exported with "
                "example=images; load this one as its card says"
            )
        return made

    def _wrong(self) -> Iterator[str]:
        """Yield the fields whose values no export has."""
        if self.kind not in get_args(Kind):
            yield "kind"
        yield from (name for name in ("network", "point") if len(getattr(self, name)) > 1000)
        if self.average not in ("", *get_args(Average)):
            yield "average"
        if self.kind == "family" and not re.fullmatch(r"number|[1-9][0-9]{0,5}", self.domain):
            yield "domain"
        if self.network_outputs not in ("", *get_args(Outputs)):
            yield "network_outputs"
        named = {name: getattr(self, name).values() for name in ("takes", "returns")} | {"classes": self.classes}
        yield from (name for name, values in named.items() if not all(isinstance(each, str) for each in values))
        shape = self.image_shape
        if not shape or not self.task:
            return
        whole = all(checks.integer(n) and 1 <= n <= SIDE for n in shape)
        if len(shape) != 3 or not whole or math.prod(shape) > NUMBERS:
            yield "image_shape"
        if not 1 <= len(self.classes) <= CLASSES:
            yield "classes"
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            finite = all(isinstance(x, float) and math.isfinite(x) for x in numbers)
            if not finite or len(numbers) not in (0, shape[0]) or len(numbers) != len(self.mean):
                yield name
        if not 0 <= self.dropout <= 1:
            yield "dropout"
        if self.resize and (shape[1] != shape[2] or not shape[1] <= self.resize <= SIDE):
            yield "resize"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what a classifier of images returns."""
        return ("probabilities", "disagreement") if self.kind == "ensemble" else ("probabilities",)


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
