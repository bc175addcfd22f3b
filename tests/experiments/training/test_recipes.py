"""The recipes: those that are promised, with the paper's numbers."""

import pytest

from subspaces.experiments import data, methods
from subspaces.experiments.training import RECIPES, Recipe, recipes

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


def differences(name: str, base: str) -> dict[str, object]:
    standard = RECIPES[f"{base}-standard"].to_dict()
    recipe = RECIPES[f"{base}-{name}"]
    usual = {**methods.METHODS[recipe.method]().own(), **standard, "name": recipe.name}
    return {field: value for field, value in recipe.to_dict().items() if value != usual[field]}


WHAT_THEY_ARE: dict[str, dict[str, object]] = {
    "swa-cyclic": {"method": "swa-cyclic", "schedule": "swa-cyclic"},
    "swa-constant": {"method": "swa-constant", "schedule": "swa-constant"},
    "swag": {"method": "swag", "schedule": "swa-cyclic", "vertices": 6},
    "snapshot": {"method": "snapshot", "schedule": "snapshot", "vertices": 6},
    "fge": {"method": "fge", "schedule": "fge", "vertices": 6},
    "ema": {"method": "ema"},
    "early-stopping": {"method": "early-stopping", "validation": 5000},
    "sam": {"method": "sam"},
    "dropout": {"dropout": 0.1},
    "label-smoothing": {"label_smoothing": 0.1},
    "simplex-label-smoothing": {"method": "simplex", "label_smoothing": 0.1},
    "integral": {"method": "integral", "learning_rate": 0.02},
    **{f"{method}-samples{count}": {"method": method, "samples": count} for method in LINES for count in (2, 4)},
    **{f"{method}-features": {"method": method, "samples": 2, "feature_similarity": 1.0} for method in LINES},
}
OWN = {
    ("digits", "ema"): {"ema_decay": 0.98},
    **{(base, "early-stopping"): {"validation": 200} for base in ("digits", "folder")},
}
"""Where a recipe is another than on the other data sets: digits have 1,200 images, and ten steps in an epoch."""


def test_baselines_differ_from_standard_training_in_what_they_are():
    found = {(base, name): name in METHODS for base in BASES for name in [*METHODS, *BASELINES, *SEVERAL]}
    others = [(base, name) for (base, name), plain in found.items() if not plain and f"{base}-{name}" in RECIPES]
    assert len(others) == len(RECIPES) - len(BASES) * len(METHODS)
    for base, name in others:
        assert differences(name, base) == WHAT_THEY_ARE[name] | OWN.get((base, name), {}), f"{base}-{name}"


def test_the_default_recipe_is_standard_training_on_cifar10():
    assert Recipe(name="cifar10-standard") == RECIPES["cifar10-standard"]


def test_an_unknown_recipe_gets_the_nearest_name():
    with pytest.raises(ValueError, match=r"no recipe 'cifar-line': did you mean 'cifar10-line'\?.*subspaces recipes"):
        recipes.find("cifar-line")
