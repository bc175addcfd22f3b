"""The paper's methods: one network, and the line, the curve and the simplex of networks."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from subspaces.core.family import Subspace
from subspaces.core.initial import Factory
from subspaces.core.shapes import Bezier, Shape
from subspaces.core.shapes import Line as Segment
from subspaces.core.shapes import Simplex as Corners
from subspaces.errors import ArgumentError
from subspaces.experiments.methods.fields import NATURAL, POSITIVE, setting
from subspaces.experiments.methods.method import METHODS, Hooks, Method
from subspaces.networks.registry import head_name


class Sampling(Hooks["Spanned"]):
    """Trains a subspace at points that are drawn for each batch, with its vertices kept apart."""

    together = True
    varying = ("beta",)

    def __init__(self, method: "Spanned", family: Subspace, epochs: int, seed: int) -> None:
        super().__init__(method, family, epochs, seed)
        self.features = head_name(family.midpoint()) if method.feature_similarity else None
        self.traced = self.together = self.features is None  # the hook that finds them cannot be

    def outputs(self, x: Tensor) -> Any:
        return self.family(x, samples=self.method.samples, features=self.features)

    def penalties(self, outputs: Any) -> list[Tensor]:
        found = [self.family.penalty(self.numbers["beta"])]
        if self.features is None:
            return found
        return [*found, self.family.feature_similarity(outputs, self.method.feature_similarity)]


@METHODS.add
@dataclass(frozen=True)
class Standard(Method):
    """Ordinary training."""

    name = "standard"
    meaning = "one network"


@dataclass(frozen=True)
class Penalised(Method):
    """A subspace whose vertices are kept apart."""

    beta: float = setting(
        1.0, "How strongly vertices are kept apart: the factor of the penalty, their cos².", NATURAL, symbol="β"
    )
    init: Literal["independent", "point"] = setting(
        "independent", "Where the vertices start: each with weights of its own, or all at one point."
    )

    def family(self, network: Factory, seed: int) -> Subspace:
        return Subspace(network, self.shape(), init=self.init, offset=0.0, seed=seed)


@dataclass(frozen=True)
class Spanned(Penalised):
    """A subspace that is trained as such."""

    hooks = Sampling
    layerwise: bool = setting(
        False, "Draw a point for every layer of the network.", label=lambda yes: ", layerwise" if yes else ""
    )
    samples: int = setting(1, "Points for a batch, which is cut into as many groups.", POSITIVE)
    feature_similarity: float = setting(
        0.0,
        "How strongly the features at two points of a batch are kept apart; needs samples of 2 or more.",
        NATURAL,
        symbol="λ",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.feature_similarity and self.samples < 2:
            told = f"feature_similarity={self.feature_similarity}"
            raise ArgumentError(f"{told}: expected samples of 2 or more with it, and samples is {self.samples}")

    def family(self, network: Factory, seed: int) -> Subspace:
        return Subspace(network, self.shape(), self.layerwise, init=self.init, offset=0.0, seed=seed)

    @property
    def groups(self) -> int:
        return self.samples


@METHODS.add
@dataclass(frozen=True)
class Line(Spanned):
    """All networks between two."""

    name = "line"
    meaning = "all networks between two"
    answers = ("midpoint", "pair")

    def shape(self) -> Shape:
        return Segment()


@METHODS.add
@dataclass(frozen=True)
class Curve(Spanned):
    """A Bézier curve, which has one bend unless told otherwise."""

    name = "curve"
    meaning = "all networks on a curve between two"
    answers = ("midpoint", "pair")
    vertices: int = setting(3, "Vertices of the subspace.", POSITIVE, label=lambda m: "" if m == 3 else f" (m = {m})")

    def shape(self) -> Shape:
        if self.vertices < 3:
            raise ArgumentError(f"vertices={self.vertices}: a curve has two ends and at least one bend")
        return Bezier(self.vertices - 2)


@METHODS.add
@dataclass(frozen=True)
class Simplex(Spanned):
    """All weighted means of some networks."""

    name = "simplex"
    meaning = "all averages of several networks"
    answers = ("midpoint", "vertices", "random")
    vertices: int = setting(3, "Vertices of the subspace.", POSITIVE, label=lambda m: f" (m = {m})")

    def shape(self) -> Shape:
        return Corners(self.vertices)
