"""Every argument of a comparison, a study or a measurement arrives where it has its effect.

What trains and measures is recorded in place of being called; that it does what it is told is tested where it is.
"""

from pathlib import Path
from typing import Any

import pytest
from number_cases import DROPOUT, PLAIN
from pretended import Pretended
from study_cases import pretend, without_pictures

import subspaces as ss
from subspaces.experiments.studies import study_noise
from subspaces.experiments.training import Execution

THERE = Path("there")
WHERE: dict[str, Any] = {"device": "cpu", "precision": "bfloat16", "workers": 3}
HOW: dict[str, Any] = {**WHERE, "evaluate_every": 7, "checkpoint_seconds": 5.0}
SHARED: dict[str, Any] = {"data": THERE, "tensorboard": False, "show": "json", "epochs": 9, **HOW}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    stand_in = Pretended()
    pretend(monkeypatch, stand_in)
    without_pictures(monkeypatch)
    return stand_in


def check_training(pretended: Pretended, out: Path, seeds: list[int]) -> list[Any]:
    """Every call of training was told everything; return the recipes of all of them."""
    for call in pretended.calls["train"]:
        expected = {"data": THERE, "out": out, "show": "json", "tensorboard": False}
        expected["execution"] = Execution(**HOW)
        assert {name: call[name] for name in call if name not in ("recipe", "seeds")} == expected
    recipes = [one for call in pretended.calls["train"] for one in call["recipe"]]
    assert {one.epochs for one in recipes} == {9}
    assert sorted({one.seed for one in recipes}) == seeds
    return recipes


def check_measuring(pretended: Pretended, progress: bool = False) -> None:
    for name in ("evaluate", "evaluate_together"):
        for call in pretended.calls.get(name, []):
            expected = {"data": THERE, "progress": progress, **WHERE}
            assert {key: call[key] for key in expected} == expected, name


def test_compare(pretended: Pretended, tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "to"
    settings: dict[str, Any] = {
        "seeds": [2, 3, 4, 7],
        "ensembles": [4, 2],
        "dropout_passes": 5,
        "runs": runs,
        "out": out,
    }
    made = ss.compare([PLAIN, DROPOUT], reference="digits-dropout", **settings, **SHARED)
    recipes = check_training(pretended, runs, [2, 3, 4, 7])
    assert {one.name for one in recipes} == {"digits-standard", "digits-dropout"}
    check_measuring(pretended)
    assert made.reference is not None
    assert made.reference.recipe.name == "digits-dropout"
    (together,) = pretended.calls["evaluate_together"]
    assert (together["to"], [len(group) for group in together["groups"]]) == (out, [2, 2, 4])
    assert {path.parent for path in made.files} == {out}
    (evaluated,) = pretended.calls["evaluate"]
    assert evaluated["dropout_passes"] == 5
    assert "grid" not in evaluated  # everything is measured


def test_study_noise(pretended: Pretended, tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "to"
    lists = {"dropout": [0.5], "label_smoothing": [0.25, 0.75]}
    settings: dict[str, Any] = {"levels": [0.3, 0.1], "lists": lists, "by": "ece", "seeds": [3, 5], "ensembles": [2]}
    made = study_noise(PLAIN, dropout_passes=6, runs=runs, out=out, **settings, **SHARED)
    recipes = check_training(pretended, runs, [3, 5])
    wanted = {(rate, 0.0) for rate in (0.0, 0.5)} | {(0.0, 0.25), (0.0, 0.75)}
    for level in (0.1, 0.3):
        assert {(one.dropout, one.label_smoothing) for one in recipes if one.label_noise == level} == wanted
    assert len(recipes) == 2 * 2 * 4
    check_measuring(pretended)
    assert [call["grid"] for call in pretended.calls["evaluate"]] == [(0.0, 0.1, 0.5, 0.9, 1.0)] * 2
    assert [call["triangle"] for call in pretended.calls["evaluate"]] == [0, 0]
    assert [call["dropout_passes"] for call in pretended.calls["evaluate"]] == [6, 6]
    assert [call["to"] for call in pretended.calls["evaluate_together"]] == [out, out]
    assert [[run.recipe.label_noise for run in call["runs"]] for call in pretended.calls["evaluate"]] == [
        *([0.1] * 8, [0.3] * 8)
    ]
    assert (made.by, made.levels) == ("ece", [0.1, 0.3])
    assert {path.parent for path in made.files} == {out}
