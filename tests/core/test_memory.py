"""Memory that runs out: one line that says so and what to do, wherever it happens."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import CliRunner
from processes import Pause, Worker

import subspaces as ss
from subspaces.cli import main as app
from subspaces.core import memory
from subspaces.experiments import data


def short_of_memory(pause: Pause, argv: list[str]) -> None:
    """Type a command in a process that gets little more than it has."""
    data.load("digits")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 120_000_000, resource.RLIM_INFINITY))
    app(argv)


def test_every_way_to_run_out_is_recognised():
    def huge_storage() -> None:
        torch.empty(10**10, 10**10)

    for work in (
        lambda: torch.empty(10**15),
        huge_storage,
        lambda: np.empty(10**15),
        lambda: bytearray(10**15),
    ):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            work()
        assert memory.ran_out(caught.value)
    assert memory.ran_out(torch.OutOfMemoryError("CUDA out of memory"))
    assert not memory.ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not memory.ran_out(ValueError("out of memory"))


def test_training_that_needs_too_much_is_one_line(tmp_path: Path):
    command = ["train", "digits-standard", "--epochs", "1", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*command, "--pad", "1000000"], prog_name="subspaces")
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: out of memory on cpu")
    assert "lower --batch" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_evaluation_that_gets_too_little_is_one_line(tmp_path: Path):
    options = {"epochs": 1, "device": "cpu", "show": "quiet", "tensorboard": False}
    (run,) = ss.train("digits-standard", pad=200, out=tmp_path, **options)  # 200 MB of borders
    command = ["evaluate", str(run.folder), "--device", "cpu", "--quiet"]
    Worker(short_of_memory, command, errors=tmp_path / "errors").end(1)
    said = (tmp_path / "errors").read_text()
    assert said.startswith("error: out of memory")
    assert "lower --batch" in said
    assert said.count("\n") == 1
