"""How fast training is, measured where the work is done."""

import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest
from training_cases import DIGITS, Countdown, made_dataset, train_one

from subspaces.experiments.training import Run, Stopped
from subspaces.experiments.training.clock import Clock


def test_the_time_from_start_to_stop():
    before = time.perf_counter()
    clock = Clock(None)
    time.sleep(0.01)
    clock.stop()
    after = time.perf_counter()
    assert clock.ready()
    assert 0.01 <= clock.seconds() <= after - before
    assert clock.seconds() == clock.seconds()  # it stands


def test_the_images_of_an_interrupted_epoch_are_those_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a second each, the images per second are the images that were trained on."""
    monkeypatch.setattr(Clock, "seconds", lambda clock: 1.0)
    recipe = dataclasses.replace(DIGITS, epochs=2, batch=16)  # 90 images: 6 steps an epoch
    with pytest.raises(Stopped):
        train_one(recipe, tmp_path, made_dataset(), tick=Countdown(8, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert [row["images_per_second"] for row in Run.under(tmp_path, recipe).log()] == [90]
    run = train_one(recipe, tmp_path, made_dataset())
    assert [row["images_per_second"] for row in run.log()] == [90, 90 - 2 * 16]
