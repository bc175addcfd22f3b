"""The benchmarks: what they time is what they say, and each result is in their file as soon as it is known."""

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from subspaces.core import geometry
from subspaces.experiments import data
from subspaces.experiments.training import Execution, Recipe
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.recipe import find
from subspaces.experiments.training.stack import Stack

FOLDER = Path(__file__).parent.parent / "benchmarks"
CPU = Execution(device="cpu").resolved()
BASE = dataclasses.replace(find("digits-standard"), batch=400, epochs=2)  # three steps an epoch


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import benchmarks by name, as `python benchmarks/NAME.py` finds them; other modules of these names come back."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = {file.stem for file in FOLDER.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_every_benchmark_can_be_imported(benchmarks: Any, name: str) -> None:
    assert benchmarks(name).__doc__


@pytest.fixture(scope="module")
def digits() -> data.Dataset:
    return data.load("digits")


def weights(engine: Engine) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in engine.family.parameters()]


def test_a_stack_moves_every_engine_as_far_as_one_alone(benchmarks: Any, digits: data.Dataset) -> None:
    engine = benchmarks("engine")
    recipes = [dataclasses.replace(BASE, method="line", seed=seed) for seed in range(2)]
    first = Engine(recipes[0], digits, CPU)
    stacked = [first, Engine(recipes[1], digits, CPU, first.loader)]
    assert engine.engine_run(Stack(stacked).engines)(5) == 6  # a stack takes the three batches of an epoch at once
    for recipe, one in zip(recipes, stacked, strict=True):
        alone = Engine(recipe, digits, CPU)
        engine.engine_run([alone])(6)
        torch.testing.assert_close(weights(one), weights(alone), rtol=1e-4, atol=1e-5)


def loop(plain: ModuleType, dataset: data.Dataset, recipe: Recipe, execution: Execution = CPU) -> Any:
    return plain.Loop(recipe, dataset, execution, compiled=False, workers=False)


