"""The site: built strictly, complete, and without anything that a browser would fetch from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subspaces as ss
from subspaces.cli import build

pytestmark = pytest.mark.timeout(1200)  # the build takes seconds, and minutes on a machine that is busy
ROOT = Path(__file__).parent.parent
FETCHED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "image": "href"}
FETCHING = {"stylesheet", "icon", "preconnect", "preload", "prefetch", "dns-prefetch", "modulepreload", "manifest"}


def test_the_code_of_the_first_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = [(torch.randn(16, 5), torch.randint(3, (16,))) for _ in range(2)]
    names: dict[str, Any] = dict.fromkeys(("loader", "test_loader", "held_out"), loader)
    names["make_net"] = lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    for code in blocks:
        exec(code, names)
    assert 0 <= names["evaluation"]["midpoint"].accuracy <= 1
    assert (tmp_path / "report.html").stat().st_size > 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a way to any other machine."""
    pytest.importorskip("material", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, **offline, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Page(HTMLParser):
    """What a page fetches, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids.add(found.get("id", ""))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in FETCHED and FETCHED[tag] in found and (tag != "link" or set(found["rel"].split()) & FETCHING):
            self.fetched.append(found[FETCHED[tag]])


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for path in pages:
        page = Page(path)
        assert any(each.endswith(".css") for each in page.fetched) or "sample-report" in path.name
        for each in page.fetched:
            assert not re.match(r"[a-z]+:|//", each) or each.startswith("data:"), f"{path.name}: {each}"
    for style in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", style.read_text())
        assert found == [], style.name


def test_links_of_pages_lead_to_files_and_headings_of_the_site(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links if path.name != "404.html" else ():
            name, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:|/", name):
                continue
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path.name}: {link}"
            assert not anchor or target not in pages or anchor in pages[target].ids, f"{path.name}: {link}"


def test_the_reference_has_every_public_name_and_every_command(site: Path) -> None:
    ids = {each for path in (site / "reference").glob("*.html") for each in Page(path).ids}
    assert {f"subspaces.{name}" for name in ss.__all__ if name != "__version__"} <= ids
    text = (site / "reference" / "command-line.html").read_text()
    assert all(f"subspaces {name}" in text for name in build().commands)
    assert "--label-noise" in text


def test_results_are_those_of_the_repository(site: Path) -> None:
    text = (site / "results.html").read_text()
    for heading in re.findall(r"^## (.+)$", (ROOT / "RESULTS.md").read_text(), re.MULTILINE):
        assert heading in text
    assert (site / "results" / "demo" / "plane.png").read_bytes() == (ROOT / "results/demo/plane.png").read_bytes()
