"""Run folders: what is in them, what is refused, and who may write."""

import dataclasses
import os
import platform
import re
import signal
from pathlib import Path

import pytest
import torch
from helpers import resealed, unsealed
from processes import Pause, Worker
from training_cases import (
    CPU,
    DIGITS,
    Countdown,
    Interrupted,
    Watch,
    digits,
    interrupt,
    make_mlp,
    train_one,
    train_runs,
)

import subspaces as ss
from subspaces.experiments.locks import stop_on_signals
from subspaces.experiments.training import Recipe, Run, RunError, Stopped, TrainingError, run_files
from subspaces.experiments.training.scheduling import Scheduler
from subspaces.version import __version__

RECIPE = dataclasses.replace(DIGITS, method="line", epochs=2)
EAGER = dataclasses.replace(CPU, checkpoint_seconds=0.0)  # a checkpoint after every step


def interrupted(out: Path, steps: int = 8, recipe: Recipe = RECIPE) -> Run:
    """A run that stopped without a word in its second epoch, with a checkpoint there."""
    with pytest.raises(Interrupted):
        train_one(recipe, out, execution=EAGER, tick=Countdown(steps, interrupt))
    run = Run.under(out, recipe)
    assert not run.finished
    return run


def folder_of(run: Run) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.folder.iterdir() if path.is_file()}


# What is in a folder


def test_a_finished_run_has_its_files_and_no_others(tmp_path: Path):
    run = train_one(RECIPE, tmp_path)
    assert run.folder == tmp_path / f"small-seed0-{RECIPE.key}"
    found = {path.name for path in run.folder.iterdir()} - {".lock"}
    assert found == {"config.json", "environment.json", "log.jsonl", "family.safetensors", "result.json"}
    assert unsealed(run.folder / "config.json") == RECIPE.to_dict()
    assert isinstance(ss.load(run.family_file, make_mlp), ss.Subspace)
    again = Run.open(run.folder)
    assert (again.recipe, again.finished, again.result) == (RECIPE, True, run.result)


def test_the_environment_says_what_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SUBSPACES_COMMIT", raising=False)
    run = train_one(RECIPE, tmp_path)
    (start,) = run.starts()
    assert start["subspaces"] == __version__
    assert start["python"] == platform.python_version()
    assert start["torch"] == torch.__version__
    assert start["commit"] is None or re.fullmatch(r"[0-9a-f]{12,}\+?", start["commit"])
    assert start["execution"] == dataclasses.asdict(CPU)
    assert start["time"].startswith("20")


def test_the_log_has_a_row_for_every_epoch(tmp_path: Path):
    seen = []
    run = train_one(RECIPE, tmp_path, report=lambda run, row: seen.append(row))
    names = ["epoch", "loss", "train_accuracy", "learning_rate", "l2", "cos2", "images_per_second"]
    assert [list(row) for row in run.log()] == [names, names]
    assert seen == run.log()
    assert [row["epoch"] for row in run.log()] == [1, 2]
    assert [row["learning_rate"] for row in run.log()] == pytest.approx([0.01, 0.02])
    assert all(row["images_per_second"] > 0 for row in run.log())
    assert run.log()[0]["l2"] > 1
    assert 0 <= run.log()[0]["cos2"] < 0.1
    assert run.result == {**run.log()[-1], "test_accuracy": run.result["test_accuracy"]}


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path):
    run = Run.under(tmp_path, RECIPE)
    run.start(CPU)
    run.save_checkpoint({"a": torch.ones(3)}, {"epoch": 1, "done": 2})
    before = (run.folder / "state.safetensors").read_bytes()
    with pytest.raises(TypeError):
        run.save_checkpoint({"a": torch.zeros(3)}, {"epoch": object()})
    with pytest.raises(ValueError, match="only dense tensors"):
        run.save_checkpoint({"a": None}, {"epoch": 2})  # type: ignore[dict-item]
    assert (run.folder / "state.safetensors").read_bytes() == before
    assert not list(run.folder.glob(".*.partial"))
    tensors, progress = run.load_checkpoint()
    assert torch.equal(tensors["a"], torch.ones(3))
    assert progress == {"epoch": 1, "done": 2, "lines": 0}


# What is refused


def test_a_finished_run_is_not_trained_again(tmp_path: Path):
    (run,) = ss_train(tmp_path)
    before = folder_of(run)
    (again,) = ss_train(tmp_path)
    assert again.folder == run.folder
    assert folder_of(again) == before


def ss_train(out: Path) -> list[Run]:
    from subspaces.experiments.training import train

    return train(RECIPE, out=out, device="cpu", show="quiet")


