"""A run that was interrupted and continued ends bitwise where an uninterrupted one ends."""

import dataclasses
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import Pause, Worker
from training_cases import (
    CPU,
    DIGITS,
    Countdown,
    Interrupted,
    assert_same_end,
    contents,
    interrupt,
    made_dataset,
    rows,
    train_one,
)

from subspaces.errors import ArgumentError
from subspaces.experiments import data
from subspaces.experiments.training import Recipe, Run, RunError, Stopped

BASE = dataclasses.replace(DIGITS, epochs=4, batch=16)  # of the 90 images of made_dataset: 6 steps an epoch
STEPS = 24
DROPOUT = {"network": "training_cases:dropped", "dropout": 0.4}
CASES = {
    "sgd": {"method": "line"},
    "adam": {"method": "simplex", "optimizer": "Adam", "learning_rate": 0.01},
    "dropout": {"method": "line", **DROPOUT},
    "all": {"method": "curve", "layerwise": True, "samples": 2, "feature_similarity": 0.1}
    | {"pad": 1, "flip": True, "label_smoothing": 0.1, **DROPOUT},
    "standard": {"optimizer": "RMSprop", "learning_rate": 0.01},
}
CASES |= {  # steps 13 to 23 lie between two checkpoints of each
    "swa": {"method": "swa-cyclic", "vertices": 2},
    "swag": {"method": "swag", "vertices": 2},
    "snapshot": {"method": "snapshot", "vertices": 4},
    "ema": {"method": "ema", "ema_decay": 0.9, "optimizer": "Adam", "learning_rate": 0.01},
    "stopping": {"method": "early-stopping", "validation": 30},
    "sam": {"method": "sam", **DROPOUT},
}
EXECUTION = dataclasses.replace(CPU, evaluate_every=2, evaluate_batches=2)
DATA = made_dataset()
DATA = dataclasses.replace(DATA, validation=made_dataset(60).test)


def train_here(recipe: Recipe, out: Path, **options) -> Run:
    return train_one(recipe, out, dataset=DATA, **{"execution": EXECUTION, **options})


def recipe_of(case: str) -> Recipe:
    return dataclasses.replace(BASE, **CASES[case])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return {case: train_here(recipe_of(case), tmp_path_factory.mktemp("whole")) for case in CASES}


def signalled(number: int) -> None:
    os.kill(os.getpid(), number)


# In this process


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [3, 16])
def test_stopped_by_a_signal_and_continued(case, steps, uninterrupted, tmp_path: Path):
    with pytest.raises(Stopped, match="SIGINT"):
        train_here(recipe_of(case), tmp_path, tick=Countdown(steps, lambda: signalled(signal.SIGINT)))
    run = Run.under(tmp_path, recipe_of(case))
    assert (run.folder / "state.safetensors").is_file()
    _, progress = run.load_checkpoint()
    assert 6 * progress["epoch"] + progress["done"] == steps
    torch.manual_seed(7)  # another process would not have our random numbers either
    assert_same_end(train_here(recipe_of(case), tmp_path), uninterrupted[case])
    assert not (run.folder / "state.safetensors").exists()


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, STEPS - 1), min_size=1, max_size=3), st.sampled_from(sorted(CASES)), st.booleans())
def test_stopped_anywhere_any_number_of_times(uninterrupted, tmp_path_factory, stops, case, crashed):
    out = tmp_path_factory.mktemp("parts")
    execution = dataclasses.replace(EXECUTION, checkpoint_seconds=0.0 if crashed else 60.0)
    action = interrupt if crashed else lambda: signalled(signal.SIGTERM)
    for steps in stops:
        try:
            run = train_here(recipe_of(case), out, execution=execution, tick=Countdown(steps, action))
        except (Stopped, Interrupted):
            continue
        break  # fewer steps were left
    else:
        run = train_here(recipe_of(case), out)
    assert_same_end(run, uninterrupted[case])


# Images that are read from files


