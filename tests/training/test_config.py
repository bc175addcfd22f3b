"""Recipes and settings: what they refuse, what names a run, and how they come back from a file."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import subspaces as ss
from subspaces.training import Execution, Recipe

BAD = {
    "name": [3, "", "../../x", "a/b", "a b", "a\n"],
    "dataset": [None],
    "label_noise": [-0.1, 1, 1.5, math.nan, "0.1"],
    "validation": [-1, 0.5],
    "data_seed": [-1, 1.5],
    "pad": [-1, 2.5],
    "flip": [1, "yes"],
    "network": [None],
    "dropout": [-0.1, 1.0],
    "method": ["circle", "Line", 3],
    "vertices": [0, -2, 2.0, True],
    "layerwise": ["no", 0],
    "init": ["zero"],
    "beta": [-1, math.nan, math.inf],
    "samples": [0, 1.5],
    "feature_similarity": [-1, math.nan],
    "label_smoothing": [-0.1, 1],
    "epochs": [0, -3, 1.5, "10", True],
    "batch": [0, 12.8],
    "optimizer": ["sgd", "Optimizer", "lr_scheduler", "LBFGS", "SparseAdam", "Muon", "Adafactor"],
    "learning_rate": [0, -0.1, math.nan, math.inf],
    "momentum": [-0.9, math.nan],
    "weight_decay": [-1e-4, math.inf],
    "schedule": ["cosine-warmup", ""],
    "seed": [-1, 0.5, "0"],
}
OTHER = {
    "dataset": "digits",
    "label_noise": 0.2,
    "validation": 10,
    "data_seed": 1,
    "pad": 2,
    "flip": False,
    "network": "lenet",
    "dropout": 0.1,
    "method": "line",
    "vertices": 4,
    "layerwise": True,
    "init": "point",
    "beta": 0.5,
    "samples": 2,
    "feature_similarity": 0.5,
    "label_smoothing": 0.1,
    "epochs": 10,
    "batch": 64,
    "optimizer": "Adam",
    "learning_rate": 0.2,
    "momentum": 0.8,
    "weight_decay": 1e-3,
    "schedule": "constant",
    "seed": 1,
}
FIELDS = [entry.name for entry in dataclasses.fields(Recipe)]


def test_every_field_is_in_the_tables_of_these_tests():
    assert set(BAD) == set(FIELDS)
    assert set(OTHER) == set(FIELDS) - {"name"}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_field_is_named_with_its_value(name, value):
    with pytest.raises(ValueError, match=name) as error:
        Recipe(**{name: value})
    assert f"{name}={value!r}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("method", "lines", "line"),
        ("method", "symplex", "simplex"),
        ("schedule", "warmup_cosine", "warmup-cosine"),
        ("schedule", "swa-cycle", "swa-cyclic"),
        ("optimizer", "SDG", "SGD"),
        ("optimizer", "AdamV", "Adam"),
        ("init", "points", "point"),
    ],
)
def test_a_wrong_name_gets_the_nearest_one(name, value, nearest):
    with pytest.raises(ValueError, match=f"did you mean '{nearest}"):
        Recipe(**{name: value})


def test_fields_that_contradict_each_other():
    with pytest.raises(ValueError, match=r"feature_similarity=0\.5: expected a subspace and samples of 2"):
        Recipe(method="line", feature_similarity=0.5)
    with pytest.raises(ValueError, match=r"feature_similarity=0\.5"):
        Recipe(samples=2, feature_similarity=0.5)
    with pytest.raises(ValueError, match="vertices=2: a curve"):
        Recipe(method="curve", vertices=2)
    with pytest.raises(ValueError, match="m=1"):
        Recipe(method="simplex", vertices=1)
    with pytest.raises(ValueError, match="epochs=3 with schedule='swa-cyclic'"):
        Recipe(schedule="swa-cyclic", epochs=3)
    with pytest.raises(ValueError, match="epochs=5 with schedule='snapshot'"):
        Recipe(schedule="snapshot", epochs=5)


def test_shapes():
    assert Recipe().shape() == ss.Point()
    assert Recipe(method="line").shape() == ss.Line()
    assert Recipe(method="curve", vertices=4).shape() == ss.Bezier(2)
    assert Recipe(method="simplex", vertices=6).shape() == ss.Simplex(6)


def changed(name: str) -> Recipe:
    needs = {"feature_similarity": {"method": "line", "samples": 2}}.get(name, {})
    return Recipe(**needs, **{name: OTHER[name]})


@pytest.mark.parametrize("name", sorted(OTHER))
def test_the_key_changes_with_every_field(name):
    base = Recipe(method="line", samples=2) if name == "feature_similarity" else Recipe()
    assert changed(name).key != base.key


def test_the_key_ignores_the_name_and_how_a_number_is_written():
    assert Recipe(name="mine").key == Recipe().key
    assert Recipe(beta=1, label_noise=0, epochs=np.int64(160)).key == Recipe().key
    assert Recipe(seed=np.int32(3)).key == Recipe(seed=3).key
    assert Recipe(learning_rate=np.float64(0.1)).to_dict() == Recipe().to_dict()


@pytest.mark.parametrize("name", sorted(OTHER))
def test_a_recipe_comes_back_from_json(name):
    recipe = changed(name)
    back = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert back == recipe
    assert back.key == recipe.key


def test_from_dict_refuses_an_unknown_field():
    with pytest.raises(ValueError, match=r"no field 'epoch': did you mean 'epochs'\?"):
        Recipe.from_dict({**Recipe().to_dict(), "epoch": 3})


def test_every_field_has_a_help_text():
    for kind in (Recipe, Execution):
        assert all(entry.metadata["help"] for entry in dataclasses.fields(kind))


# Execution


def test_on_a_cpu_everything_is_plain():
    found = Execution(device="cpu").resolved()
    assert (found.device, found.precision, found.compile, found.graph) == ("cpu", "float32", False, False)


def test_auto_takes_what_there_is():
    found = Execution().resolved()
    gpu = torch.cuda.is_available()
    assert found.device == ("cuda" if gpu else "cpu")
    assert found.precision == ("bfloat16" if gpu else "float32")
    assert found.compile == found.graph == gpu


def test_what_is_chosen_stays():
    found = Execution(device="cpu", precision="bfloat16", compile=True).resolved()
    assert (found.precision, found.compile) == ("bfloat16", True)
    assert found.resolved() == found


@pytest.mark.parametrize("device", ["graphics", "cpu:x", "cuda:99", ""])
def test_a_bad_device_is_named(device):
    with pytest.raises(ValueError, match=f"device='{device}'"):
        Execution(device=device).resolved()


def test_a_graph_needs_a_gpu():
    with pytest.raises(ValueError, match="graph=True on cpu"):
        Execution(device="cpu", graph=True).resolved()


@pytest.mark.parametrize(
    ("name", "value"),
    [("precision", "float16"), ("evaluate_every", -1), ("evaluate_batches", 0), ("checkpoint_seconds", -1.0)],
)
def test_a_bad_setting_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        Execution(**{name: value}).resolved()
