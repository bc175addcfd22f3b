"""A method: all that is known of it, said once; recipes, options, help texts, labels and tables take it from here."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from subspaces.core.family import Subspace
from subspaces.core.initial import Factory
from subspaces.core.shapes import Point, Shape
from subspaces.errors import ArgumentError
from subspaces.experiments.methods import fields
from subspaces.experiments.methods.rates import warmup_cosine
from subspaces.text import Catalogue


@dataclass(frozen=True)
class Backward:
    """Renews the gradients of a batch when it is called, and counts loss and right predictions if told so."""

    renew: Callable[[bool], None]
    groups: list[list[nn.Parameter]]  # of a family, or of several runs side by side
    runs: int = 0  # how many of their first dimensions are the runs of a group: none or one

    def __call__(self, counted: bool) -> None:
        self.renew(counted)


M = TypeVar("M", bound="Method")
IN_A_STEP = {"outputs", "penalties", "gradient", "after_step"}


class Hooks(Generic[M]):
    """What a method with its own fields does while its family is trained; as it stands, nothing more than that.

    All that is done within a step can be captured in a CUDA graph: it waits for nothing and changes its tensors in
    place. Several runs may be trained as one program (`together`): the family's tensors are then moved to lie beside
    those of others, so that a hook looks them up whenever it needs them.
    """

    watch: int | None = None  # evaluate every epoch on all splits, with batch-norm statistics of so many batches
    traced = True  # whether `torch.compile` can follow `outputs`
    together = True
    """Whether runs may be trained together: what a class does in a step has to say so, else it is trained alone.

    `outputs` and `penalties` are then called once for all, with a family and `numbers` that stand for those of each
    (`torch.func.vmap`), and use nothing else of the run; `gradient` is called once with the parameters of all.
    """
    varying: ClassVar[tuple[str, ...]] = ()  # fields that may differ between such runs, and are read in `numbers`

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if IN_A_STEP & vars(cls).keys() and "together" not in vars(cls):
            cls.together = False

    def __init__(self, method: M, family: Subspace, epochs: int, seed: int) -> None:
        self.method, self.family, self.epochs, self.seed = method, family, epochs, seed
        self.numbers: Mapping[str, Any] = {name: getattr(method, name) for name in self.varying}

    def outputs(self, x: Tensor) -> Any:
        """Return what the loss is taken of: the outputs on a batch, or a `Sampled` that holds them."""
        return self.family(x)

    def penalties(self, outputs: Any) -> list[Tensor]:
        """Return what is added to the loss of these outputs."""
        return []

    def gradient(self, backward: Backward) -> None:
        """Make the gradient of a batch."""
        backward(True)

    def after_step(self) -> None:
        """Take note of the weights that a step has made."""

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        """Take note of the weights after so many epochs, and of their accuracies where they are watched."""

    def current_family(self) -> Subspace:
        """Return the family whose midpoint an evaluation during training looks at."""
        return self.family

    def result(self) -> Subspace:
        """Return the family of the finished run."""
        return self.current_family()

    @property
    def epoch(self) -> int:
        """After how many epochs the training of the result ended."""
        return self.epochs

    def summary(self) -> dict[str, Any]:
        """Return what belongs into the result beside the accuracies."""
        return {}

    def live(self) -> dict[str, Tensor]:
        """Return every tensor that a step changes, by name."""
        return {}

    def kept(self) -> dict[str, Tensor]:
        """Return what else it takes to continue, by name."""
        return {}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        """Continue with what `kept()` returned earlier."""


@dataclass(frozen=True)
class Method:
    """One network, trained as it comes; a method says in what it differs."""

    name: ClassVar[str]
    meaning: ClassVar[str]  # what it makes, in plain words that go on a line with the name
    answers: ClassVar[tuple[str, ...]] = ("midpoint",)  # how its runs answer, by name; the first is the method's own
    members: ClassVar[str] = "vertices"  # what the vertices of its runs are called
    cost: ClassVar[float] = 1.0  # how many networks run forward and backward on a batch in one step
    schedule: ClassVar[str | None] = None  # the name of its own schedule, if it leaves no choice
    hooks: ClassVar[type[Hooks[Any]]] = Hooks

    def __post_init__(self) -> None:
        fields.check(self, self.entries())
        self.shape()
        self.result_shape()

    def shape(self) -> Shape:
        """Return the shape that is trained: a single network is a `Point`."""
        return Point()

    def result_shape(self) -> Shape:
        """Return the shape of the family that a finished run holds."""
        return self.shape()

    def family(self, network: Factory, seed: int) -> Subspace:
        """Return the family at its start."""
        return Subspace(network, self.shape(), seed=seed)

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Return the learning rate of an epoch, counted from 0, where the schedule is its own."""
        return warmup_cosine(epoch, epochs, peak)

    def checkpoints(self, epochs: int) -> list[int]:
        """Return after how many epochs weights are kept; most methods keep none."""
        return []

    @property
    def groups(self) -> int:
        """Into how many groups a batch is cut, each for a point of its own."""
        return 1

    def check(self, rest: Mapping[str, Any]) -> None:
        """Refuse a recipe whose other fields, by name, do not fit."""

    def middle(self) -> str:
        """Return what the midpoint of a run's family is called."""
        count = self.result_shape().vertices
        return "network" if count == 1 else "midpoint" if self.shape().vertices > 1 else f"average of {count}"

    def label(self) -> str:
        """Return the name with those fields that belong to it, its own before those of what it derives from."""
        told = [entry for entry in reversed(self.entries()) if "label" in entry.metadata]
        return self.name + "".join(entry.metadata["label"](getattr(self, entry.name)) for entry in told)

    @classmethod
    def entries(cls) -> "tuple[dataclasses.Field[Any], ...]":
        """Return its own fields as they are defined."""
        for entry in dataclasses.fields(cls):
            if "help" not in entry.metadata:
                what = f"{cls.name} does not say what {entry.name} is for"
                raise ArgumentError(f"{what}: expected setting(default, text)")
        return dataclasses.fields(cls)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of its own fields."""
        return [entry.name for entry in cls.entries()]

    def own(self) -> dict[str, Any]:
        """Return its own fields, by name."""
        return {name: getattr(self, name) for name in self.names()}


METHODS: Catalogue[type[Method]] = Catalogue("method")


def own_fields() -> "dict[str, list[tuple[type[Method], dataclasses.Field[Any]]]]":
    """Return the own fields of all methods by name, each with the methods that have it."""
    found: dict[str, list[tuple[type[Method], dataclasses.Field[Any]]]] = {}
    for kind in METHODS.values():
        for entry in kind.entries():
            found.setdefault(entry.name, []).append((kind, entry))
    return found


def users(field: str) -> list[str]:
    """Return the methods that have a field of that name."""
    return [kind.name for kind, _ in own_fields().get(field, [])]
