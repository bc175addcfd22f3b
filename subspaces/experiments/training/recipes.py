"""The recipes: the paper's experiments and small ones, each derived from another; `RECIPES.add` takes any other."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.experiments.training.recipe import Recipe
from subspaces.text import Catalogue, nearest

SUBSPACES = ("line", "curve", "simplex")


def _methods(base: Recipe) -> list[Recipe]:
    """Return the standard recipe of a data set and one for every subspace."""
    plain = [_derived(base, name, {"method": name}) for name in SUBSPACES]
    layerwise = [_derived(base, f"{name}-layerwise", {"method": name, "layerwise": True}) for name in SUBSPACES]
    return [base, *plain, *layerwise]


def _baselines(base: Recipe, *unfit: str, validation: int, **ema: float) -> list[Recipe]:
    """Return the methods that a subspace is compared with, but for those that do not fit.

    `validation` images choose the epoch of early stopping.
    """
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
    settings: dict[str, dict[str, Any]] = {
        "samples2": {"samples": 2},
        "samples4": {"samples": 4},
        "features": {"samples": 2, "feature_similarity": 1.0},
    }
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
