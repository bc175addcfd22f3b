"""Processes that read images end with the training that started them, and leave no files."""

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

from subspaces.experiments.training import Stopped

RECIPE = dataclasses.replace(DIGITS, batch=16, epochs=2)  # of 90 images: 6 steps an epoch
EXECUTION = {
    "fork": dataclasses.replace(CPU, resident=False, workers=2, evaluate_every=1),
    "forkserver": dataclasses.replace(CPU, resident=False, workers=2),
    "spawn": dataclasses.replace(CPU, resident=False, workers=1),  # each imports torch
}
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on threads and fork


def nothing() -> None:
    """Let the training go on."""


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
    multiprocessing.set_start_method(method, force=True)
    multiprocessing.set_forkserver_preload(["subspaces.experiments.data"])
    multiprocessing.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]  # it is pytest's
    tempfile.tempdir = str(temporary)
    try:
        train_one(RECIPE, out, made_dataset(), EXECUTION[method], tick=Countdown(8, action))
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
    [
        ("fork", nothing, "finished"),
        ("fork", fail, "ArithmeticError"),
        ("fork", interrupt, "Stopped"),
        ("fork", interrupt_twice, "KeyboardInterrupt"),
        ("forkserver", interrupt, "Stopped"),
    ],
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
