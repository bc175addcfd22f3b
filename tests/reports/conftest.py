"""The browser, and the runs and their page, that tests of the page share."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import page_cases
import pytest
from visiting import Visitor

from subspaces.experiments.opening import opened
from subspaces.reports.page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    if CHROMIUM is None:
        pytest.skip("needs Debian's chromium (apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def visitor(browser, tmp_path_factory: pytest.TempPathFactory) -> Visitor:
    return Visitor(browser, tmp_path_factory.mktemp("visited"))


@pytest.fixture
def visit(visitor) -> Iterator[Callable[..., Any]]:
    """Open a page; at the end, it may have asked for nothing and nothing may have gone wrong."""
    before = len(visitor.lent)
    yield visitor
    visitor.give_back(before)
    assert visitor.troubles == []


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> page_cases.Recorded:
    """Runs of four recipes with three seeds each, and what their records say."""
    return page_cases.Recorded(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def report_of_all(recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(opened(recorded.folders), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="session")
def opened_report(visitor, report_of_all) -> object:
    """The page of these runs."""
    return visitor(report_of_all)


@pytest.fixture
def page(opened_report, visit) -> object:
    """The page of these runs, with its selects as in the beginning."""
    opened_report.select_option("#along-metric", label="Accuracy")
    opened_report.select_option("#walk-run", label="line, seed 0")
    return opened_report
