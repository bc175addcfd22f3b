"""Every number that `train`, `evaluate` and `demo` print, against the records of runs whose numbers were drawn."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import CliRunner, Result
from pretended import drawn, made

from subspaces.cli import main as app
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Choice, Row
from subspaces.experiments.training import RECIPES, Run


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "240"})
    assert result.exit_code == 0, result.output
    return result


def lines_of(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


# evaluate


def row(record: Evaluation, kind: str, role: str, smallest: float | None = None) -> Row:
    """The row of an answer on the test set."""
    found = [one for one in record.rows if (one.kind, one.role, one.split) == (kind, role, "test")]
    found = [one for one in found if one.average != "logits" and smallest in (None, np.min(one.alphas[0]))]
    (only,) = found
    return only


def numbers(metrics: dict[str, float]) -> str:
    a, e = (f"{100 * metrics[name]:.2f}" for name in ("accuracy", "ece"))
    return f"{a} {metrics['nll']:.4f} {metrics['brier']:.4f} {e}"


def networks(what: str) -> int:
    """How many networks answer, by the words for them."""
    if not what.startswith(("ensemble of", "best pair")):
        return 1
    return int(word) if (word := what.split()[2]).isdigit() else 2


CHOICES = [
    Choice("point", "accuracy", "validation", False, 0.15, {"test": drawn(1), "validation": drawn(2)}),
    Choice("point", "nll", "test", True, 0.85, {"test": drawn(3), "validation": drawn(4)}),
    Choice("pair", "accuracy", "test", True, [0.1, 0.9], {"test": drawn(5), "validation": drawn(6)}),
]
CHOSEN = [
    ("best point by accuracy: 0.15", "validation", numbers(drawn(1))),
    ("best point by NLL: 0.85", "test *", numbers(drawn(3))),
    ("best pair by accuracy: 0.1 and 0.9", "test *", numbers(drawn(5))),
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Evaluation]]:
    out = tmp_path_factory.mktemp("runs")
    recipes = [replace(RECIPES[f"digits-{name}"], validation=20) for name in ("standard", "line", "simplex")]
    recipes.append(RECIPES["digits-snapshot"])
    runs = [made(out, recipe) for recipe in recipes]
    found = [Evaluation.load(run.folder) for run in runs]
    for record in found:
        record.choices = CHOICES if record.recipe["method"] == "line" else []
    return [(run.folder, record) for run, record in zip(runs, found, strict=True)]


def expected(record: Evaluation) -> list[tuple[str, dict[str, float]]]:
    """What each run answers, in words, and its metrics."""
    wanted: dict[str, list[tuple[str, Any]]] = {
        "standard": [("network", ("point", "midpoint"))],
        "line": [("midpoint", ("point", "midpoint")), ("ensemble of 0.1 and 0.9", ("ensemble", "along", 0.1))],
        "simplex": [
            ("midpoint", ("point", "midpoint")),
            ("ensemble of 3 vertices", ("ensemble", "vertex")),
            ("ensemble of 6 random points", ("ensemble", "random")),
        ],
        "snapshot": [("ensemble of 6 members", ("ensemble", "vertex"))],
    }
    return [(words, row(record, *where).metrics) for words, where in wanted[record.recipe["method"]]]


@pytest.fixture
def evaluated(records: list[tuple[Path, Evaluation]], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Evaluation]]:
    monkeypatch.setattr(
        "subspaces.experiments.evaluating.evaluate.evaluate_runs", lambda *_, **__: [record for _, record in records]
    )
    return records


def test_evaluate_prints_the_numbers_of_each_answer_and_choice(evaluated: list[tuple[Path, Evaluation]]) -> None:
    lines = lines_of(call("evaluate", *(folder for folder, _ in evaluated), "--quiet"))
    assert "answer chosen on networks accuracy % NLL Brier score ECE %" in lines
    wanted = []
    for _, record in evaluated:
        found = [(what, "–", numbers(metrics)) for what, metrics in expected(record)]
        found += CHOSEN if record.choices else []
        wanted += [record.name, *(f"{what} {chosen} {networks(what)} {text}" for what, chosen, text in found)]
    first = lines.index(wanted[0])
    assert lines[first : first + len(wanted)] == wanted


# train


RESULTS: dict[str, dict[str, float]] = {
    "standard": {"epoch": 3, "train_accuracy": 0.81, "validation_accuracy": 0.62, "test_accuracy": 0.43},
    "line": {"epoch": 5, "train_accuracy": 0.71, "test_accuracy": 0.33, "l2": 12.34, "cos2": 0.567},
}


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """A network and a line; the network was there before."""
    recipes = [replace(RECIPES["digits-standard"], seed=7), RECIPES["digits-line"]]
    runs = [Run.under(tmp_path, recipe) for recipe in recipes]
    monkeypatch.setattr("subspaces.experiments.training.api.train_recipes", lambda *_, **__: runs)
    monkeypatch.setattr(Run, "result", property(lambda run: RESULTS[run.recipe.method]))
    monkeypatch.setattr(Run, "finished", property(lambda run: run.recipe.seed == 7))
    return runs


def test_train_prints_the_results_of_each_run(trained: list[Run]) -> None:
    lines = lines_of(call("train", "digits-standard", "--seed", 7, "--out", trained[0].folder.parent, "--quiet"))
    assert "recipe seed epochs train % validation % test % L2 cos² folder" in lines
    assert f"digits-standard 7 3 81.0 62.0 43.0 – – {trained[0].folder}" in lines
    assert f"digits-line 0 5 71.0 – 33.0 12.3 0.567 {trained[1].folder}" in lines
    assert lines[-1] == f"Finished before, and not trained again: {trained[0].folder.name}"
    again = call("train", "digits-standard", "--seed", 7, "--out", trained[0].folder.parent, "--json")
    found = [json.loads(line) for line in again.stdout.splitlines()]
    assert [one["result"] for one in found] == list(RESULTS.values())
    assert [(one["recipe"], one["seed"]) for one in found] == [("digits-standard", 7), ("digits-line", 0)]
    assert [(one["run"], one["folder"]) for one in found] == [(run.folder.name, str(run.folder)) for run in trained]
    assert [one["finished_before"] for one in found] == [True, False]
