"""Several processes train a run together: the result is that of one, and so is what is left of it."""

import os
import signal
import socket
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from processes import Worker, types
from safetensors.torch import load_file
from training_cases import contents, rows

from subspaces.cli import main as app
from subspaces.experiments.data import Share
from subspaces.experiments.training import Run
from subspaces.experiments.training.api import configure
from subspaces.experiments.training.batches import check_batches, load_data

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)

COMMON = ["--label-noise", "0", "--learning-rate", "0.02", "--evaluate-every", "2", "--network", "lenet"]
COMMON += ["--device", "cpu"]  # LeNet has no batch norm
COMMANDS = {
    "subspaces": ["digits-simplex-layerwise", "--epochs", "2"],
    "methods": [*(f"digits-{name}" for name in ("swa-cyclic", "sam", "early-stopping"))],
    "samples": ["digits-line", "--samples", "2", "--epochs", "2", "--batch", "64"],
}
COMMANDS["methods"] += ["--vertices", "2", "--epochs", "4", "--validation", "200", "--batch", "500"]
COMMANDS["samples"] += ["--validation", "29"]


def test_finished_processes_exit_with_0(tmp_path: Path) -> None:
    """Whole interpreters end here, in which a thread of gloo may still want the GIL: one run of three failed once."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(found.getsockname()[1])}
    code = """
import torch
from subspaces.experiments.training.execution import Execution, joined
with joined(Execution(device="cpu")) as (world, _):
    assert world.largest(world.rank) == 1
    assert world.total(torch.ones(9)).sum() == 18
    assert len(world.every(torch.ones(9))) == 2
