"""What an export says of itself, inside the file: enough to feed it images and to read its answers."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from subspaces.core import checks
from subspaces.core.ensemble import Average
from subspaces.core.outputs import Outputs
from subspaces.errors import ArgumentError
from subspaces.export.errors import ModelError

FORMAT = "subspaces-export"
FILE = "metadata.json"  # in a .pt2 archive
VERSION = 1
Kind = Literal["network", "ensemble", "family"]
SIDE = 1 << 14  # pixels
CLASSES = 1_000_000
NUMBERS = 1 << 26  # of an image


@dataclass(frozen=True)
class Metadata:
    """All that stands in the file of an export.

    Args:
        kind: one network, several that answer together, or a family with its point as an input.
        name: what was exported, such as the name of a run.
        point: where in the family it lies, in words.
        network: a registered name (`mlp`, `timm:resnet18`, `package.module:factory`), or the class of a module.
        classes: their names, in the order of the probabilities; none where there are no classes.
        image_shape: channels, height and width; none where it does not take images.
        mean, std: what the program normalises with, for each channel; none where it does not.
        alphas: the points of the networks.
        average: of the members of an ensemble.
        resize: the length to which the shorter side of an image file is scaled before its centre is cut out.
        dropout: the rate that the network was built with.
        domain: of a family, what alpha is: "number" or how many barycentric coordinates.
        task: "classification", "tokens", "pixels", "regression", "outputs" (as they are), or "" where it is not known.
        network_outputs: what the network of a classification returns for each class, for the reader of weights.
        takes, returns: type and shape of every input and output by name, with n for the number of examples.
        dataset: that it was trained on.
        recipe: all fields of it.
        statistics_images: from how many images batch-norm statistics were made; 0 where there are none.
        anchors: of a family, the number of points where they were.
        commit: of the source tree that it was trained with.
        versions: that it was exported with.
    """

    kind: Kind
    name: str
    point: str
    network: str
    classes: tuple[str, ...] = ()
    image_shape: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    alphas: tuple[Any, ...] = ()
    average: str = ""
    resize: int = 0
    dropout: float = 0.0
    domain: str = ""
    task: str = "classification"
    network_outputs: str = "logits"
    takes: dict[str, str] = field(default_factory=dict)
    returns: dict[str, str] = field(default_factory=dict)
    dataset: str = ""
    recipe: dict[str, Any] = field(default_factory=dict)
    statistics_images: int = 0
    anchors: int = 0
    commit: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def flat(self) -> dict[str, str]:
        """Return everything as text by name, as headers take it; what is no text is JSON."""
        fields = {name: value if isinstance(value, str) else json.dumps(value) for name, value in vars(self).items()}
        return {"format": FORMAT, "version": str(VERSION), **fields}

    @classmethod
    def of(cls, header: Mapping[str, str], where: object) -> "Metadata":
        """Return the metadata of a header, each part checked, or say that it is none."""
        if header.get("format") != FORMAT:
            raise ModelError(f"{where} was not written by `subspaces export`: expected a file of that command")
        if header.get("version") != str(VERSION):
            found = checks.shown(header.get("version"))
            raise ModelError(f"{where} has version {found}, this is {str(VERSION)!r}: upgrade subspaces")
        try:
            fields = {entry.name: _read(entry, header) for entry in dataclasses.fields(cls) if entry.name in header}
            made = cls(**fields)
            made._check()
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ModelError(f"{where} is damaged (its metadata: {error}): use another copy") from None
        made.check_images(where)
        return made

    def check_images(self, where: object) -> None:
        """Refuse what is no classifier of images, which alone predicts from files here."""
        images = self.takes.get("images", "float32 [n, …]" if not self.takes else "")
        if self.task == "classification" and self.image_shape and images.startswith("float32 [n"):
            return
        described = [", ".join(f"{name} {kind}" for name, kind in each.items()) for each in (self.takes, self.returns)]
        what = "takes {} and returns {}".format(*described) if all(described) else "holds the weights of a network"
        raise ModelError(
            f"{where} {what[:300]}: expected a classifier of images, float32 [n, C, H, W], which was exported with "
            "example=images; load this one as its card says"
        )

    def _check(self) -> None:
        """Refuse what no export has."""
        if self.kind not in get_args(Kind):
            raise ArgumentError(f"kind is {checks.shown(self.kind)}")
        if len(self.network) > 1000 or len(self.point) > 1000:
            raise ArgumentError(f"network and point are {checks.shown(self.network)} and {checks.shown(self.point)}")
        if self.average not in ("", *get_args(Average)):
            raise ArgumentError(f"average is {checks.shown(self.average)}")
        if self.kind == "family" and not re.fullmatch(r"number|[1-9][0-9]{0,5}", self.domain):
            raise ArgumentError(f"domain is {checks.shown(self.domain)}")
        if self.network_outputs not in ("", *get_args(Outputs)):
            raise ArgumentError(f"network_outputs is {checks.shown(self.network_outputs)}")
        if not all(isinstance(each, str) for each in (*self.takes.values(), *self.returns.values())):
            raise ArgumentError(f"takes and returns are {checks.shown(self.takes)} and {checks.shown(self.returns)}")
        if self.image_shape and self.task:
            self._check_images()

    def _check_images(self) -> None:
        """Refuse what no classifier of images has."""
        if not 1 <= len(self.classes) <= CLASSES or not all(isinstance(each, str) for each in self.classes):
            raise ArgumentError(f"classes are {checks.shown(self.classes)}")
        shape = self.image_shape
        if len(shape) != 3 or not all(checks.integer(n) and 1 <= n <= SIDE for n in shape):
            raise ArgumentError(f"image_shape is {checks.shown(shape)}")
        if math.prod(shape) > NUMBERS:
            raise ArgumentError(f"image_shape is {shape}, of more than {NUMBERS:,} numbers")
        if not all(isinstance(x, float) and math.isfinite(x) for x in (*self.mean, *self.std)):
            raise ArgumentError(f"mean and std are {checks.shown((self.mean, self.std))}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, shape[0]):
            raise ArgumentError(f"mean and std are of {len(self.mean)} and {len(self.std)} channels")
        if not 0 <= self.dropout <= 1:
            raise ArgumentError(f"dropout is {checks.shown(self.dropout)}")
        if self.resize and (shape[1] != shape[2] or not shape[1] <= self.resize <= SIDE):
            raise ArgumentError(f"resize is {checks.shown(self.resize)}, of images of shape {shape}")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what a classifier of images returns."""
        return ("probabilities", "disagreement") if self.kind == "ensemble" else ("probabilities",)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what a classifier of images takes."""
        return ("images", "alpha") if self.kind == "family" else ("images",)


def _read(entry: "dataclasses.Field[Any]", header: Mapping[str, str]) -> Any:
    """Return one entry of a header as what it was."""
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
