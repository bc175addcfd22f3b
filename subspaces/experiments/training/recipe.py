"""What is trained: a recipe's fields, and its method with those of its own; `RECIPES` has those of the paper."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from subspaces.core import checks, randomness
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError
from subspaces.experiments.data.folders import parts_of
from subspaces.experiments.data.loading import checked_size
from subspaces.experiments.data.resident import AUGMENTATIONS, PLAIN
from subspaces.experiments.methods import METHODS, Method, fields, own_fields, users
from subspaces.experiments.methods.fields import ABOVE_ZERO, FRACTION, NATURAL, POSITIVE, setting
from subspaces.experiments.methods.rates import SCHEDULES
from subspaces.text import Catalogue, listed, nearest

UNFIT = {  # optimisers that cannot train the vertices, which are the rows of one matrix
    "LBFGS": "it runs the network several times in a step",
    "SparseAdam": "it takes sparse gradients only",
    "Muon": "it treats the vertices as the rows of one weight matrix",
    "Adafactor": "it treats the vertices as the rows of one weight matrix",
}
NAME = 150  # bytes, of the 255 that a folder's name may have
DATA = ("dataset", "label_noise", "validation", "data_seed", "fingerprint", "image_size")
"""The fields that decide which images a recipe is trained on."""


@dataclass(frozen=True, init=False, kw_only=True)
class Recipe:
    """Everything that decides the result of a run; two runs with the same recipe are the same run.

    Beside these it takes the own fields of its method, and has them as attributes: `Recipe(method="line", beta=2)`.

    Example:
        >>> recipe = ss.Recipe(dataset="digits", network="mlp", method="line", beta=2, epochs=1)
        >>> recipe.shape(), recipe.beta
        (Line(), 2.0)
    """

    name: str = setting("custom", "Name of the recipe, for people and folders.")
    dataset: str = setting("cifar10", "Data set: see `subspaces data list`.")
    label_noise: float = setting(0.0, "Fraction of training images whose label is drawn at random.", FRACTION)
    validation: int = setting(0, "Training images held out for choices; 0 trains on all, as the paper does.", NATURAL)
    data_seed: int = setting(
        0, "Fixes label noise and held-out images, the same for every method.", NATURAL, most=randomness.SEEDS - 1
    )
    pad: int = setting(4, "Random crops out of the image padded by this many pixels.", NATURAL)
    flip: bool = setting(True, "Flip images left to right at random.")
    network: str = setting("cresnet20", "Network: a name, timm:NAME, torchvision:NAME or package.module:factory.")
    dropout: float = setting(0.0, "Dropout rate of the network.", FRACTION)
    method: str = setting("standard", "What is trained.", choices=lambda: METHODS)
    label_smoothing: float = setting(0.0, "Label smoothing of the cross entropy.", FRACTION)
    epochs: int = setting(160, "Passes over the training images.", POSITIVE)
    batch: int = setting(128, "Images in a batch.", POSITIVE)
    optimizer: str = setting("SGD", "Any optimiser of torch.optim, by its class name.")
    learning_rate: float = setting(0.1, "Highest learning rate.", ABOVE_ZERO)
    momentum: float = setting(0.9, "Momentum, for optimisers that have one.", NATURAL)
    weight_decay: float = setting(1e-4, "Weight decay, on everything.", NATURAL)
    schedule: str = setting("warmup-cosine", "Learning rate over the epochs, if the method has none of its own.")
    seed: int = setting(
        0, "Fixes initial weights, order of the images, augmentation and alpha.", NATURAL, most=randomness.SEEDS - 1
    )
    keep_epoch: int | None = setting(
        None, "Keep the checkpoint after so many epochs, for other runs to start from.", NATURAL
    )
    start_from: str = setting("", "Folder name of a run beside this one: start from the checkpoint that it keeps.")
    image_size: int = setting(0, "Side of your own images (data set folder), to which they are scaled; 0: 64.", NATURAL)
    augment: str = setting(PLAIN, "Views of training images.", choices=lambda: AUGMENTATIONS)
    fingerprint: str = setting("", "What your own images must be, NAME:FILES:DIGEST; by default what the folder has.")
    definition: Method

    def __init__(self, *, definition: Method | None = None, **given: Any) -> None:
        """Take the fields by name; `definition` is the method of another recipe, whose own fields are kept."""
        for name, entry in COMMON.items():
            object.__setattr__(self, name, given.get(name, entry.default))
        fields.check(self, COMMON.values())
        kind = METHODS[self.method]
        own = {name: value for name, value in given.items() if name not in COMMON}
        if definition is not None:
            kept = definition.own()
            own = {name: kept[name] for name in kept if name in kind.names()} | own
        self._refuse(kind, own)
        object.__setattr__(self, "definition", kind(**own))
        self._set_schedule(definition, "schedule" in given)
        self._check()

    def _refuse(self, kind: type[Method], own: Mapping[str, Any]) -> None:
        """Refuse fields that the method does not have."""
        for name in COMMON.keys() & kind.names():
            raise ArgumentError(f"the method {kind.name} has a field {name!r}, as every recipe has: rename it")
        for name in own:
            if not users(name):
                raise ArgumentError(f"{name}=…: a recipe has no such field; {nearest(name, all_fields())}")
            if name not in kind.names():
                raise ArgumentError(
                    f"{name}={checks.shown(own[name])}: {kind.name} makes no use of it; it is for {listed(users(name))}"
                )

    def _set_schedule(self, before: Method | None, given: bool) -> None:
        """Take the method's own schedule, if it has one, in place of what was the default or that of another method."""
        own, default = self.definition.schedule, COMMON["schedule"].default
        left = before is not None and before.name != self.method and self.schedule in (default, before.schedule)
        if left or not given:
            object.__setattr__(self, "schedule", own or default)
        if own is not None and self.schedule != own:
            raise ArgumentError(f"schedule={self.schedule!r}: {self.method} has a schedule of its own, {own!r}")
        if own is None and self.schedule not in SCHEDULES:
            raise ArgumentError(f"schedule={self.schedule!r}: {nearest(self.schedule, SCHEDULES)}")

    def _check(self) -> None:
        """Refuse fields that do not fit each other."""
        if not re.fullmatch(r"[\w.-]+", self.name) or len(self.name.encode()) > NAME:
            expected = f"letters, digits, '.', '_' and '-', and {NAME} of them at most, as it names a folder"
            raise ArgumentError(f"name={self.name!r}: expected {expected}")
        self.optimizer_class()
        object.__setattr__(self, "image_size", checked_size(self.dataset, self.image_size, self.fingerprint))
        if self.augment != PLAIN and (self.pad or self.dataset == "imagenet"):
            other = f"pad={self.pad}" if self.pad else f"dataset={self.dataset!r}, whose images are always seen so"
            raise ArgumentError(f"augment={self.augment!r} with {other}: expected one way to crop; set pad to 0")
        if self.keep_epoch is not None and self.keep_epoch >= self.epochs:
            raise ArgumentError(f"keep_epoch={self.keep_epoch}: expected less than the epochs, {self.epochs}")
        if self.start_from and not re.fullmatch(r"[\w-][\w.-]*", self.start_from):
            raise ArgumentError(f"start_from={self.start_from!r}: expected the name of a run's folder beside this one")
        self.definition.check(self.common())
        try:
            self.checkpoints()
            self.rate(0)
        except ValueError as error:
            own = "".join(f", {name}={value}" for name, value in self.definition.own().items())
            told = f"epochs={self.epochs}{own} with schedule={self.schedule!r}"
            raise ArgumentError(f"{told}: {error} (recipe {self.name})") from None

    @property
    def data_name(self) -> str:
        """The data set as people call it; that of the user's own images is their folder's."""
        return f"{parts_of(self.fingerprint)[0]} ({self.dataset})" if self.fingerprint else self.dataset

    def __getattr__(self, name: str) -> Any:
        """Return one of the method's own fields."""
        definition = self.__dict__.get("definition")
        if definition is None or name not in definition.names():
            raise AttributeError(f"the recipe {self.__dict__.get('name')!r} has no {name!r}")
        return getattr(definition, name)

    def shape(self) -> Shape:
        """Return the shape of the family that is trained; a single network is a `Point`."""
        return self.definition.shape()

    def result_shape(self) -> Shape:
        """Return the shape of the family that a finished run holds."""
        return self.definition.result_shape()

    @property
    def answers(self) -> tuple[str, ...]:
        """The ways in which a run answers, the method's own first."""
        return self.definition.answers

    @property
    def training_cost(self) -> float:
        """Network-steps per step: how many networks run forward and backward on a batch."""
        return self.definition.cost

    def checkpoints(self) -> list[int]:
        """Return after how many epochs the method keeps its weights; most keep none."""
        return self.definition.checkpoints(self.epochs)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        rate = self.definition.rate if self.definition.schedule else SCHEDULES[self.schedule].rate
        return rate(epoch, self.epochs, self.learning_rate)

    def optimizer_class(self) -> type[torch.optim.Optimizer]:
        """Return the class of the optimiser."""
        if self.optimizer in UNFIT:
            raise ArgumentError(f"optimizer={self.optimizer!r}: {UNFIT[self.optimizer]}; try 'SGD' or 'AdamW'")
        classes = {name for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
        known = sorted(classes - {"Optimizer", *UNFIT})
        if self.optimizer not in known:
            raise ArgumentError(f"optimizer={self.optimizer!r}: {nearest(self.optimizer, known)}")
        kind: type[torch.optim.Optimizer] = getattr(torch.optim, self.optimizer)
        return kind

    def common(self) -> dict[str, Any]:
        """Return the fields that every recipe has."""
        return {name: getattr(self, name) for name in COMMON}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for a JSON file; those of the method follow its name."""
        found: dict[str, Any] = {}
        for name, value in self.common().items():
            found |= {name: value, **(self.definition.own() if name == "method" else {})}
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Return the recipe with these fields."""
        method = values.get("method", COMMON["method"].default)
        if method not in METHODS:
            known = nearest(method, METHODS)
            raise ArgumentError(f"unknown method {method!r}: {known}; import or install the package that adds it")
        return cls(**values)

    def distinguishing(self) -> dict[str, Any]:
        """Return the fields that make a difference to what is trained, but for name and seed."""
        idle = {"name", "seed", "keep_epoch", *(["schedule"] if self.definition.schedule else [])}
        return {name: value for name, value in self.to_dict().items() if name not in idle}

    @property
    def key(self) -> str:
        """A short hash of all fields but the name."""
        content = json.dumps({**self.to_dict(), "name": ""}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:10]


def data_of(recipe: Recipe) -> tuple[Any, ...]:
    """Return what decides which images a recipe is trained on."""
    return tuple(getattr(recipe, name) for name in DATA)


COMMON = {entry.name: entry for entry in dataclasses.fields(Recipe) if entry.name != "definition"}
"""The fields that every recipe has, by name."""


def all_fields() -> dict[str, "dataclasses.Field[Any]"]:
    """Return the fields that a recipe can have, with those of all methods, by name."""
    own = {name: found[0][1] for name, found in own_fields().items()}
    return {**COMMON, **own}


SUBSPACES = ("line", "curve", "simplex")


def _methods(base: Recipe) -> list[Recipe]:
    """Return the standard recipe of a data set and one for every subspace."""
    plain = [_derived(base, name, {"method": name}) for name in SUBSPACES]
    layerwise = [_derived(base, f"{name}-layerwise", {"method": name, "layerwise": True}) for name in SUBSPACES]
    return [base, *plain, *layerwise]


def _baselines(base: Recipe, *unfit: str, validation: int, **ema: float) -> list[Recipe]:
    """Return the methods that a subspace is compared with; `validation` images choose the epoch of early stopping."""
    settings: dict[str, dict[str, Any]] = {
        "swa-cyclic": {},
        "swa-constant": {},
        "swag": {"vertices": 6},
        "snapshot": {"vertices": 6},
        "fge": {"vertices": 6},
        "ema": ema,
        "early-stopping": {"validation": validation},
        "sam": {},
        "dropout": {"method": "standard", "dropout": 0.1},
        "label-smoothing": {"method": "standard", "label_smoothing": 0.1},
        "simplex-label-smoothing": {"method": "simplex", "label_smoothing": 0.1},
        "integral": {"learning_rate": 0.02},  # gradients of a difference over epsilon: LeNet does not bear 0.1
    }
    return [
        _derived(base, name, {"method": name, **changes}) for name, changes in settings.items() if name not in unfit
    ]


def _several(base: Recipe) -> list[Recipe]:
    """Return lines and curves with several points per batch, and with features that are kept apart."""
    features = {"samples": 2, "feature_similarity": 1.0}
    settings: dict[str, dict[str, Any]] = {"samples2": {"samples": 2}, "samples4": {"samples": 4}, "features": features}
    return [
        _derived(base, f"{method}-{name}", {"method": method, **changes})
        for method in ("line", "curve")
        for name, changes in settings.items()
    ]


def _derived(base: Recipe, name: str, changes: Mapping[str, Any]) -> Recipe:
    return replace(base, name=f"{base.name.removesuffix('standard')}{name}", **changes)


_CIFAR10 = Recipe(name="cifar10-standard")
_TINY18 = replace(_CIFAR10, name="tiny-imagenet-resnet18-standard", dataset="tiny-imagenet", network="resnet18")
_TINY50 = replace(_TINY18, name="tiny-imagenet-resnet50-standard", network="resnet50")
_IMAGENET = replace(
    _CIFAR10,
    name="imagenet-resnet50-standard",
    dataset="imagenet",
    network="torchvision:resnet50",
    epochs=100,
    batch=256,
    weight_decay=5e-5,
    pad=0,  # crops are of random size instead
)
_WIDE = replace(_IMAGENET, name="imagenet-wide-resnet50-standard", network="torchvision:wide_resnet50_2")
_FOLDER = replace(_TINY18, name="folder-standard", dataset="folder", epochs=90)
_MNIST = replace(_CIFAR10, name="mnist-standard", dataset="mnist", network="lenet", epochs=10, pad=0, flip=False)
_DIGITS = replace(_MNIST, name="digits-standard", dataset="digits", network="mlp", epochs=60, label_noise=0.4)

_LISTS = (
    _methods(_CIFAR10),
    _baselines(_CIFAR10, "integral", validation=5000),
    _several(_CIFAR10),
    *map(_methods, (_TINY18, _TINY50, _IMAGENET, _WIDE, _MNIST)),
    _baselines(_MNIST, "dropout", "swag", "fge", validation=5000),  # LeNet has no dropout, 10 epochs are too short
    _methods(_FOLDER),
    _baselines(_FOLDER, "dropout", "integral", validation=200),  # ResNet18 has no dropout
    _methods(_DIGITS),
    _baselines(_DIGITS, "dropout", validation=200, ema_decay=0.98),  # an epoch has 10 steps
)
RECIPES = Catalogue("recipe", [recipe for recipes in _LISTS for recipe in recipes])


def find(name: str) -> Recipe:
    """Return the recipe of that name."""
    if name not in RECIPES:
        raise ArgumentError(f"no recipe {name!r}: {nearest(name, RECIPES)} (`subspaces recipes` lists them all)")
    return RECIPES[name]