@pytest.mark.parametrize("finished", [True, False])
def test_the_folder_of_another_configuration_is_refused_and_left_alone(finished, tmp_path: Path):
    run = train_one(RECIPE, tmp_path) if finished else interrupted(tmp_path)
    resealed(run.folder / "config.json", lambda config: config.update(beta=0.25))
    before = folder_of(run)
    with pytest.raises(RunError, match=r"a run of another configuration, .*: choose another --out"):
        ss_train(tmp_path)
    assert folder_of(run) == before


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match=r"not a run folder: it has no config\.json"):
        Run.open(tmp_path)
    run_files.write_json(tmp_path / "config.json", {"epoch": 3}, RECIPE.key)
    with pytest.raises(RunError, match=r"config\.json is not a recipe: .*'epochs'"):
        Run.open(tmp_path)


def unknown(content: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.replace("family", "line"): value for name, value in content.items()}


def larger(content: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.cat([value, value]) if value.ndim == 2 else value for name, value in content.items()}


def stranger(content: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**content, "optimizer.99.momentum_buffer": torch.zeros(3)}


@pytest.mark.parametrize("change", [unknown, larger, stranger])
def test_a_checkpoint_that_does_not_fit_is_refused(change, tmp_path: Path):
    run = interrupted(tmp_path)
    tensors, progress = run.load_checkpoint()
    run.save_checkpoint(change(tensors), progress)
    with pytest.raises(RunError, match=r"state\.safetensors does not fit .*remove the folder"):
        ss_train(tmp_path)


# Training that goes wrong


ABSURD = dataclasses.replace(RECIPE, learning_rate=1e30, schedule="constant")


def test_the_last_good_checkpoint_is_kept(tmp_path: Path):
    good = interrupted(tmp_path)
    tensors, progress = good.load_checkpoint()
    absurd = dataclasses.replace(ABSURD, weight_decay=1e10)  # no step leaves finite weights
    run = Run.under(tmp_path, absurd)
    run.start(CPU)
    run.begin_log(good.log())  # a run that was good for an epoch
    run.save_checkpoint(tensors, {name: progress[name] for name in ("epoch", "done")})
    state = (run.folder / "state.safetensors").read_bytes()
    with pytest.raises(TrainingError, match="last good checkpoint is kept"):
        train_one(absurd, tmp_path, execution=EAGER)
    assert (run.folder / "state.safetensors").read_bytes() == state
    tensors, progress = run.load_checkpoint()
    assert progress["epoch"] == 1
    assert all(value.isfinite().all() for value in tensors.values() if value.is_floating_point())
    assert len(run.log()) == 1


@pytest.mark.parametrize("execution", [EAGER, CPU], ids=["at a checkpoint", "at the end"])
def test_weights_that_are_not_finite_are_never_a_checkpoint_nor_a_result(execution, tmp_path: Path):
    """With one batch in an epoch the loss is still finite when the step has already ruined the weights."""
    recipe = dataclasses.replace(ABSURD, batch=1200, weight_decay=1e10, epochs=1)
    with pytest.raises(TrainingError, match=r"weights of small-seed0-\w+ are not finite"):
        train_one(recipe, tmp_path, execution=execution)
    run = Run.under(tmp_path, recipe)
    assert not run.finished
    assert not (run.folder / "state.safetensors").exists()


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path):
    recipes = [ABSURD, RECIPE, dataclasses.replace(ABSURD, seed=1), dataclasses.replace(RECIPE, seed=1)]
    runs = [Run.under(tmp_path, recipe) for recipe in recipes]
    with pytest.raises(TrainingError, match=f"the loss of {runs[0].folder.name}"):
        train_runs(runs, digits(), CPU)
    assert [run.finished for run in runs] == [False, True, False, True]


def test_a_stop_saves_every_run_even_if_one_cannot_be_saved(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in (ABSURD, RECIPE)]
    tick = Countdown(8, lambda: os.kill(os.getpid(), signal.SIGTERM))  # before the end of an epoch
    with stop_on_signals() as stop, pytest.raises(Stopped):
        Scheduler(digits(), CPU, Watch(tick=tick), stop).train([[run] for run in runs])
    assert [(run.folder / "state.safetensors").is_file() for run in runs] == [False, True]


# Who may write


def holds(pause: Pause, out: Path) -> None:
    with Run.under(out, RECIPE).locked():
        pause(1)


def test_only_one_process_trains_a_run(tmp_path: Path):
    holder = Worker(holds, tmp_path)
    assert holder.line() == "there\n"
    with pytest.raises(RunError, match=f"in use by process {holder.pid}"), Run.under(tmp_path, RECIPE).locked():
        pass
    holder.kill()
    (run,) = ss_train(tmp_path)
    assert run.finished


def test_folders_that_were_only_reserved_are_left_out(tmp_path: Path):
    """What a process leaves that was killed while it waited: the folders of runs that it never started."""
    for name in ("reserved", "begun", "started", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "reserved" / ".lock").touch()
    (tmp_path / "started" / "log.jsonl").touch()
    for file in (".lock", "config.json"):
        (tmp_path / "begun" / file).touch()
    folders = [*sorted(tmp_path.iterdir()), tmp_path / "nowhere"]
    assert [path.name for path in Run.begun(folders)] == ["begun", "nowhere"]
