"""What all tests share."""

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from subspaces.evaluation.files import commit

gc.disable()  # until all is imported: see `pytest_collection_finish`
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # of tests that import onnxruntime themselves: it leaves a file


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, with a short name, as sockets need it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session", autouse=True)
def _files_that_need_not_outlast_a_power_cut() -> Iterator[None]:
    """Spare the many files that tests write the wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _a_commit_that_is_looked_up_once() -> Iterator[None]:
    """Spare the many runs that tests train a process of git's each."""
    with pytest.MonkeyPatch.context() as patch:
        if found := commit():
            patch.setenv("SUBSPACES_COMMIT", found)
        yield


LONG = (
    *("evaluation", "reports", "test_reproduce", "test_world", "integrations", "test_campaign", "test_compare"),
    *("test_compile", "test_cluster", "export", "test_ensembles", "test_outside", "test_resume", "test_subspace"),
    *("test_any_network", "test_storage", "test_grid", "test_methods", "test_scheduling", "test_cli_options"),
    *("test_run_files", "test_imports", "test_cli", "test_cli_compare", "test_runs", "test_instability"),
    *("test_demo", "test_cli_evaluate", "test_checkpointing", "test_engine", "test_wheel"),
)
"""What takes longest, which is begun with, so that no process is left alone with it at the end."""
FOLDERS = ("evaluation", "integrations", "export", "reports")
"""Files and folders whose tests share what takes long to make: one process runs them."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order below, where xdist would begin with the files of many tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let a process run all files of a group, where xdist would make each file a group of its own."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Grouped(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(Path(nodeid.partition("::")[0]))

    return Grouped(config, log)


def group(path: Path) -> str:
    """Return the name of the tests that follow each other: those of a file, or of several."""
    return path.parent.name if path.parent.name in FOLDERS else path.stem


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and skip the tests that need a GPU where there is none."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(group(item.path), len(LONG)))
    for item in items:
        if not torch.cuda.is_available() and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what was imported, of which nothing is garbage, and come less often."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()
