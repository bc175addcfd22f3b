"""What is advised where training cannot go on: the setting that is out of the ordinary, by the option's name."""

import dataclasses
from pathlib import Path

import pytest
from training_cases import DIGITS

from subspaces.experiments.training import TrainingError, train
from subspaces.experiments.training.advice import against_divergence


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, "lower --learning-rate (now 0.05)"),
        ({"learning_rate": 1e20}, "lower --learning-rate (now 1e+20)"),
        ({"weight_decay": 1e20}, "lower --weight-decay (now 1e+20)"),
        ({"momentum": 5.0}, "lower --momentum (now 5)"),
        ({"method": "line", "beta": 1e20}, "lower --beta (now 1e+20)"),
        ({"method": "sam", "sam_rho": 1e20}, "lower --sam-rho (now 1e+20)"),
        ({"method": "integral", "epsilon": 1e-20}, "raise --epsilon (now 1e-20)"),
        (
            {"method": "line", "beta": 1e20, "weight_decay": 1e9},
            "lower --beta (now 1e+20) and --weight-decay (now 1e+09)",
        ),
        (
            {"method": "line", "samples": 2, "feature_similarity": 1e20},
            "lower --feature-similarity (now 1e+20)",
        ),
    ],
)
def test_what_is_out_of_the_ordinary_is_named(changes, named):
    assert against_divergence(dataclasses.replace(DIGITS, **changes)) == named


@pytest.mark.parametrize(
    ("changes", "option"), [({"method": "line", "beta": 1e30}, "--beta"), ({"weight_decay": 1e20}, "--weight-decay")]
)
def test_training_names_it(tmp_path: Path, changes, option):
    with pytest.raises(TrainingError, match=rf"lower {option} \(now 1e\+\d0\)") as caught:
        train(DIGITS, out=tmp_path, device="cpu", show="quiet", tensorboard=False, epochs=1, **changes)
    assert "--learning-rate" not in str(caught.value)