"""
    processes = []
    for rank in "01":
        environment = {**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen([sys.executable, "-c", code], env=environment))
    assert [process.wait(100) for process in processes] == [0, 0]


class Together:
    """Processes that were started as torchrun does, typing the same command in a folder."""

    def __init__(self, ranks: int, folder: Path, *argv: str) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.errors = [folder / f"errors-{rank}" for rank in range(ranks)]
        self.workers = []
        for rank, errors in enumerate(self.errors):
            errors.unlink(missing_ok=True)
            environment = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
            arguments = ["train", *COMMON, *argv, "--data", str(folder), "-o", "runs"]
            self.workers.append(Worker(types, arguments, folder, environment, [], errors=errors))

    def end(self, *codes: int) -> list[str]:
        """Wait for all, and return what each wrote of its errors."""
        for worker, code in zip(self.workers, codes or [0] * len(self.workers), strict=True):
            worker.end(code)
        return [errors.read_text() for errors in self.errors]


def alone(folder: Path, *argv: str) -> None:
    Worker(types, ["train", *COMMON, *argv, "--stack", "1", "-o", "runs"], folder, {}, []).end()


def runs(folder: Path) -> dict[str, Run]:
    return {path.name: Run.open(path) for path in sorted((folder / "runs").iterdir())}


def assert_same(actual: Path, expected: Path, tolerance: float = 2e-4) -> None:
    """The same runs with the same numbers, to rounding."""
    ours, theirs = runs(actual), runs(expected)
    assert ours.keys() == theirs.keys()
    for name, run in ours.items():
        other = theirs[name]
        assert {path.name for path in run.folder.iterdir()} == {path.name for path in other.folder.iterdir()}
        found, wanted = load_file(run.family_file), load_file(other.family_file)
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            torch.testing.assert_close(found[key], value, rtol=tolerance, atol=tolerance)
        for row, expected_row in zip(rows(run), rows(other), strict=True):
            assert row == pytest.approx(expected_row, abs=3e-3)
        assert run.result["test_accuracy"] == pytest.approx(other.result["test_accuracy"], abs=3e-3)


@pytest.mark.parametrize("name", COMMANDS)
def test_several_processes_train_to_the_result_of_one(tmp_path: Path, name: str) -> None:
    for folder in ("together", "alone"):
        (tmp_path / folder).mkdir()
    Together(2, tmp_path / "together", *COMMANDS[name], "--quiet").end()
    alone(tmp_path / "alone", *COMMANDS[name], "--quiet")
    assert_same(tmp_path / "together", tmp_path / "alone")
    run = next(iter(runs(tmp_path / "together").values()))
    assert [start["processes"] for start in run.starts()] == [2]


LONG = ["digits-line", "--epochs", "3", "--json", "--checkpoint-seconds", "0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A longer run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    alone(folder, *LONG)
    return folder


def stopped(folder: Path, *argv: str) -> None:
    """Stop two processes in the second epoch by a signal to one of them."""
    together = Together(2, folder, *argv)
    assert together.workers[0].line()
    os.kill(together.workers[1].pid, signal.SIGINT)
    first, second = together.end(130, 130)
    assert "stopped; the same command continues" in first
    assert not second
    (run,) = runs(folder).values()
    assert not run.finished
    assert run.load_checkpoint() is not None


@pytest.mark.parametrize("ranks", [3])
def test_a_stopped_run_continues_with_any_number_of_processes(tmp_path: Path, whole: Path, ranks: int) -> None:
    stopped(tmp_path, *LONG)
    Together(ranks, tmp_path, *LONG).end()
    assert_same(tmp_path, whole)
    (run,) = runs(tmp_path).values()
    assert [start.get("processes") for start in run.starts()] == [2, ranks]


def test_each_process_continues_its_own_dropout(tmp_path: Path) -> None:
    """With as many processes as before, and so bit for bit: sums of two numbers have no order."""
    code = str(Path(__file__).parent)
    argv = [*LONG, "--network", "training_cases:dropped", "--code", code, "--dropout", "0.3"]
    broken, intact = tmp_path / "broken", tmp_path / "intact"
    for folder in (broken, intact):
        folder.mkdir()
    stopped(broken, *argv)
    for folder in (broken, intact):
        Together(2, folder, *argv).end()
    ((_, ours),) = runs(broken).items()
    ((_, theirs),) = runs(intact).items()
    assert contents(ours.family_file) == contents(theirs.family_file)
    assert rows(ours) == rows(theirs)


def test_a_lost_process_ends_the_others_and_the_checkpoint_is_kept(tmp_path: Path, whole: Path) -> None:
    together = Together(2, tmp_path, *LONG)
    assert together.workers[0].line()
    together.workers[1].kill()
    together.workers[0].end(1)
    assert "process 0 of 2 has lost another one" in together.errors[0].read_text()
    (run,) = runs(tmp_path).values()
    assert run.load_checkpoint() is not None
    alone(tmp_path, *LONG)
    assert_same(tmp_path, whole)


def test_a_run_that_another_process_trains_is_an_error_of_all(tmp_path: Path) -> None:
    recipe = configure(
        "digits-line", None, {"label_noise": 0.0, "learning_rate": 0.02, "network": "lenet", "epochs": 1}
    )[0][0]
    with Run.under(tmp_path / "runs", recipe).locked():
        said = Together(2, tmp_path, "digits-line", "--epochs", "1").end(1, 1)
    assert "is in use by process" in said[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--compile", "--compile: 2 processes train one run at a time together"),
        ("--at-once 2", "--at-once=2: 2 processes train one run at a time"),
        ("--stack 4", "--stack=4: 2 processes train one run at a time"),
        ("--device cuda:1", "expected cuda"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, options: str, said: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit) as error:
        app(["train", "digits-line", *options.split(), "-o", str(tmp_path / "runs")])
    assert error.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "processes", "said"),
    [
        (
            {"batch": 2, "network": "lenet", "validation": 1},
            2,
            "has 1, cut for 2 processes, and lenet cannot be trained on 0",
        ),
        ({"batch": 6, "validation": 3}, 2, "has 3, cut for 2 processes, and mlp cannot be trained on 1"),
        ({"batch": 64, "method": "line", "samples": 16}, 2, r"cut for 16 groups \(--samples\) and 2 processes"),
    ],
)
def test_batches_that_leave_a_process_nothing_are_refused(changes: dict[str, Any], processes: int, said: str) -> None:
    recipe, _ = configure("digits-standard", None, changes)
    with pytest.raises(ValueError, match=said):
        check_batches(recipe[0], load_data(recipe[0], None), processes)


@given(st.integers(1, 7), st.integers(1, 40), st.integers(0, 40))
def test_shares_are_parts_of_the_whole(ranks: int, size: int, most: int) -> None:
    shares = [Share(rank, ranks) for rank in range(ranks)]
    images = [list(range(size))[share.images(size)] for share in shares]
    assert sorted(chain(*images)) == list(range(size))
    weights = [share.weight(size) for share in shares]
    assert sum(weights) / ranks == pytest.approx(1)
    for own, weight in zip(images, weights, strict=True):
        assert weight == pytest.approx(len(own) * ranks / size)
    batches = [list(Share(rank, ranks, whole=True, most=most).batches(size)) for rank in range(ranks)]
    count = min(size, most)
    assert sorted(chain(*batches)) == sorted([*range(count)] * (ranks if count < ranks else 1))
