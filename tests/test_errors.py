"""What the user can fix is one line; a bug is a traceback that says where to report it."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import subspaces as ss
from subspaces.errors import ArgumentError
from subspaces.experiments.training import RunError, TrainingError

BUG = """
import sys
from subspaces import cli

def broken(*_, **__):
    raise ValueError("a bug inside the package")

from subspaces.cli import inspect
inspect.RECIPES = type("Broken", (), {"__getattr__": broken, "__iter__": broken})()
sys.argv = ["subspaces", "recipes"]
cli.main()
"""


def test_a_bug_is_a_traceback_that_says_where_to_report_it():
    ended = subprocess.run([sys.executable, "-c", BUG], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "Traceback (most recent call last)" in ended.stderr
    assert "ValueError: a bug inside the package" in ended.stderr
    assert "Reporting a bug" in ended.stderr


def test_a_wrong_argument_is_a_user_error_and_of_the_kinds_that_python_has_for_it():
    for kind in (ss.UserError, ValueError, TypeError):
        with pytest.raises(kind, match="independent"):
            ss.Subspace(lambda: nn.Linear(2, 2), ss.Line(), init="nowhere")
    assert issubclass(ArgumentError, ss.UserError)


def test_errors_of_runs_and_files_are_user_errors(tmp_path):
    torch.save({}, tmp_path / "no.safetensors")
    with pytest.raises(ss.UserError):
        ss.load(tmp_path / "no.safetensors", lambda: nn.Linear(2, 2))
    assert issubclass(RunError, ss.UserError)
    assert issubclass(TrainingError, ss.UserError)
