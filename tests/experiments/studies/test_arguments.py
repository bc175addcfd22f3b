"""Every argument of a comparison, a study or a measurement arrives where it has its effect.

What trains and measures is recorded in place of being called; that it does what it is told is tested where it is.
"""

import dataclasses
import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from number_cases import DROPOUT, PLAIN
from pretended import SPLITS, Pretended, scores
from study_cases import LINE, pretend, without_pictures
from subspaces.experiments.studies.network_mixtures import KINDS

import subspaces as ss
from subspaces.evaluation.cache import Measured
from subspaces.evaluation.run_ensembles import evaluate_together
from subspaces.experiments.studies import study_instability, study_integral, study_noise
from subspaces.experiments.training import RECIPES, Execution, Run

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


@pytest.mark.parametrize(("show", "progress"), [("bar", True), ("quiet", False)])
def test_bars_are_shown_in_measuring_too(show: str, progress: bool, pretended: Pretended, tmp_path: Path) -> None:
    ss.compare([PLAIN], seeds=[0, 1], runs=tmp_path / "runs", out=tmp_path / "to", **{**SHARED, "show": show})
    check_measuring(pretended, progress)
    assert {call["show"] for call in pretended.calls["train"]} == {show}


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


def test_study_integral(pretended: Pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, out = tmp_path / "runs", tmp_path / "to"
    checked: list[Any] = []
    module = importlib.import_module("subspaces.experiments.studies.integral")
    identity = module.Identity("a", 1, 0.2, 0.1, 9, 20, 0.8, 0.0, 0.7, 0.0, 0.0)
    monkeypatch.setattr(module, "measure_identities", lambda *given: checked.append(given) or [identity])
    recipes = ["digits-standard", LINE, RECIPES["digits-integral"]]
    made = study_integral(recipes, levels=[0.2], seeds=[3], learning_rate=0.05, runs=runs, out=out, **SHARED)
    found = check_training(pretended, runs, [3])
    assert {(one.method, one.learning_rate, one.label_noise) for one in found} == {
        (method, 0.05, 0.2) for method in ("standard", "line", "integral")
    }
    check_measuring(pretended)
    ((lines, setting),) = checked
    assert [run.recipe.method for run in lines] == ["integral"]
    assert setting.measuring() == {"data": THERE, "progress": False, **WHERE}
    assert {path.parent for path in made.files} == {out}


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What every `Mixing` of an instability study was made with; a bench is its run here."""
    module = importlib.import_module("subspaces.experiments.studies.instability")
    seen: list[dict[str, Any]] = []

    class Mixing:
        def __init__(self, benches: Any, draws: int, shelf: Any, precision: str, known: Any) -> None:
            runs = [bench.recipe for bench in benches]
            seen.append({"runs": runs, "draws": draws, "path": shelf.path, "precision": precision, "known": known})

        def measure(self) -> Iterator[tuple[Any, Measured]]:
            return ((kind, Measured({}, {}, SPLITS, scores(kind, len(seen)))) for kind in KINDS)

    def run_subjects(data: Any, execution: Execution) -> Callable[[Any], Any]:
        seen.append({"data": data, "execution": execution})
        return lambda run: run

    monkeypatch.setattr(module, "Mixing", Mixing)
    monkeypatch.setattr(module, "run_subjects", run_subjects)
    return seen


def test_study_instability(pretended: Pretended, mixed: list[dict[str, Any]], tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "to"
    settings: dict[str, Any] = {
        "shared": [5, 0],
        "models": [3, 2],
        "draws": 4,
        "seeds": [1, 6],
        "runs": runs,
        "out": out,
    }
    made = study_instability(PLAIN, **settings, **SHARED)
    recipes = check_training(pretended, runs, [1, 6])
    wanted = [(seed, k, branch) for seed in (1, 6) for k in (0, 5) for branch in (1, 2, 3)]
    assert [(one.seed, one.trunk, one.branch) for one in recipes] == wanted
    bench, *mixings = mixed
    assert bench["data"] == THERE
    assert {name: getattr(bench["execution"], name) for name in WHERE} == WHERE
    assert [[(one.seed, one.trunk, one.branch) for one in each["runs"]] for each in mixings] == [
        [(seed, k, branch + 1) for branch in range(m)] for seed in (1, 6) for k in (0, 5) for m in (2, 3)
    ]
    assert {(each["draws"], each["path"], each["precision"]) for each in mixings} == {
        (4, out / "measured.json", "bfloat16")
    }
    same = [each["known"] is other["known"] for each, other in itertools.pairwise(mixings)]
    assert same == [True, False] * 3 + [True]  # branches of one trunk are asked once
    values = [made.accuracy(m, k, "global").values for m in (2, 3) for k in (0, 5)]
    order = [[2, 6], [4, 8], [3, 7], [5, 9]]  # the mixings that each of these cells is made of
    assert values == [[scores("global", at)["test"]["accuracy"] for at in cell] for cell in order]
    assert {path.parent for path in made.files} == {out}


class Reached(Exception):
    """The bench was asked for."""


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("api", lambda **settings: ss.evaluate(Run(Path("nowhere"), LINE), **settings)),
        ("evaluation.run_ensembles", lambda **settings: evaluate_together([], to="x", **settings)),
    ],
)
def test_where_and_how_it_is_measured(module: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_subjects(*given: Any) -> None:
        raise Reached(*given)

    monkeypatch.setattr(f"subspaces.{module}.run_subjects", run_subjects)
    with pytest.raises(Reached) as reached:
        call(data=THERE, **WHERE)
    data, execution, trust = reached.value.args
    assert (data, trust) == (THERE, False)
    assert execution.resolved() == dataclasses.replace(Execution(), **WHERE).resolved()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="device='cuda:99'"):  # cpu may be what is taken anyway
        call(device="cuda:99")
