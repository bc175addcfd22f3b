"""What all tests share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _a_key_of_the_tests_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sign runs with a key that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


LONG = ("test_campaign", "test_outside", "test_cli", "test_demo", "test_memory", "test_importing", "test_cli_train")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process is left alone with one at the end.

    Skip the tests that need a GPU where there is none.
    """
    items.sort(key=lambda item: item.path.stem not in LONG)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