PHOTOGRAPHS = dataclasses.replace(
    BASE, dataset="imagenet", network="training_cases:convolutional", batch=3, epochs=2, flip=True, method="line"
)  # 10 images: 4 steps an epoch


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> data.Dataset:
    """A folder of images, as ImageNet is published."""
    image = pytest.importorskip("PIL.Image")
    root = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for split, count in (("train", 5), ("val", 2)):
        for name, brightness in (("a", 60), ("b", 180)):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                pixels = random.integers(brightness - 50, brightness + 50, (20, 24, 3)).astype(np.uint8)
                image.fromarray(pixels).save(root / split / name / f"{index}.png")
    return data.load("imagenet", root)


def trains_files(pause: Pause, root: Path, out: Path, steps: int) -> None:
    """Train on image files that two other processes read, and be killed after some steps."""
    multiprocessing.set_start_method("fork", force=True)
    execution = dataclasses.replace(EXECUTION, workers=2, evaluate_every=0, checkpoint_seconds=0.0)
    kill = Countdown(steps, lambda: signalled(signal.SIGKILL))
    train_one(PHOTOGRAPHS, out, dataset=data.load("imagenet", root), execution=execution, tick=kill)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on threads and fork
def test_a_streaming_run_that_is_killed_ends_the_same_with_any_number_of_readers(folders, tmp_path: Path):
    """Batches that were read ahead are read again: what was used is what the last checkpoint says."""

    def train(out: Path, workers: int, **options: Any) -> Run:
        execution = dataclasses.replace(EXECUTION, evaluate_every=0, workers=workers)
        return train_one(PHOTOGRAPHS, out, dataset=folders, execution=execution, **options)

    whole = train(tmp_path / "whole", 0)
    Worker(trains_files, folders.train.root.parent, tmp_path, 7, children=True).end(-signal.SIGKILL)
    _, progress = Run.under(tmp_path, PHOTOGRAPHS).load_checkpoint()
    assert (progress["epoch"], progress["done"]) == (1, 3)
    assert_same_end(train(tmp_path, 1), whole)
    with pytest.raises(Stopped):  # between two epochs
        train(tmp_path / "between", 0, tick=Countdown(4, lambda: signalled(signal.SIGTERM)))
    assert_same_end(train(tmp_path / "between", 0), whole)


# Other processes


def trains(pause: Pause, case: str, out: Path, seconds: float, action: str) -> None:
    """Train and say which epochs are done; be killed in the third epoch, or pause in the second."""
    kill = Countdown(16, lambda: signalled(signal.SIGKILL))
    execution = dataclasses.replace(EXECUTION, checkpoint_seconds=seconds)
    options = {"report": lambda _, row: print(row["epoch"]), "tick": kill if action == "kill" else lambda *_: pause(9)}
    try:
        train_here(recipe_of(case), out, execution=execution, **options)
    except Stopped as stop:
        print("stopped by", stop)


