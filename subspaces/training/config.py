"""What is trained (`Recipe`) and where and how fast (`Execution`)."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, get_args

import torch

from subspaces import streams, values
from subspaces.shapes import Shape
from subspaces.text import nearest
from subspaces.training import methods
from subspaces.training.methods import Answer, Method
from subspaces.training.schedule import SCHEDULES

METHODS = methods.METHODS
Precision = Literal["auto", "float32", "bfloat16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
UNFIT = {  # optimisers that cannot train the vertices, which are the rows of one matrix
    "LBFGS": "it runs the network several times in a step",
    "SparseAdam": "it takes sparse gradients only",
    "Muon": "it treats the vertices as the rows of one weight matrix",
    "Adafactor": "it treats the vertices as the rows of one weight matrix",
}

MOST = 2**31 - 1
WORKERS = 1024
NAME = 150  # bytes, of the 255 that a folder's name may have
LIMITS = {  # so that no two streams of random numbers are one: seeds, branches and epochs have bits of their own
    **dict.fromkeys(("seed", "data_seed"), streams.SEEDS - 1),
    "branch": streams.BRANCHES - 1,
    "epochs": streams.EPOCHS - 1,
    **dict.fromkeys(("validation", "pad", "vertices", "samples", "batch", "trunk"), MOST),
}


def _help(text: str, default: Any) -> Any:
    return field(default=default, metadata={"help": text})


def _later(text: str, default: Any) -> Any:
    """Return a field that recipes did not always have: at its default it leaves the key of a run as it was."""
    return field(default=default, metadata={"help": text, "later": True})


def _typed(name: str, value: Any, kind: Any) -> Any:
    """Return a value as the type of its field, so that 1 and 1.0 are one configuration."""
    if isinstance(value, bool) == (kind is bool):
        if kind is int and isinstance(value, Integral):
            return int(value)
        if kind is float and isinstance(value, Real) and values.finite(value):
            return float(value)
        if kind not in (int, float) and isinstance(value, bool if kind is bool else str):
            return value
    expected = {int: "an integer", float: "a finite number", bool: "True or False"}.get(kind, "a name")
    raise ValueError(f"{name}={values.shown(value)}: expected {expected}")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the result of a run; two runs with the same recipe are the same run."""

    name: str = _help("Name of the recipe, for people and folders.", "custom")
    dataset: str = _help("Data set: see `subspaces data list`.", "cifar10")
    label_noise: float = _help("Fraction of training images whose label is drawn at random.", 0.0)
    validation: int = _help("Training images held out for choices; 0 trains on all, as the paper does.", 0)
    data_seed: int = _help("Fixes label noise and held-out images, the same for every method.", 0)
    pad: int = _help("Random crops out of the image padded by this many pixels.", 4)
    flip: bool = _help("Flip images left to right at random.", True)
    network: str = _help("Network: a name, timm:NAME, torchvision:NAME or package.module:factory.", "cresnet20")
    dropout: float = _help("Dropout rate of the network.", 0.0)
    method: Method = _help("What is learned, or what is made of one network on its way.", "standard")
    vertices: int = _help("Vertices of a curve (3: one bend) or a simplex; checkpoints, or members.", 3)
    layerwise: bool = _help("Draw one alpha for every layer.", False)
    init: Literal["independent", "point"] = _help("Vertices start apart, or all at one point.", "independent")
    beta: float = _help("Strength of the penalty cos² between vertices.", 1.0)
    samples: int = _help("Points per batch: the batch is cut into as many groups.", 1)
    feature_similarity: float = _help("Strength λ of the feature penalty; needs samples of 2 or more.", 0.0)
    label_smoothing: float = _help("Label smoothing of the cross entropy.", 0.0)
    epochs: int = _help("Passes over the training images.", 160)
    batch: int = _help("Images in a batch.", 128)
    optimizer: str = _help("Any optimiser of torch.optim, by its class name.", "SGD")
    learning_rate: float = _help("Highest learning rate.", 0.1)
    momentum: float = _help("Momentum, for optimisers that have one.", 0.9)
    weight_decay: float = _help("Weight decay, on everything.", 1e-4)
    schedule: str = _help(f"Learning rate over the epochs: {', '.join(SCHEDULES)}.", "warmup-cosine")
    seed: int = _help("Fixes initial weights, order of the images, augmentation and alpha.", 0)
    ema_decay: float = _later("Of the average of ema: the share that a step leaves of it.", 0.999)
    sam_rho: float = _later("How far sam climbs before it takes the gradient.", 0.05)
    epsilon: float = _later("Step of the finite difference of integral.", 0.1)
    trunk: int = _later("Epochs that all branches share; branch 0 is the run itself.", 0)
    branch: int = _later("From 1: after the trunk, an order of the images that is fixed by seed and branch.", 0)

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            object.__setattr__(self, entry.name, _typed(entry.name, getattr(self, entry.name), entry.type))
        if not re.fullmatch(r"[\w.-]+", self.name) or len(self.name.encode()) > NAME:
            raise ValueError(
                f"name={self.name!r}: expected letters, digits, '.', '_' and '-', and {NAME} of them at most, as it "
                "names a folder"
            )
        for name, most in LIMITS.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name}={values.shown(getattr(self, name))}: expected at most {most:,}")
        positive = ("epochs", "batch", "samples", "vertices")
        fraction = ("label_noise", "dropout", "label_smoothing", "ema_decay")
        penalties = ("beta", "feature_similarity", "weight_decay", "momentum")
        natural = ("validation", "pad", *penalties, "data_seed", "seed", "trunk", "branch")
        tests: list[tuple[tuple[str, ...], Callable[[float], bool], str]] = [
            (positive, lambda v: v >= 1, "at least 1"),
            (fraction, lambda v: 0 <= v < 1, "a fraction of at least 0 and below 1"),
            (natural, lambda v: v >= 0, "at least 0"),
            (("learning_rate", "sam_rho", "epsilon"), lambda v: v > 0, "more than 0"),
        ]
        for names, good, expected in tests:
            for name in names:
                if not good(getattr(self, name)):
                    raise ValueError(f"{name}={getattr(self, name)!r}: expected {expected}")
        for name, known in (("method", METHODS), ("schedule", tuple(SCHEDULES)), ("init", ("independent", "point"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}: {nearest(getattr(self, name), known)}")
        if self.schedule == "warmup-cosine" and self.method in methods.OWN_SCHEDULE:
            object.__setattr__(self, "schedule", methods.OWN_SCHEDULE[self.method])
        self.optimizer_class()
        self._check_method()

    def _check_method(self) -> None:
        """Refuse fields that do not fit the method."""
        if self.feature_similarity > 0 and (self.samples < 2 or self.shape().vertices < 2):
            raise ValueError(
                f"feature_similarity={self.feature_similarity}: expected a subspace and samples of 2 or more"
            )
        if self.samples > 1 and self.shape().vertices < 2:
            raise ValueError(f"samples={self.samples}: expected 1 for {self.method}, which has one point for a batch")
        if self.method == "integral" and (self.layerwise or self.samples > 1 or self.feature_similarity):
            raise ValueError(
                f"layerwise={self.layerwise}, samples={self.samples}, feature_similarity={self.feature_similarity}: "
                "integral takes differences along one line, at one alpha for the whole network and batch"
            )
        own = methods.OWN_SCHEDULE.get(self.method, self.schedule)
        if self.schedule != own:
            raise ValueError(f"schedule={self.schedule!r}: {self.method} has a schedule of its own, {own!r}")
        if self.method == "early-stopping" and not self.validation:
            raise ValueError(
                f"validation={self.validation}: early-stopping chooses its epoch on held-out images; hold some out, "
                "such as --validation 5000"
            )
        if self.trunk > self.epochs:
            raise ValueError(f"trunk={self.trunk}: expected at most the epochs, {self.epochs}")
        self.result_shape()
        counted = f", vertices={self.vertices}" if self.method in methods.OWN_SCHEDULE else ""
        try:
            self.checkpoints()
            self.rate(0)
        except ValueError as error:
            raise ValueError(
                f"epochs={self.epochs}{counted} with schedule={self.schedule!r}: {error} (recipe {self.name})"
            ) from None

    def shape(self) -> Shape:
        """Return the shape of the family that is trained; a single network is a `Point`."""
        return methods.trained_shape(self.method, self.vertices)

    def result_shape(self) -> Shape:
        """Return the shape of the family that a finished run holds."""
        return methods.result_shape(self.method, self.vertices)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The ways in which a run answers, the method's own first."""
        return methods.answers(self.method, self.dropout)

    @property
    def training_cost(self) -> float:
        """Network-steps per step: how many networks run forward and backward on a batch."""
        return methods.cost(self.method)

    def checkpoints(self) -> list[int]:
        """Return after how many epochs the method keeps its weights; most keep none."""
        return methods.checkpoints(self.method, self.epochs, self.vertices)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        options = {"m": self.vertices} if self.method in methods.OWN_SCHEDULE else {}
        return SCHEDULES[self.schedule](epoch, self.epochs, self.learning_rate, **options)

    def optimizer_class(self) -> type[torch.optim.Optimizer]:
        """Return the class of the optimiser."""
        if self.optimizer in UNFIT:
            raise ValueError(f"optimizer={self.optimizer!r}: {UNFIT[self.optimizer]}; try 'SGD' or 'AdamW'")
        classes = {name for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
        known = sorted(classes - {"Optimizer", *UNFIT})
        if self.optimizer not in known:
            raise ValueError(f"optimizer={self.optimizer!r}: {nearest(self.optimizer, known)}")
        kind: type[torch.optim.Optimizer] = getattr(torch.optim, self.optimizer)
        return kind

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for a JSON file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Return the recipe with these fields; unknown ones are an error."""
        known = [entry.name for entry in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(f"a recipe has no field {name!r}: {nearest(name, known)}")
        return cls(**values)

    @property
    def content(self) -> bytes:
        """All fields but the name, in one order; those added later count where they are not their default."""
        fields = {
            entry.name: value
            for entry in dataclasses.fields(self)
            for value in [getattr(self, entry.name)]
            if entry.name != "name" and not (entry.metadata.get("later") and value == entry.default)
        }
        return json.dumps(fields, sort_keys=True).encode()

    @property
    def key(self) -> str:
        """A short hash of what the recipe is, whatever its name."""
        return hashlib.sha256(self.content).hexdigest()[:10]


@dataclass(frozen=True)
class Execution:
    """How a recipe is run; its result is the same within rounding."""

    device: str = _help("cpu, cuda, cuda:1, …; auto takes a GPU if there is one.", "auto")
    precision: Precision = _help("auto: bfloat16 autocast on a GPU that computes in it.", "auto")
    channels_last: bool = _help("Images and weights in channels-last order.", True)
    compile: bool | None = _help("Use torch.compile; by default on a GPU.", None)
    graph: bool | None = _help("Capture the step as a CUDA graph; by default on a GPU.", None)
    resident: bool | None = _help("Keep images on the device; by default if they take at most half of it.", None)
    workers: int | None = _help("Processes that read images that are not on the device; by default one per core.", None)
    evaluate_every: int = _help("Epochs between evaluations of the midpoint; 0: at the end; early-stopping: 1.", 20)
    evaluate_batches: int = _help("Batches for batch-norm statistics of these evaluations; early-stopping: 50.", 50)
    checkpoint_seconds: float = _help("Seconds between checkpoints.", 60.0)

    def resolved(self) -> "Execution":
        """Return the same with every choice made."""
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision={values.shown(self.precision)}: {nearest(self.precision, PRECISIONS)}")
        self._check_types()
        name = self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
        except RuntimeError:
            device = torch.device("meta")
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"device={name!r}: expected auto, cpu, cuda or cuda:N")
        if device.type == "cuda" and (
            not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()
        ):
            raise ValueError(
                f"device={name!r}: this machine has {torch.cuda.device_count()} CUDA devices; use cpu or auto"
            )
        gpu = device.type == "cuda"
        low = gpu and torch.cuda.get_device_capability(device) >= (8, 0)
        precision = self.precision if self.precision != "auto" else "bfloat16" if low else "float32"
        compiled = gpu if self.compile is None else self.compile
        graph = gpu if self.graph is None else self.graph
        if graph and not gpu:
            raise ValueError(f"graph=True on {name}: a CUDA graph needs a CUDA device")
        return dataclasses.replace(self, device=name, precision=precision, compile=compiled, graph=graph)

    def _check_types(self) -> None:
        """Refuse numbers and switches that are none."""
        values.whole("evaluate_every", self.evaluate_every, 0, MOST)
        values.whole("evaluate_batches", self.evaluate_batches, 1, MOST)
        if self.workers is not None:
            values.whole("workers", self.workers, 0, WORKERS, beside=", or None for one per core")
        seconds: Any = self.checkpoint_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, Real) or not float(seconds) >= 0:
            raise ValueError(f"checkpoint_seconds={values.shown(seconds)}: expected a number of at least 0")
        for name in ("channels_last", "compile", "graph", "resident"):
            value = getattr(self, name)
            if not isinstance(value, bool) and (value is not None or name == "channels_last"):
                raise ValueError(f"{name}={values.shown(value)}: expected True or False")
        if not isinstance(self.device, str):
            raise ValueError(f"device={values.shown(self.device)}: expected text, auto, cpu, cuda or cuda:N")