def test_the_plain_step_is_that_of_the_engine(benchmarks: Any, digits: data.Dataset) -> None:
    """With the same images, from the same weights: the network of seed 0, at the engine's learning rate."""
    engine, plain = Engine(BASE, digits, CPU), loop(benchmarks("plain"), digits, BASE)
    engine.loader.start_epoch()
    for done in range(3):
        engine.step.advance(engine.loader.sizes, done)
    assert plain.run(3) == 3
    trained = engine.family.midpoint()
    for one, other in zip(trained.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_every_result_is_written_and_printed_as_soon_as_it_is_known(
    benchmarks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timing, engine = benchmarks("timing"), benchmarks("engine")
    write, seen = timing.write_plain_json, []

    def watched(path: Path, content: Any) -> None:
        write(path, content)
        found = json.loads(path.read_text())
        stacks = [(name, k) for name, each in found.get("stacks", {}).items() for k in each]
        seen.append([*found.get("rows", {}), *stacks, *found.get("at_once", {})])
        assert len(capsys.readouterr().out.splitlines()) == 1

    monkeypatch.setattr(timing, "write_plain_json", watched)
    file = tmp_path / "engine.json"
    few = "--dataset digits --rounds 2 --steps 3 --no-plain --methods standard curve --stacks 1 3"
    engine.main([*few.split(), "--stack-methods", "line", "--at-once", "1", "--json", str(file)])
    everything = ["standard", "curve", ("line", "1"), ("line", "3"), "1"]
    assert seen == [everything[: n + 1] for n in range(5)]
    found = json.loads(file.read_text())
    assert found["environment"]["hardware"]
    row = found["stacks"]["line"]["3"]
    assert row["quartiles"][0] <= row["ratio"] <= row["quartiles"][1]
    seconds = ("ms", "single_ms", "building_s", "first_step_s", "single_first_step_s")
    assert min(row[name] for name in seconds) > 0


# Whole commands

PRETENDED = """
import os, pathlib, sys
cache, (option, file) = pathlib.Path(os.environ["TRITON_CACHE_DIR"]), sys.argv[1:]
pathlib.Path(file).read_text()
pathlib.Path("runs").mkdir()  # fails where it is there already
cache.mkdir(exist_ok=True)
"""


def test_commands_are_timed_cold_and_warm(
    benchmarks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands, file = benchmarks("commands"), tmp_path / "commands.json"
    monkeypatch.setattr(commands, "COMMAND", [sys.executable, "-I", "-S", "-c", PRETENDED])
    monkeypatch.setattr(commands, "about", lambda: {"commit": "abc"})
    monkeypatch.chdir(tmp_path)
    Path("mine").touch()
    commands.main(["--repeat", "3", "--cold", "--json", str(file), "--", "--data", "{here}/mine"])
    found = json.loads(file.read_text())
    assert [one["cold"] for one in found["calls"]] == [True, False, False]
    assert (found["commit"], found["called"]) == ("abc", ["--data", "{here}/mine"])
    assert found["warm_s"] > 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["cold:", "warm:", "warm:", "median"]


# Steps of large networks


@pytest.mark.parametrize("network", ["vit-b16", "gpt2"])
def test_every_variant_of_a_large_network_is_measured(
    benchmarks: Any, network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    file = tmp_path / "step.json"
    benchmarks("step").main(["--network", network, "--size", "small", "--rounds", "2", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["network"].startswith("transformers.")
    names = ["plain", "line", "simplex 3", "plain again"]
    assert list(found["rows"]) == list(found["memory"]["eager"]) == names
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(names)
    for m, name in enumerate(names[:3], 1):
        sizes = found["memory"]["eager"][name]
        assert sizes["weights_mb"] == pytest.approx(m * found["memory"]["eager"]["plain"]["weights_mb"])
        assert sizes["state_mb"] == pytest.approx(m * found["memory"]["eager"]["plain"]["state_mb"])
        assert sizes["weights_mb"] + sizes["state_mb"] < sizes["peak_mb"]
        assert sizes["peak_mb"] == pytest.approx(sizes["needed_mb"] * (1 + sizes["over"]))


def test_a_family_takes_the_memory_of_its_vertices_and_no_more(
    benchmarks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of the penalty does not lie beside the activations: with that it is more than what is needed."""
    pytest.importorskip("transformers")
    step, subject = benchmarks("step"), benchmarks("subjects").SUBJECTS["small"]["gpt2"]
    options = step.parsed(["--batch", "16"])

    def variant(shape: Any) -> Any:
        made = step.make_variant(shape, "eager", subject, options)
        made.run(1)
        return made

    plain = variant(None)
    first = step.memory(plain, "cpu", plain, None)
    found = []
    for large in (10**9, 2**12):
        monkeypatch.setattr(geometry, "LARGE", large)
        found.append(step.memory(variant(subject.shapes["line"]), "cpu", plain, first)["over"])
    assert found[0] > 0.05 > 0.02 > found[1]


# Trained by a user's own loop

SHORT = "--seeds 1 --epochs 2 --images 128"


def test_vertices_are_trained_from_every_start(
    benchmarks: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts, file = benchmarks("starts"), tmp_path / "starts.json"
    starts.main([*SHORT.split(), "--noise", "0.4", "--json", str(file)])
    found = json.loads(file.read_text())
    assert {"command", "commit", "hardware", "torch", "threads"} < set(found)
    assert (found["setting"]["images"], found["setting"]["epochs"]) == (128, 2)
    rows = {(row["shape"], row["start"]): row for row in found["rows"]}
    assert list(rows) == [(shape, start) for shape in starts.SHAPES for start in starts.STARTS]
    assert all(0 <= row[name] <= 1 for row in rows.values() for name in ("accuracy", "ece", "pair", "cos2"))
    before = {start: rows["line", start]["l2 at the start"] for start in starts.STARTS}
    same, *apart = (before[f"one point, offset {offset}"] for offset in (0, 0.03, 0.1, 0.3))
    assert same == 0 < apart[0] < apart[1] < apart[2] < before["independent"]
    assert apart[1] == pytest.approx(before["independent"] / 10, rel=0.1)  # both √2 of the length of a step
    assert rows["line", "one point, offset 0"]["l2"] > 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows)


# Photographs from files


def test_a_loader_is_timed_with_and_without_a_network(
    benchmarks: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    file, photographs = tmp_path / "found.json", benchmarks("photographs")
    photographs.write(tmp_path / "images", 12, 10, 10, processes=0)
    few = "--images 12 --some 2 --batch 4 --side 32 --workers 0 --size small --rounds 2 --steps 1"
    benchmarks("streaming").main([*few.split(), "--folder", str(tmp_path / "images"), "--json", str(file)])
    found = json.loads(file.read_text())
    pieces = found["pieces"]
    assert pieces["reading"] > pieces["reading, decoding"] > pieces["reading, decoding, a random view"] > 0
    assert found["loader"]["loader, 0 workers"] > 0
    row = found["training"]["0"]
    assert row["fed_images_s"] == pytest.approx(row["step_images_s"] / (1 + row["late"]))
    assert row["workers_needed"] >= 1
    assert len(capsys.readouterr().out.splitlines()) == 8
