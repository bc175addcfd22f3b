"""Every number that `train`, `evaluate` and `demo` print, against the records of runs whose numbers were drawn."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pretended import Pretended, drawn, made
from typer.testing import CliRunner, Result

from subspaces.cli import app
from subspaces.evaluation.record import Choice, Record, Row
from subspaces.experiments import demo
from subspaces.experiments.training import RECIPES, Run


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "240"})
    assert result.exit_code == 0, result.output
    return result


def lines_of(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


# evaluate


def row(record: Record, kind: str, role: str, smallest: float | None = None) -> Row:
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
    Choice(
        "threshold",
        "risk",
        "validation",
        False,
        0.625,
        {"test": {"coverage": 0.71, "risk": 0.12}, "validation": {"coverage": 0.8, "risk": 0.2}},
    ),
]
CHOSEN = [
    ("best point by accuracy: 0.15", "validation", numbers(drawn(1))),
    ("best point by NLL: 0.85", "test *", numbers(drawn(3))),
    ("best pair by accuracy: 0.1 and 0.9", "test *", numbers(drawn(5))),
    ("midpoint where its confidence is at least 0.625: answers 71.0%", "validation", "88.00 – – –"),
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Record]]:
    out = tmp_path_factory.mktemp("runs")
    recipes = [replace(RECIPES[f"digits-{name}"], validation=20) for name in ("standard", "line", "simplex")]
    recipes += [replace(RECIPES["digits-swa-cyclic"], vertices=2), RECIPES["digits-snapshot"]]
    runs = [made(out, recipe) for recipe in recipes]
    found = [Record.read(run.folder) for run in runs]
    for record in found:
        record.choices = CHOICES if record.recipe["method"] == "line" else []
    return [(run.folder, record) for run, record in zip(runs, found, strict=True)]


def expected(record: Record) -> list[tuple[str, str, dict[str, float]]]:
    """What each run answers, in words, and its metrics."""
    middle = row(record, "point", "midpoint").metrics
    if record.recipe["method"] == "line":
        return [
            ("midpoint", "–", middle),
            ("ensemble of 0.1 and 0.9", "–", row(record, "ensemble", "along", 0.1).metrics),
        ]
    if record.recipe["method"] == "simplex":
        corners, random = (row(record, "ensemble", role).metrics for role in ("vertex", "random"))
        return [
            ("midpoint", "–", middle),
            ("ensemble of 3 vertices", "–", corners),
            ("ensemble of 6 random points", "–", random),
        ]
    if record.recipe["method"] == "swa-cyclic":
        ends = row(record, "ensemble", "along", 0.0).metrics
        return [("average of 2", "–", middle), ("ensemble of 2 checkpoints", "–", ends)]
    if record.recipe["method"] == "snapshot":
        return [("ensemble of 6 members", "–", row(record, "ensemble", "vertex").metrics)]
    return [("network", "–", middle)]


@pytest.fixture
def evaluated(records: list[tuple[Path, Record]], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Record]]:
    monkeypatch.setattr("subspaces.evaluation.api.evaluate_runs", lambda *_, **__: [record for _, record in records])
    return records


def test_evaluate_prints_the_numbers_of_each_answer_and_choice(evaluated: list[tuple[Path, Record]]) -> None:
    lines = lines_of(call("evaluate", *(folder for folder, _ in evaluated), "--quiet"))
    assert "answer chosen on networks accuracy % NLL Brier score ECE %" in lines
    wanted = []
    for _, record in evaluated:
        texts = [f"{what} {chosen} {networks(what)} {numbers(metrics)}" for what, chosen, metrics in expected(record)]
        texts += (
            [f"{what} {chosen} {networks(what)} {found}" for what, chosen, found in CHOSEN] if record.choices else []
        )
        wanted += [record.name, *texts]
    first = lines.index(wanted[0])
    assert lines[first : first + len(wanted)] == wanted


def test_evaluate_says_the_same_as_json(evaluated: list[tuple[Path, Record]]) -> None:
    result = call("evaluate", *(folder for folder, _ in evaluated), "--json")
    for line, (folder, record) in zip(result.stdout.splitlines(), evaluated, strict=True):
        found = json.loads(line)
        assert (found["run"], found["folder"]) == (record.name, str(folder))
        assert (found["recipe"], found["seed"]) == (record.recipe["name"], record.recipe["seed"])
        own: list[dict[str, Any]] = [
            {"what": what, "chosen_on": None, "on_test": False, "metrics": m} for what, _, m in expected(record)
        ]
        chosen = [
            {"what": words, "chosen_on": one.chosen_on, "on_test": one.on_test, "metrics": one.reported["test"]}
            for (words, _, _), one in zip(CHOSEN, record.choices, strict=bool(record.choices))
        ]
        for one in (*own, *chosen):
            one |= {"networks": networks(one["what"])}
        assert found["results"] == own + chosen


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


def test_train_says_the_same_as_json(trained: list[Run]) -> None:
    out = ["--out", trained[0].folder.parent]
    result = call("train", "digits-standard", "--seed", 7, *out, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["result"] for one in found] == list(RESULTS.values())
    assert [(one["recipe"], one["seed"]) for one in found] == [("digits-standard", 7), ("digits-line", 0)]
    assert [(one["run"], one["folder"]) for one in found] == [(run.folder.name, str(run.folder)) for run in trained]
    assert [one["finished_before"] for one in found] == [True, False]
    shown = lines_of(call("train", "digits-standard", "--seed", 7, *out, "--quiet"))
    assert shown[-1] == f"Finished before, and not trained again: {trained[0].folder.name}"


# demo


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pretended, Result]:
    stand_in = Pretended()
    for module in ("demo", "opening"):
        stand_in.patch(monkeypatch, f"subspaces.experiments.{module}")
    monkeypatch.setattr(demo, "write_page", lambda evaluations, path: path)
    command = ("demo", "--seeds", 3, "--epochs", 4, "--label-noise", 0.3, "--out", tmp_path, "--quiet")
    return stand_in, call(*command)


def test_the_demo_prints_what_was_measured(shown: tuple[Pretended, Result], tmp_path: Path) -> None:
    _, result = shown
    runs = [Run.open(folder) for folder in sorted(tmp_path.iterdir())]
    networks, lines, second = (
        sorted((run for run in runs if wanted(run)), key=lambda run: run.recipe.seed)
        for wanted in (
            lambda run: run.recipe.method == "standard" and run.recipe.seed < 1000,
            lambda run: run.recipe.method == "line",
            lambda run: run.recipe.seed >= 1000,
        )
    )
    assert [[run.recipe.seed for run in some] for some in (networks, lines, second)] == [
        *([0, 1, 2], [0, 1, 2], [1000, 1001, 1002])
    ]
    read = {run.folder.name: Record.read(run.folder) for run in runs}

    def at(run: Run, alpha: float) -> dict[str, float]:
        (found,) = (r for r in read[run.folder.name].rows if r.alphas == [alpha] and r.split == "test")
        return found.metrics

    ends = [{name: np.mean([at(run, 0.0)[name], at(run, 1.0)[name]]) for name in ("accuracy", "ece")} for run in lines]
    together = [drawn("together", a.folder.name, b.folder.name, "test") for a, b in zip(networks, second, strict=True)]
    ways: dict[str, tuple[list[Any], int, int]] = {
        "a network": ([row(read[run.folder.name], "point", "midpoint").metrics for run in networks], 1, 1),
        "the line's ends": (ends, 1, 1),
        "the line's midpoint": ([at(run, 0.5) for run in lines], 1, 1),
        "two networks": (together, 2, 2),
        "two points of the line": ([row(read[r.folder.name], "ensemble", "along", 0.1).metrics for r in lines], 1, 2),
    }
    text = result.stdout
    table = [" ".join(line.split()) for line in text.splitlines()]
    assert "prediction by accuracy % ECE % trained at test" in table
    for name, (measured, trained, used) in ways.items():
        columns = [[100 * one[metric] for one in measured] for metric in ("accuracy", "ece")]
        spread = " ".join(f"{np.mean(column):.1f} ± {np.std(column, ddof=1):.1f}" for column in columns)
        assert f"{name} {spread} {trained} {used}" in table
    pairs = [("the line's midpoint", "a network"), ("the line's midpoint", "the line's ends")]
    pairs += [("two points of the line", "a network"), ("two points of the line", "two networks")]
    for first, other in pairs:
        said = []
        for metric, unit, sign in (("accuracy", "accuracy", 1), ("ece", "ECE", -1)):
            differences = [100 * (a[metric] - b[metric]) for a, b in zip(ways[first][0], ways[other][0], strict=True)]
            wins = sum(sign * each > 0 for each in differences)
            said.append(f"{unit} {np.mean(differences):+.1f} points, better in {wins} of 3 seeds")
        assert f"- {first} against {other}: {'; '.join(said)}" in text.splitlines()
    assert f"The last line is {lines[-1].family_file}; " in text
    assert f"The report: {tmp_path / 'report.html'}" in text
    assert "digits with 30% random training labels, 4 epochs each" in text


def test_the_demo_trains_and_measures_what_its_options_say(shown: tuple[Pretended, Result], tmp_path: Path) -> None:
    calls = shown[0].calls
    assert [one["recipe"].name for one in calls["train"]] == ["digits-standard", "digits-line"]
    for one in calls["train"]:
        assert (one["recipe"].epochs, one["recipe"].label_noise) == (4, 0.3)
        assert (one["out"], one["device"], one["show"], one["tensorboard"]) == (tmp_path, "cpu", "quiet", False)
    first, plane = calls["evaluate"]
    assert len(first["runs"]) == 6
    assert (plane["runs"].recipe.method, plane["runs"].recipe.seed) == ("line", 0)
    (through,) = plane["through"]
    assert (Run.open(through).recipe.method, Run.open(through).recipe.seed) == ("standard", 0)
    (pairs,) = calls["evaluate_together"]
    assert pairs["to"] == tmp_path
    assert {one["device"] for one in (first, plane, pairs)} == {"cpu"}
    assert {one["progress"] for one in (first, plane, pairs)} == {False}
