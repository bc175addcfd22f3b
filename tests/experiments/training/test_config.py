"""Recipes and settings: what they refuse, what names a run, and how they come back from a file."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from seed_cases import FIELDS

from subspaces.experiments import data
from subspaces.experiments.methods import users
from subspaces.experiments.training import RECIPES, Execution, Recipe
from subspaces.experiments.training.recipe import COMMON, all_fields, find

BAD = {
    "name": [3, "", "../../x", "a/b", "a b", "a\n"],
    "dataset": [None],
    "label_noise": [-0.1, 1, 1.5, math.nan, "0.1"],
    "validation": [-1, 0.5],
    "data_seed": [-1, 1.5, 2**63, 10**30],
    "pad": [-1, 2.5, 10**12],
    "flip": [1, "yes"],
    "network": [None],
    "dropout": [-0.1, 1.0],
    "method": ["circle", "Line", 3],
    "vertices": [0, -2, 2.0, True, 2**31],
    "layerwise": ["no", 0],
    "init": ["zero"],
    "beta": [-1, math.nan, math.inf],
    "samples": [0, 1.5],
    "feature_similarity": [-1, math.nan],
    "label_smoothing": [-0.1, 1],
    "epochs": [0, -3, 1.5, "10", True, 2**31],
    "batch": [0, 12.8],
    "optimizer": ["sgd", "Optimizer", "lr_scheduler", "LBFGS", "SparseAdam", "Muon", "Adafactor"],
    "learning_rate": [0, -0.1, math.nan, math.inf, 1e300],
    "momentum": [-0.9, math.nan],
    "weight_decay": [-1e-4, math.inf, 1e39],
    "schedule": ["cosine-warmup", ""],
    "seed": [-1, 0.5, "0", 2**63, 2**64, True],
    "ema_decay": [-0.1, 1.0, math.nan],
    "sam_rho": [0, -0.05, math.inf],
    "epsilon": [0.0, -0.1],
    "keep_epoch": [-1, 160, 0.5],
    "start_from": [3, "../x", "a b"],
    "image_size": [-1, 64, 0.5],
    "augment": ["resized", "none", 3],
    "fingerprint": [3, "flowers:3:0123456789ab"],
}
OWN = {"dataset": "folder"}
USED: dict[str, tuple[dict[str, Any], Any]] = {  # a recipe that uses a field, and another value of it
    **FIELDS,
    "flip": ({}, False),
    "augment": ({"pad": 0}, "resized-crop"),
    "keep_epoch": ({}, 3),
    "start_from": ({}, "other-seed0-0123456789"),
    "image_size": (OWN, 32),
    "fingerprint": (OWN, "flowers:3:0123456789ab"),
}
OTHER = {name: value for name, (_, value) in USED.items()}


def user(name: str) -> dict[str, str]:
    """The method that a field is for."""
    return {"method": users(name)[0]} if name not in COMMON else {}


def test_every_field_is_in_the_tables_of_these_tests():
    assert set(BAD) == set(all_fields())
    assert set(OTHER) == set(all_fields()) - {"name"}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_field_is_named_with_its_value(name, value):
    with pytest.raises(ValueError, match=name) as error:
        Recipe(**{**user(name), name: value})
    assert f"{name}={value!r}" in str(error.value)


# What the methods say of themselves


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "swa-cyclic", "vertices": 42}, "epochs=160, vertices=42 .* 42 checkpoints in 160 epochs"),
        ({"method": "swag", "vertices": 6, "epochs": 10}, "epochs=10, vertices=6 .* 6 checkpoints in 10 epochs"),
        ({"method": "swa-constant", "vertices": 1}, "vertices=1: swa-constant keeps two checkpoints"),
        ({"method": "snapshot", "vertices": 6, "epochs": 5}, "epochs=5, vertices=6 .* 6 cycles in 5 epochs"),
        ({"method": "fge", "vertices": 6, "epochs": 40}, "6 members in the last 8 of 40 epochs.* 11 in all"),
        ({"method": "early-stopping"}, "validation=0: early-stopping .* --validation"),
        ({"method": "snapshot", "schedule": "constant"}, "schedule='constant': snapshot has a schedule of its own"),
        ({"method": "sam", "samples": 2, "feature_similarity": 1.0}, "samples=2: sam makes no use of it"),
        ({"keep_epoch": 10, "epochs": 10}, "keep_epoch=10: expected less than the epochs, 10"),
        ({"method": "line", "feature_similarity": 0.5}, r"feature_similarity=0\.5: expected samples of 2"),
        (
            {"feature_similarity": 0.5},
            r"feature_similarity=0\.5: standard makes no use of it; it is for line, curve and",
        ),
        ({"method": "curve", "vertices": 2}, "vertices=2: a curve"),
        ({"method": "simplex", "vertices": 1}, "m=1"),
        ({"schedule": "swa-cyclic"}, "schedule='swa-cyclic': expected one of 'warmup-cosine', 'constant'"),
    ],
    ids=str,
)
def test_fields_that_do_not_fit_the_method(changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**changes)


# Keys


@pytest.mark.parametrize("name", sorted(OTHER))
def test_every_field_changes_the_key_and_comes_back_from_json(name):
    base = Recipe(**USED[name][0])
    recipe = dataclasses.replace(base, **{name: OTHER[name]})
    assert recipe.key != base.key
    back = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert (back, back.key) == (recipe, recipe.key)


def test_the_key_ignores_the_name_and_how_a_number_is_written():
    assert Recipe(name="mine").key == Recipe().key
    line = Recipe(method="line", beta=1, label_noise=0, epochs=np.int64(160))
    assert line.key == Recipe(method="line").key
    assert Recipe(seed=np.int32(3)).key == Recipe(seed=3).key
    assert Recipe(learning_rate=np.float64(0.1)).to_dict() == Recipe().to_dict()


# Execution


def test_auto_takes_what_there_is():
    found = Execution().resolved()
    gpu = torch.cuda.is_available()
    assert found.device == ("cuda" if gpu else "cpu")
    assert found.precision == ("bfloat16" if gpu else "float32")
    assert found.compile == found.graph == gpu


@pytest.mark.parametrize("device", ["graphics", "cpu:x", "cuda:99", "", None, 5])
def test_a_bad_device_is_named(device):
    with pytest.raises(ValueError, match=f"device={device!r}"):
        Execution(device=device).resolved()


def test_a_graph_needs_a_gpu():
    with pytest.raises(ValueError, match="graph=True on cpu"):
        Execution(device="cpu", graph=True).resolved()


@pytest.mark.parametrize(
    "settings",
    [
        *({"evaluate_every": -1}, {"evaluate_batches": 0}, {"checkpoint_seconds": math.nan}, {"at_once": 1.5}),
        *({"stack": 0}, {"workers": True}, {"workers": 10**6}, {"compile": "yes"}, {"channels_last": None}),
        *({"cpus_per_run": 2}, {"gpus_per_run": 2, "ray": "auto"}, {"ray": "head"}, {"ray": "ray://head:10001"}),
        *({"device": "cuda:1", "ray": "auto"}, {"gpus_per_run": 0.5, "ray": "auto", "device": "cpu"}),
    ],
    ids=str,
)
def test_a_bad_setting_is_named(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}="):
        Execution(**settings)


def test_another_method_keeps_what_both_have_and_loses_the_rest():
    line = Recipe(method="line", beta=2.0, layerwise=True, samples=2)
    assert dataclasses.replace(line, method="standard") == Recipe()
    assert dataclasses.replace(line, method="integral") == Recipe(method="integral", beta=2.0)
    snapshot = Recipe(method="snapshot", vertices=6)  # whose schedule is its own
    assert dataclasses.replace(snapshot, method="standard") == Recipe()
    assert dataclasses.replace(snapshot, method="fge") == Recipe(method="fge", vertices=6)
    with pytest.raises(ValueError, match="schedule='constant': fge has a schedule of its own"):
        dataclasses.replace(Recipe(schedule="constant"), method="fge")


# The recipes


SUBSPACE_RECIPES = ["standard", "line", "curve", "simplex", "line-layerwise", "curve-layerwise", "simplex-layerwise"]
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


@pytest.mark.parametrize("base", PAPER)
@pytest.mark.parametrize("method", SUBSPACE_RECIPES)
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


def test_an_unknown_recipe_gets_the_nearest_name():
    with pytest.raises(ValueError, match=r"no recipe 'cifar-line': did you mean 'cifar10-line'\?.*subspaces recipes"):
        find("cifar-line")