@pytest.mark.parametrize(("case", "seconds", "saved"), [("adam", 0, 16), ("dropout", 60, 0)])
def test_killed_in_the_middle_of_an_epoch(case, seconds, saved, uninterrupted, tmp_path: Path):
    """SIGKILL loses what came after the last checkpoint, which may be everything."""
    output = Worker(trains, case, tmp_path, seconds, "kill").end(-signal.SIGKILL)
    assert output.split() == ["1", "2"]
    run = Run.under(tmp_path, recipe_of(case))
    assert (run.folder / "state.safetensors").is_file() == bool(saved)
    seen, steps = [], []
    again = train_here(
        recipe_of(case),
        tmp_path,
        report=lambda _, row: seen.append(row["epoch"]),
        tick=lambda _, done: steps.append(done),
    )
    assert_same_end(again, uninterrupted[case])
    assert STEPS - sum(steps) == saved
    assert seen == list(range(saved // 6 + 1, 5))


def test_sigterm_writes_a_checkpoint_and_ends_cleanly(uninterrupted, tmp_path: Path):
    worker = Worker(trains, "sgd", tmp_path, 60.0, "pause")
    assert [worker.line(), worker.line()] == ["1\n", "there\n"]
    os.kill(worker.pid, signal.SIGTERM)
    worker.resume.set()
    assert worker.end() == "stopped by SIGTERM\n"
    run = Run.under(tmp_path, recipe_of("sgd"))
    assert (run.folder / "state.safetensors").is_file()
    assert not run.finished
    assert_same_end(train_here(recipe_of("sgd"), tmp_path), uninterrupted["sgd"])


# From another run's checkpoint


METHODS: dict[str, dict[str, Any]] = {
    "line": {"method": "line", "pad": 1, "flip": True, "optimizer": "AdamW", "learning_rate": 0.01},
    "snapshot": {"method": "snapshot", "vertices": 4},
}


def first_of(out: Path, keep_epoch: int, **changes: Any) -> Run:
    return train_one(dataclasses.replace(BASE, keep_epoch=keep_epoch, **changes), out, DATA)


def from_(first: Run, seed: int) -> Recipe:
    return dataclasses.replace(first.recipe, keep_epoch=None, start_from=first.folder.name, seed=seed)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_keeps_a_checkpoint_is_the_same_run(method, tmp_path: Path):
    plain = train_one(dataclasses.replace(BASE, **METHODS[method]), tmp_path, DATA)
    keeping = first_of(tmp_path, 2, **METHODS[method])
    assert rows(keeping) == rows(plain)
    assert contents(keeping.family_file)[1] == contents(plain.family_file)[1]


@pytest.mark.parametrize("shared", [0, 3])
@pytest.mark.parametrize("method", METHODS)
def test_runs_share_the_beginning_and_then_differ(method, shared, tmp_path: Path):
    first = first_of(tmp_path, shared, **METHODS[method])
    others = [train_one(from_(first, seed), tmp_path, DATA) for seed in (1, 2)]
    logs = [rows(run) for run in (first, *others)]
    assert logs[0][:shared] == logs[1][:shared] == logs[2][:shared]
    assert len({log[shared]["loss"] for log in logs}) == 3
    assert len({run.family_file.read_bytes() for run in (first, *others)}) == 3


@pytest.mark.parametrize("steps", [1, 12])
def test_one_that_was_stopped_continues(steps, tmp_path: Path):
    first = first_of(tmp_path, 2)
    expected = train_one(from_(first, 1), tmp_path, DATA)
    os.rename(expected.folder, tmp_path / "expected")
    with pytest.raises(Stopped):
        train_one(expected.recipe, tmp_path, DATA, tick=Countdown(steps, lambda: signalled(signal.SIGTERM)))
    assert_same_end(train_one(expected.recipe, tmp_path, DATA), Run(tmp_path / "expected", expected.recipe))


def test_what_cannot_be_started_from_is_named(tmp_path: Path):
    first = first_of(tmp_path, 2)
    recipe = from_(first, 1)
    with pytest.raises(RunError, match=r"start_from=.* does not fit"):
        train_one(dataclasses.replace(recipe, method="line"), tmp_path, DATA)
    with pytest.raises(RunError, match="has 2 epochs behind it: expected less than 2"):
        train_one(dataclasses.replace(recipe, epochs=2), tmp_path, DATA)
    (first.folder / "kept.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"kept\.safetensors is damaged"):
        train_one(recipe, tmp_path, DATA)
    with pytest.raises(RunError, match=r"kept\.safetensors is not there: train that run first, with --keep-epoch"):
        train_one(dataclasses.replace(BASE, start_from="nobody"), tmp_path, DATA)
    for name in ("../elsewhere", ".", ".."):
        with pytest.raises(ArgumentError, match="start_from"):
            dataclasses.replace(BASE, start_from=name)
    with pytest.raises(ArgumentError, match="keep_epoch=4: expected less than the epochs, 4"):
        dataclasses.replace(BASE, keep_epoch=4)
