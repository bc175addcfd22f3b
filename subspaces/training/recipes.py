"""The recipes: the paper's experiments and small ones, each derived from another."""

from dataclasses import replace

from subspaces.points import nearest
from subspaces.training.config import Recipe


def _methods(base: Recipe) -> list[Recipe]:
    """Return the standard recipe of a data set and one for every subspace."""
    prefix = base.name.removesuffix("-standard")
    line = replace(base, name=f"{prefix}-line", method="line")
    curve = replace(base, name=f"{prefix}-curve", method="curve", vertices=3)
    simplex = replace(base, name=f"{prefix}-simplex", method="simplex", vertices=3)
    layerwise = [replace(recipe, name=f"{recipe.name}-layerwise", layerwise=True) for recipe in (line, curve, simplex)]
    return [base, line, curve, simplex, *layerwise]


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
_MNIST = replace(_CIFAR10, name="mnist-standard", dataset="mnist", network="lenet", epochs=10, pad=0, flip=False)
_DIGITS = replace(_MNIST, name="digits-standard", dataset="digits", network="mlp", epochs=60, label_noise=0.4)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for base in (_CIFAR10, _TINY18, _TINY50, _IMAGENET, _WIDE, _MNIST, _DIGITS)
    for recipe in _methods(base)
}


def find(name: str) -> Recipe:
    """Return the recipe of that name."""
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}: {nearest(name, RECIPES)} (`subspaces recipes` lists them all)")
    return RECIPES[name]
