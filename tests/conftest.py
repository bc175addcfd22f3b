"""What all tests share."""

import os
from collections.abc import Iterator

import pytest
import torch

from subspaces.training.environment import commit


@pytest.fixture(scope="session", autouse=True)
def _a_key_of_the_tests_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sign runs with a key that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


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
    *("test_campaign", "test_figures", "test_compare", "test_page_browser", "test_outside", "test_demo"),
    *("test_importing", "test_compile", "test_figures_numbers", "test_any_evaluation", "test_evaluate_again"),
    *("test_stale", "test_page", "test_distributed", "test_page_walk", "test_page_numbers", "test_instability"),
    *("test_memory_of_evaluations", "test_memory", "test_cli_plot", "test_compare_shared", "test_sharing"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order below, where xdist would begin with the files of many tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process is left alone with one at the end.

    Skip the tests that need a GPU where there is none.
    """
    places = {stem: place for place, stem in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
