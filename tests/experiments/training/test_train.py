"""`train()`: recipes, seeds and changes in, finished runs out; and what is shown on the way."""

import dataclasses
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from training_cases import CPU, DIGITS, Countdown, digits, jsonl, train_runs

import subspaces as ss
from subspaces.experiments.training import Run, Stopped, train
from subspaces.experiments.training.display import Display

RECIPE = dataclasses.replace(DIGITS, epochs=2)


def quietly(*arguments, out: Path, **options) -> list[Run]:
    return train(*arguments, out=out, **{"device": "cpu", "show": "quiet", **options})


def test_the_same_run_twice_is_trained_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = quietly([RECIPE, RECIPE], seeds=[0, 0], out=tmp_path, show="json")
    assert {run.folder for run in runs} == {tmp_path / f"small-seed0-{RECIPE.key}"}
    assert len(jsonl(capsys.readouterr().out)) == RECIPE.epochs


def test_changes_reach_the_recipe_and_the_execution(tmp_path: Path):
    changes = {"method": "simplex", "vertices": 4, "beta": 0.5, "validation": 100, "label_noise": 0.3}
    (run,) = quietly(RECIPE, out=tmp_path, evaluate_every=1, channels_last=False, **changes)
    assert {name: getattr(run.recipe, name) for name in changes} == changes
    assert "validation_accuracy" in run.log()[0]
    assert '"channels_last": false' in (run.folder / "environment.json").read_text()


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("epoch", "epochs"), ("learning_rates", "learning_rate"), ("devices", "device")]
)
def test_an_unknown_setting_gets_the_nearest_name(wrong, nearest, tmp_path: Path):
    with pytest.raises(TypeError, match=f"{wrong}=….*did you mean '{nearest}'"):
        quietly(RECIPE, out=tmp_path, **{wrong: 3})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"device": "graphics"}, "device='graphics'"),
        ({"show": "bars"}, "show='bars': did you mean 'bar'"),
        ({"dropout": 0.5}, "'mlp' has no dropout"),
        ({"vertices": 4}, "vertices=4: standard makes no use of it; it is for curve, simplex"),
        ({"vertices": 3, "method": "line"}, "vertices=3: line makes no use of it; it is for curve, simplex"),
        ({"name": "../x"}, r"name='\.\./x'"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(options, message, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        quietly(RECIPE, out=tmp_path, **options)


def test_the_process_of_the_caller_stays_as_it_is(tmp_path: Path):
    """Its variables, collector, handlers and random numbers; the compiler's limits have a test of their own."""

    def settings() -> list[object]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        numbers = torch.get_rng_state().tolist()
        return [
            dict(os.environ),
            gc.get_threshold(),
            gc.isenabled(),
            torch.get_num_threads(),
            [*sys.path],
            numbers,
            handlers,
        ]

    before = settings()
    quietly(RECIPE, seeds=[0, 1], out=tmp_path, network="training_cases:dropped", dropout=0.5)
    assert settings() == before


# What is shown


def test_json_is_a_line_for_every_epoch(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    runs = quietly(RECIPE, seeds=[0, 1], out=tmp_path, show="json")
    output, errors = capfd.readouterr()
    expected = [{"run": run.folder.name, **run.log()[epoch]} for epoch in (0, 1) for run in runs]
    assert jsonl(output) == expected  # as they come: both are one program
    assert errors == ""


def stopped(out: Path, steps: int) -> Run:
    """A run that a signal ended after so many steps of 6 to an epoch."""
    run = Run.under(out, RECIPE)
    count = Countdown(steps, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped):
        train_runs([run], digits(), CPU, tick=count)
    return run


def test_bars_begin_where_the_run_is_and_end_full(tmp_path: Path):
    run = stopped(tmp_path, 8)
    with Display("bar") as shown:
        found = []

        def begin(run: Run, epoch: int, done: int, batches: int) -> None:
            shown.begin(run, epoch, done, batches)
            found.append(shown.bars.tasks[0].completed)

        train_runs([run], digits(), CPU, shown.report, shown.tick, begin=begin)
        (task,) = shown.bars.tasks
    assert found == [8]
    assert task.completed == task.total == 12


def test_what_cannot_be_trained_is_refused_before_others_are(tmp_path: Path):
    first, second = dataclasses.replace(DIGITS, epochs=1), dataclasses.replace(DIGITS, name="small", batch=1)
    with pytest.raises(ss.UserError, match=r"batch=1: the smallest batch of \d+ images has 1"):
        ss.train([first, second], out=tmp_path, show="quiet")
    assert list(tmp_path.iterdir()) == []
