"""The benchmarks: what they time is what they say, and each result is in their file as soon as it is known."""

import copy
import dataclasses
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from subspaces import data
from subspaces.cli import timings
from subspaces.phases import MEANING, Phase, measured
from subspaces.training import Execution, Recipe
from subspaces.training.engine import Engine
from subspaces.training.recipes import find
from subspaces.training.stack import Stack

FOLDER = Path(__file__).parent.parent / "benchmarks"
CPU = Execution(device="cpu").resolved()
BASE = dataclasses.replace(find("digits-standard"), batch=400, epochs=2)  # three steps an epoch


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import benchmarks by name, as `python benchmarks/NAME.py` finds them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    for name in {file.stem for file in FOLDER.glob("*.py")} - before:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def digits() -> data.Dataset:
    return data.load("digits")


def weights(engine: Engine) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in engine.family.parameters()]


def test_the_steps_of_an_engine_are_counted(benchmarks: Any, digits: data.Dataset) -> None:
    engine = Engine(BASE, digits, CPU)
    run = benchmarks("engine").engine_run([engine])
    before = weights(engine)
    assert run(4) == 4
    assert int(engine.loader.position) == 400  # the first batch of the second epoch
    assert all(not torch.equal(one, other) for one, other in zip(before, weights(engine), strict=True))


def test_a_stack_moves_every_engine_as_far_as_one_alone(benchmarks: Any, digits: data.Dataset) -> None:
    engine = benchmarks("engine")
    recipes = [dataclasses.replace(BASE, method="line", seed=seed) for seed in range(2)]
    first = Engine(recipes[0], digits, CPU)
    stacked = [first, Engine(recipes[1], digits, CPU, first.loader)]
    assert engine.engine_run(Stack(stacked).engines)(6) == 6
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
        engine.advance(engine.loader.sizes, done)
    assert plain.run(3) == 3
    trained = engine.family.midpoint()
    for one, other in zip(trained.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_plain_line_trains_both_ends_and_their_angle(benchmarks: Any, digits: data.Dataset) -> None:
    plain = loop(benchmarks("plain"), digits, dataclasses.replace(BASE, method="line", beta=100.0))
    before, ends = copy.deepcopy(plain.model.state_dict()), plain.ends
    assert len(ends) == sum(value.ndim > 1 for value in before.values()) / 2 > 0
    plain.run(2)
    assert 0 < float(plain.alpha) < 1
    assert all(not torch.equal(value, before[name]) for name, value in plain.model.state_dict().items())


def test_plain_networks_have_torchs_own_convolutions(benchmarks: Any) -> None:
    images = data.Split(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
    dataset = data.Dataset("one", images, None, images, ("a", "b"), (0.5,) * 3, (0.25,) * 3)
    network = benchmarks("plain").network(dataclasses.replace(BASE, network="cresnet20"), dataset)
    found = [type(part) for part in network.modules() if isinstance(part, nn.Conv2d)]
    assert set(found) == {nn.Conv2d}


def test_the_plain_line_is_made_where_it_is_trained(benchmarks: Any, digits: data.Dataset) -> None:
    line, elsewhere = dataclasses.replace(BASE, method="line"), dataclasses.replace(CPU, device="meta")
    plain = loop(benchmarks("plain"), digits, line, elsewhere)
    assert {parameter.device.type for parameter in plain.model.parameters()} == {"meta"}


def test_every_result_is_written_and_printed_as_soon_as_it_is_known(
    benchmarks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timing, engine = benchmarks("timing"), benchmarks("engine")
    write, seen = timing.write_json, []

    def watched(path: Path, content: Any) -> None:
        write(path, content)
        found = json.loads(path.read_text())
        stacks = [(name, k) for name, each in found.get("stacks", {}).items() for k in each]
        seen.append([*found.get("rows", {}), *stacks, *found.get("at_once", {})])
        assert len(capsys.readouterr().out.splitlines()) == 1

    monkeypatch.setattr(timing, "write_json", watched)
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


def test_a_ratio_is_that_of_a_round(benchmarks: Any) -> None:
    found = benchmarks("timing").compared([2.0, 30.0, 4.0], [1.0, 10.0, 1.0])
    assert (found["ms"], found["ratio"], found["quartiles"]) == (4.0, 3.0, [2.0, 4.0])


# Whole commands

PRETENDED = """
import os, pathlib, sys
cache, (option, file) = pathlib.Path(os.environ["TRITON_CACHE_DIR"]), sys.argv[1:]
pathlib.Path(file).read_text()
pathlib.Path("runs").mkdir()  # fails where it is there already
seconds = 0.5 if cache.exists() else 2.5
cache.mkdir(exist_ok=True)
print("total 9.99 9%")
sys.stderr.write(f"hm\\n phase   seconds   share \\n training  {seconds}    90% \\n total   {seconds}   100% \\n")
"""


def test_the_table_of_phases_is_read_back(benchmarks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    expected: dict[Phase, float] = {name: 0.25 * (index + 1) for index, name in enumerate(MEANING)}
    with measured() as found:
        for name, seconds in expected.items():
            found.add(name, seconds)
        timings._show(found, 100.0)
    rest = 100 - sum(expected.values())
    told = f"training 3.00 5%\n{capsys.readouterr().err}"
    assert benchmarks("commands").phases(told) == {**expected, "other": rest, "total": 100.0}
    with pytest.raises(ValueError, match="expected what --timings prints"):
        benchmarks("commands").phases("total 3.00 5%")


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
    assert [(one["cold"], one["total_s"]) for one in found["calls"]] == [(True, 2.5), (False, 0.5), (False, 0.5)]
    assert found["calls"][0]["phases"] == {"training": 2.5}
    assert (found["commit"], found["called"]) == ("abc", ["--data", "{here}/mine"])
    assert found["warm_s"] > 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["cold:", "warm:", "warm:", "median"]


def test_a_command_that_fails_is_shown(benchmarks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = benchmarks("commands")
    monkeypatch.setattr(commands, "COMMAND", [sys.executable, "-I", "-S", "-c", PRETENDED])
    with pytest.raises(SystemExit, match=r"(?s)FileNotFoundError.*ended with 1"):
        commands.call(["--data", "nowhere"], {"TRITON_CACHE_DIR": "cache"})
