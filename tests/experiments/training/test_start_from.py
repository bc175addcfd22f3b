"""A run that starts from another's checkpoint shares its beginning exactly, and goes its own way after it."""

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from training_cases import DIGITS, Countdown, assert_same_end, contents, made_dataset, rows, train_one

from subspaces.errors import ArgumentError
from subspaces.experiments.training import Recipe, Run, RunError, Stopped

BASE = dataclasses.replace(DIGITS, epochs=4, batch=16, pad=1, flip=True)  # 6 steps an epoch
DATA = made_dataset()
METHODS: dict[str, dict[str, Any]] = {
    "standard": {},
    "line": {"method": "line"},
    "ema": {"method": "ema", "ema_decay": 0.9},
    "snapshot": {"method": "snapshot", "vertices": 4},
    "AdamW": {"optimizer": "AdamW"},
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


@pytest.mark.parametrize("shared", [0, 1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_runs_share_the_beginning_and_then_differ(method, shared, tmp_path: Path):
    first = first_of(tmp_path, shared, **METHODS[method])
    others = [train_one(from_(first, seed), tmp_path, DATA) for seed in (1, 2)]
    logs = [rows(run) for run in (first, *others)]
    assert logs[0][:shared] == logs[1][:shared] == logs[2][:shared]
    assert len({log[shared]["loss"] for log in logs}) == 3
    assert len({run.family_file.read_bytes() for run in (first, *others)}) == 3


def test_no_epoch_shared_is_the_same_initial_weights(tmp_path: Path):
    first = first_of(tmp_path, 0, learning_rate=1e-30)
    other = train_one(from_(first, 1), tmp_path, DATA)
    weights, expected = (contents(run.family_file)[1] for run in (other, first))
    assert all(weights[name] == expected[name] for name in expected if "omega" in name)


@pytest.mark.parametrize("steps", [1, 12])
def test_one_that_was_stopped_continues(steps, tmp_path: Path):
    first = first_of(tmp_path, 2)
    expected = train_one(from_(first, 1), tmp_path, DATA)
    os.rename(expected.folder, tmp_path / "expected")
    with pytest.raises(Stopped):
        train_one(expected.recipe, tmp_path, DATA, tick=Countdown(steps, lambda: os.kill(os.getpid(), signal.SIGTERM)))
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
