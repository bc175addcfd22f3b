"""The engine on a CUDA device: graphs, the compiler and several runs at once give what eager training gives."""

import dataclasses
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from processes import Pause, Worker
from torch import Tensor
from torch.testing import assert_close
from training_cases import (
    Countdown,
    contents,
    copy_state,
    made_dataset,
    nothing,
    rows,
    run_epochs,
    run_steps,
    train_one,
    train_runs,
)

from subspaces.experiments.training import Execution, Recipe, Run, Stopped
from subspaces.experiments.training.engine import Engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

RECIPE = Recipe(
    name="small",
    dataset="made",
    network="training_cases:convolutional",
    epochs=2,
    batch=16,
    pad=2,
    learning_rate=0.02,
    schedule="constant",
)
FAMILIES = {
    "standard": {},
    "line": {"method": "line"},
    "simplex": {"method": "simplex", "vertices": 3},
    "layerwise": {"method": "line", "layerwise": True},
    "samples": {"method": "line", "samples": 2},
    "ema": {"method": "ema", "ema_decay": 0.9},
    "sam": {"method": "sam"},
    "integral": {"method": "integral"},
}
DATA = made_dataset(train=200, test=64, channels=3, side=32)  # 12 batches of 16 and one of 8
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """Let CUDA compute in full float32 and deterministically, so that numbers can be compared."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = before


def execution(compile: bool = False, graph: bool = False, **options) -> Execution:
    settings = {"device": "cuda", "precision": "float32", "evaluate_every": 0, **options}
    return Execution(compile=compile, graph=graph, **settings).resolved()


def made(family: str = "line", **changes) -> Recipe:
    return dataclasses.replace(RECIPE, **{**FAMILIES[family], **changes})


def assert_same_state(actual: dict[str, Tensor], expected: dict[str, Tensor], close: dict[str, float] = CLOSE) -> None:
    """Floating point numbers within rounding; random numbers and places in the data exactly."""
    assert set(actual) == set(expected)
    for name, value in expected.items():
        tolerance = close if value.is_floating_point() else {"rtol": 0, "atol": 0}
        if name == "totals":  # they count right predictions, of which a close one may fall the other way
            tolerance = {"rtol": 1e-2, "atol": 2.0}
        assert_close(actual[name].to(value.dtype), value, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def trained(recipe: Recipe, how: Execution, epochs: int = 2) -> dict[str, Tensor]:
    engine = Engine(recipe, DATA, how)
    run_epochs(engine, range(epochs))
    torch.cuda.synchronize()
    return copy_state(engine)


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_are_eager_training(family):
    assert_same_state(trained(made(family), execution(graph=True)), trained(made(family), execution()))


@pytest.mark.filterwarnings("ignore")  # what the compiler's own parts warn of
@pytest.mark.parametrize("family", ["standard", "simplex", "ema", "sam", "integral"])
def test_compiled_graphs_are_eager_training(family):
    torch.compiler.reset()
    recipe = made(family)
    # The difference over epsilon makes ten times as much of every rounding, with gradients that much larger.
    close = {"rtol": 1e-2, "atol": 1e-3} if family == "integral" else CLOSE
    assert_same_state(trained(recipe, execution(compile=True, graph=True)), trained(recipe, execution()), close)


@pytest.mark.filterwarnings("ignore")
def test_more_runs_are_compiled_in_one_process_than_the_compiler_allows_by_itself(tmp_path: Path):
    torch.compiler.reset()
    runs = [Run.under(tmp_path, made("standard", epochs=1, batch=20, seed=seed)) for seed in range(36)]
    train_runs(runs, DATA, execution(compile=True, graph=True), nothing, nothing)
    assert all(run.finished for run in runs)


def test_the_gpu_is_the_cpu_within_rounding():
    cpu = Execution(device="cpu").resolved()
    names = [name for name in trained(made(), execution(), epochs=1) if name.startswith("family.")]
    on_gpu, on_cpu = (trained(made(), how, epochs=1) for how in (execution(graph=True), cpu))
    assert_close([on_gpu[n] for n in names], [on_cpu[n] for n in names], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop"])
def test_capturing_leaves_no_trace(optimizer):
    """What the first call leaves is what as many eager steps leave: the steps that warm up are undone."""
    recipe = made("simplex", optimizer=optimizer, learning_rate=0.01)
    captured, eager = (Engine(recipe, DATA, execution(graph=graph)) for graph in (True, False))
    for engine in (captured, eager):
        with torch.cuda.stream(engine.stream):
            engine.set_epoch(0)
            engine.start_epoch()
    steps = run_steps(captured, 1)
    assert run_steps(eager, steps) == steps
    torch.cuda.synchronize()
    assert_same_state(copy_state(captured), copy_state(eager))


@pytest.mark.parametrize(("family", "optimizer"), [("line", "SGD"), ("line", "AdamW"), ("ema", "SGD")])
def test_a_state_continues_on_another_engine(family, optimizer):
    recipe = made(family, optimizer=optimizer, learning_rate=0.01)
    how = execution(graph=True)
    first = Engine(recipe, DATA, how)
    with torch.cuda.stream(first.stream):
        first.set_epoch(0)
        first.start_epoch()
    done = run_steps(first, 11)
    torch.cuda.synchronize()
    second = Engine(recipe, DATA, how)
    with torch.cuda.stream(second.stream):
        second.load(copy_state(first))
        second.set_epoch(0)
    for engine in (first, second):
        run_steps(engine, len(engine.loader.sizes), done)
    torch.cuda.synchronize()
    assert_same_state(copy_state(second), copy_state(first))


# Whole runs


def families(run: Run) -> dict[str, Tensor]:
    _, tensors = contents(run.family_file)
    return {
        name: torch.frombuffer(bytearray(value), dtype=torch.float32)
        for name, value in tensors.items()
        if "vertex" in name
    }


def assert_same_run(actual: Run, expected: Run) -> None:
    for found, wanted in zip(rows(actual), rows(expected), strict=True):
        assert found == pytest.approx(wanted, rel=1e-2, abs=1e-2)
    assert_close(families(actual), families(expected), rtol=1e-2, atol=1e-3)


def test_several_runs_at_once_are_each_alone(tmp_path: Path):
    recipes = [made("standard"), made("line", seed=1), made("simplex", seed=2)]
    how = execution(graph=True)
    together = [Run.under(tmp_path / "together", recipe) for recipe in recipes]
    train_runs(together, DATA, how, nothing, nothing)
    for run, recipe in zip(together, recipes, strict=True):
        assert_same_run(run, train_one(recipe, tmp_path / "alone", DATA, how))


def test_a_stopped_run_continues_to_the_same_end(tmp_path: Path):
    recipe = made("line", epochs=4)
    how = execution(graph=True, evaluate_every=2)
    whole = train_one(recipe, tmp_path / "whole", DATA, how)
    stop = Countdown(20, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped):
        train_one(recipe, tmp_path, DATA, how, tick=stop)
    run = Run.under(tmp_path, recipe)
    assert (run.folder / "state.safetensors").is_file()
    assert_same_run(train_one(recipe, tmp_path, DATA, how), whole)


def test_the_log_says_how_fast_it_was(tmp_path: Path):
    run = train_one(made(epochs=3), tmp_path, DATA, execution(graph=True))
    assert len(run.log()) == 3
    for row in run.log():
        assert math.isfinite(row["images_per_second"])
        assert row["images_per_second"] > 0
    assert "cores" not in (run.folder / "environment.json").read_text()


def test_what_is_the_default_on_a_gpu_learns(tmp_path: Path):
    """bfloat16 and graphs; the compiler has its own test."""
    how = dataclasses.replace(execution(graph=True), precision="bfloat16", channels_last=True)
    run = train_one(made("line", epochs=6, learning_rate=0.1), tmp_path, DATA, how)
    assert run.log()[-1]["loss"] < run.log()[0]["loss"]
    assert run.result["test_accuracy"] > 0.5


def test_runs_with_dropout_are_each_alone(tmp_path: Path):
    recipes = [made("line", seed=seed, network="training_cases:dropped", dropout=0.5) for seed in (0, 1)]
    how = execution(graph=True)
    together = [Run.under(tmp_path / "together", recipe) for recipe in recipes]
    train_runs(together, DATA, how, nothing, nothing)
    for run, recipe in zip(together, recipes, strict=True):
        assert_same_run(run, train_one(recipe, tmp_path / "alone", DATA, how))


def test_a_run_killed_within_an_epoch_continues_to_the_same_end(tmp_path: Path):
    recipe = made("line", epochs=3)
    how = execution(graph=True, checkpoint_seconds=0.0)
    whole = train_one(recipe, tmp_path / "whole", DATA, how)

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_one(recipe, tmp_path, DATA, how, tick=Countdown(24, crash))
    _, progress = Run.under(tmp_path, recipe).load_checkpoint()
    assert (progress["epoch"], progress["done"] > 0) == (1, True)
    assert_same_run(train_one(recipe, tmp_path, DATA, how), whole)


# Baselines

BASELINES = {
    "swa": {"method": "swa-cyclic", "vertices": 2, "schedule": "swa-cyclic"},
    "swag": {"method": "swag", "vertices": 2, "schedule": "swa-cyclic"},
    "snapshot": {"method": "snapshot", "vertices": 4, "schedule": "snapshot"},
    "ema": {"method": "ema", "ema_decay": 0.9},
    "sam": {"method": "sam"},
    "stopping": {"method": "early-stopping", "validation": 20},
    "integral": {"method": "integral"},
}
HELD_OUT = dataclasses.replace(DATA, validation=made_dataset(train=5, test=20, channels=3, side=32).test)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_on_the_gpu_is_the_one_on_the_cpu(name, tmp_path: Path):
    recipe = dataclasses.replace(RECIPE, epochs=4, **BASELINES[name])
    dataset = HELD_OUT if recipe.validation else DATA
    cpu = Execution(device="cpu", evaluate_every=0).resolved()
    on_gpu, on_cpu = (
        train_one(recipe, tmp_path / device, dataset, how)
        for device, how in (("cuda", execution(graph=True)), ("cpu", cpu))
    )
    assert on_gpu.finished
    if name != "stopping":  # whose choice may fall the other way by a single image
        assert_close(families(on_gpu), families(on_cpu), rtol=5e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["swa", "ema", "sam", "stopping"])
def test_a_stopped_baseline_continues_to_the_same_end(name, tmp_path: Path):
    recipe = dataclasses.replace(RECIPE, epochs=4, **BASELINES[name])
    dataset = HELD_OUT if recipe.validation else DATA
    how = execution(graph=True)
    whole = train_one(recipe, tmp_path / "whole", dataset, how)
    stop = Countdown(45, lambda: os.kill(os.getpid(), signal.SIGTERM))  # in the fourth epoch, after a checkpoint
    with pytest.raises(Stopped):
        train_one(recipe, tmp_path, dataset, how, tick=stop)
    assert_same_run(train_one(recipe, tmp_path, dataset, how), whole)


def holds(pause: Pause, run: Run) -> None:
    with run.locked():
        pause(1)


def test_runs_that_another_process_trains_or_has_finished_are_left_out(tmp_path: Path):
    runs = [Run.under(tmp_path, made("line", epochs=1, seed=seed)) for seed in range(3)]
    how, held = execution(graph=True), dict[Run, str]()
    train_runs(runs[:1], DATA, how, nothing, nothing)
    worker = Worker(holds, runs[1])
    assert worker.line() == "there\n"
    train_runs(runs, DATA, how, nothing, nothing, held=held)
    worker.resume.set()
    worker.end()
    assert held == {runs[1]: f"process {worker.pid}"}
    assert [run.finished for run in runs] == [True, False, True]
    train_runs([runs[0], runs[2]], DATA, how, nothing, nothing)  # both finished since somebody looked
    assert [len(runs[seed].starts()) for seed in (0, 2)] == [1, 1]


# The compiler with the package's own convolutions, which compute in bfloat16


@pytest.mark.filterwarnings("ignore")  # what the compiler's own parts warn of
@pytest.mark.parametrize("family", ["standard", "line"])
def test_own_convolutions_train_as_closely_to_float32_as_torchs(family):
    torch.compiler.reset()
    recipe = made(family, network="cresnet20", learning_rate=0.002)
    low = {"precision": "bfloat16", "channels_last": True}
    start = copy_state(Engine(recipe, DATA, execution()))
    exact = trained(recipe, execution(), epochs=1)
    eager = trained(recipe, execution(**low), epochs=1)
    compiled = trained(recipe, execution(compile=True, graph=True, **low), epochs=1)
    names = [name for name in exact if name.startswith("family.omega")]

    def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
        return sum(float((first[name] - second[name]).square().sum()) for name in names) ** 0.5

    way = apart(start, exact)
    assert apart(eager, exact) < 0.5 * way
    assert apart(compiled, exact) < 1.5 * apart(eager, exact)
    assert apart(compiled, eager) < 1.5 * apart(eager, exact)
