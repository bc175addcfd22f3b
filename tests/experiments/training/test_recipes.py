"""The recipes: those that are promised, with the paper's numbers."""

import pytest

from subspaces.experiments import data
from subspaces.experiments.training import RECIPES, recipes

BASES = [
    "cifar10",
    "tiny-imagenet-resnet18",
    "tiny-imagenet-resnet50",
    "imagenet-resnet50",
    "imagenet-wide-resnet50",
    "mnist",
    "folder",
    "digits",
]
METHODS = ["standard", "line", "curve", "simplex", "line-layerwise", "curve-layerwise", "simplex-layerwise"]
BASELINES = [
    *("swa-cyclic", "swa-constant", "swag", "snapshot", "fge", "ema", "early-stopping", "sam", "dropout"),
    *("label-smoothing", "simplex-label-smoothing", "integral"),
]
UNFIT = {
    "cifar10": {"integral"},
    "mnist": {"dropout", "swag", "fge"},
    "folder": {"dropout", "integral"},
    "digits": {"dropout"},
}
LINES = ("line", "curve")
SEVERAL = [f"{method}-{what}" for method in LINES for what in ("samples2", "samples4", "features")]
PAPER = {  # network, epochs, batch, weight decay, pad, flip
    "cifar10": ("cresnet20", 160, 128, 1e-4, 4, True),
    "tiny-imagenet-resnet18": ("resnet18", 160, 128, 1e-4, 4, True),
    "tiny-imagenet-resnet50": ("resnet50", 160, 128, 1e-4, 4, True),
    "imagenet-resnet50": ("torchvision:resnet50", 100, 256, 5e-5, 0, True),
    "imagenet-wide-resnet50": ("torchvision:wide_resnet50_2", 100, 256, 5e-5, 0, True),
    "mnist": ("lenet", None, 128, 1e-4, 0, False),
    "folder": ("resnet18", None, 128, 1e-4, 4, True),
    "digits": ("mlp", None, 128, 1e-4, 0, False),
}


def test_every_data_set_has_every_method_and_nothing_else():
    expected = {f"{base}-{method}" for base in BASES for method in METHODS}
    expected |= {f"{base}-{name}" for base, unfit in UNFIT.items() for name in BASELINES if name not in unfit}
    assert set(RECIPES) == expected | {f"cifar10-{name}" for name in SEVERAL}
    assert all(recipe.name == name for name, recipe in RECIPES.items())


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", METHODS)
def test_the_numbers_of_the_paper(base, method):
    recipe = RECIPES[f"{base}-{method}"]
    found = (recipe.network, recipe.epochs, recipe.batch, recipe.weight_decay, recipe.pad, recipe.flip)
    assert all(expected in (None, value) for value, expected in zip(found, PAPER[base], strict=True))
    assert (recipe.optimizer, recipe.learning_rate, recipe.momentum) == ("SGD", 0.1, 0.9)
    assert recipe.schedule == "warmup-cosine"
    assert recipe.validation == 0
    if method != "standard":
        assert (recipe.beta, recipe.samples) == (1.0, 1)
    assert base.startswith(recipe.dataset)
    assert recipe.dataset in data.NAMES


"""Where a recipe is another than on the other data sets: digits have 1,200 images, and ten steps in an epoch."""


def test_an_unknown_recipe_gets_the_nearest_name():
    with pytest.raises(ValueError, match=r"no recipe 'cifar-line': did you mean 'cifar10-line'\?.*subspaces recipes"):
        recipes.find("cifar-line")
