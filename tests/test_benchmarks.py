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

from subspaces.experiments import data
from subspaces.experiments.training import Execution, Recipe
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.recipe import find

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
