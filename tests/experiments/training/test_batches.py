"""Where the batches come from: images that fit live on the device, others pass through worker processes."""

import dataclasses
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import SECONDS, Pause, Worker
from training_cases import CPU, DIGITS, Countdown, made_dataset, train_one

from subspaces.experiments.data import ResidentLoader
from subspaces.experiments.training import Stopped
from subspaces.experiments.training.batches import (
    Stream,
    evaluation_batches,
    fits_memory,
    statistics_batches,
    training_batches,
)

DATA = made_dataset(train=60, test=20, channels=3, side=8)
RECIPE = dataclasses.replace(DIGITS, batch=16, pad=2, flip=True)


def test_half_of_the_memory_is_the_limit(monkeypatch):
    pages = {"SC_PAGE_SIZE": 1}
    monkeypatch.setattr("os.sysconf", lambda name: pages.get(name, 2 * 60 * 3 * 12 * 12))
    split = DATA.train
    assert fits_memory(split, 2, CPU)
    assert not fits_memory(split, 3, CPU)
    assert isinstance(training_batches(RECIPE, DATA, CPU), ResidentLoader)
    large = dataclasses.replace(RECIPE, pad=3)
    assert isinstance(training_batches(large, DATA, CPU), Stream)
    assert isinstance(statistics_batches(large, DATA, CPU), Stream)
    assert isinstance(evaluation_batches(DATA.test, large, DATA, CPU), ResidentLoader)  # not padded, and fewer


# Processes that read images


EXECUTION = {
    "fork": dataclasses.replace(CPU, resident=False, workers=2, evaluate_every=1),
    "forkserver": dataclasses.replace(CPU, resident=False, workers=2),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on threads and fork


def fail() -> None:
    raise ArithmeticError


def interrupt() -> None:
    """Press Ctrl-C, which reaches all processes of a terminal."""
    os.killpg(0, signal.SIGINT)
    time.sleep(0.1)


def interrupt_twice() -> None:
    interrupt()
    interrupt()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def trains(pause: Pause, out: Path, temporary: Path, method: str, action: Callable[[], None]) -> None:
    """Train in a session of its own, with a folder for temporary files, and do something in the second epoch."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    multiprocessing.set_start_method(method, force=True)
    multiprocessing.set_forkserver_preload(["subspaces.experiments.data"])
    multiprocessing.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]  # it is pytest's
    tempfile.tempdir = str(temporary)
    try:
        recipe = dataclasses.replace(DIGITS, batch=16, epochs=2)  # of 90 images: 6 steps an epoch
        train_one(recipe, out, made_dataset(), EXECUTION[method], tick=Countdown(8, action))
        print("finished")
    except (Stopped, ArithmeticError, KeyboardInterrupt) as error:
        print(type(error).__name__)
    print(len(multiprocessing.active_children()), "are left")


def assert_all_ended(worker: Worker, tmp_path: Path) -> None:
    """No process of its session is left, and none wrote a traceback."""
    end = time.monotonic() + SECONDS
    while is_there(worker.pid):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert (tmp_path / "errors").read_text() == ""


def is_there(session: int) -> bool:
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("method", "action", "ended"),
    [("fork", fail, "ArithmeticError"), ("fork", interrupt, "Stopped"), ("fork", interrupt_twice, "KeyboardInterrupt")],
)
def test_a_training_that_ends_leaves_nothing(method, action, ended, tmp_path, temporary):
    worker = Worker(trains, tmp_path, temporary, method, action, errors=tmp_path / "errors", children=True)
    assert worker.end() == f"{ended}\n0 are left\n"
    assert_all_ended(worker, tmp_path)
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("method", EXECUTION)
def test_a_training_that_is_killed_leaves_no_process(method, tmp_path, temporary):
    worker = Worker(trains, tmp_path, temporary, method, kill, errors=tmp_path / "errors", children=True)
    assert worker.end(-signal.SIGKILL) == ""  # which waits for all that could write
    assert_all_ended(worker, tmp_path)
    assert method == "forkserver" or os.listdir(temporary) == []  # the socket of the fork server stays
