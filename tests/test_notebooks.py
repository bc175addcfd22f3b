"""The notebooks under docs/: what is kept of them is what their sources give, and their pages hold everything."""

import ast
import base64
import json
import os
import platform
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FOLDER = DOCS / "notebooks"
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("nbclient", reason="nbclient is not installed")
BUILD = runpy.run_path(str(DOCS / "build_notebooks.py"))
NAMES: tuple[str, ...] = BUILD["NAMES"]
PLACES = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|Users|usr|var|work|opt|mnt)/|[A-Z]:\\\\|file://")
"""Absolute paths, which say where a notebook was run."""


def notebook(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def outputs(name: str) -> list[dict[str, Any]]:
    return [output for cell in notebook(name)["cells"] for output in cell.get("outputs", [])]


def shown(output: dict[str, Any]) -> str:
    """Return the text of an output; pictures have none."""
    texts = [text for kind, text in output.get("data", {}).items() if not kind.startswith("image/")]
    return "\n".join(map(joined, [*texts, output.get("text", "")]))


def cells(found: Any) -> list[tuple[str, str, str]]:
    return [(cell["id"], cell["cell_type"], joined(cell["source"])) for cell in found["cells"]]


def kinds(found: dict[str, Any]) -> list[list[str]]:
    return [[output["output_type"] for output in cell.get("outputs", [])] for cell in found["cells"]]


def test_every_source_is_a_notebook_and_in_the_gallery() -> None:
    assert sorted(NAMES) == sorted(path.stem for path in FOLDER.glob("*.py"))
    assert sorted(NAMES) == sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert (
            f"## [{notebook(name)['cells'][0]['source'][0].removeprefix('# ').strip()}](notebooks/{name}.ipynb)" in page
        )
        picture = rf"\[!\[[^\]]{{20,}}\]\(notebooks/images/{name}\.png\)\]\(notebooks/{name}\.ipynb\)"
        assert re.search(picture, page), name


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_that_of_its_source_run_in_order(name: str) -> None:
    nbformat.validate(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))
    found = notebook(name)
    assert cells(found) == cells(BUILD["notebook_of"](FOLDER / f"{name}.py"))
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        if not joined(cell["source"]).startswith("!"):
            ast.parse(joined(cell["source"]))
    assert code[-1]["outputs"][0]["data"].keys() >= {"text/markdown"}, "the last cell says what was seen"
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_outputs_have_no_errors_and_tell_nothing_of_the_machine(name: str) -> None:
    found = outputs(name)
    assert {output["output_type"] for output in found} <= {"stream", "display_data", "execute_result"}
    assert {output.get("name", "stdout") for output in found} == {"stdout"}
    text = "\n".join(map(shown, found))
    assert text.strip()
    assert "\x1b" not in text, "colours of a terminal"
    assert PLACES.findall(text) == []
    assert not re.search(rf"\b{re.escape(platform.node())}\b", text)
    assert not re.search(r"\bnan\b", text, re.IGNORECASE), "a number that was not measured"


def test_absolute_paths_are_found() -> None:
    for text in ("in /home/someone/x", "/tmp/a.json", r"C:\\Users", "file:///x"):
        assert PLACES.search(text), text
    for text in ("docs/tmp/x", "https://example.org/home/", "a/b", "28/28"):
        assert not PLACES.search(text), text


@pytest.mark.parametrize("name", NAMES)
def test_the_pictures_of_the_gallery_are_those_of_the_outputs(name: str) -> None:
    picture = (FOLDER / "images" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 100_000
    (cell,) = [cell for cell in notebook(name)["cells"] if "gallery" in cell["metadata"].get("tags", [])]
    found = [joined(each["data"]["image/png"]) for each in cell["outputs"] if "image/png" in each.get("data", {})]
    assert picture in [base64.b64decode(each) for each in found]


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_notebook_exist(name: str) -> None:
    texts = [joined(cell["source"]) for cell in notebook(name)["cells"] if cell["cell_type"] == "markdown"]
    texts += [shown(output) for output in outputs(name) if "text/markdown" in output.get("data", {})]
    for link in re.findall(r"\]\(([^)\s]+)\)", "\n".join(texts)):
        if not link.startswith("https://"):
            assert (FOLDER / link.partition("#")[0]).is_file(), link


# The builder


def test_a_source_becomes_cells(tmp_path: Path) -> None:
    source = tmp_path / "small.py"
    source.write_text('# %% [markdown]\n# # Title\n#\n# text\n\n# %% tags=["gallery"]\nx = 1\n\n# %% [sh]\n# ls -a\n')
    found = BUILD["notebook_of"](source)
    assert [(cell.cell_type, cell.source) for cell in found.cells] == [
        ("markdown", "# Title\n\ntext"),
        ("code", "x = 1"),
        ("code", "!ls -a"),
    ]
    assert found.cells[1].metadata == {"tags": ["gallery"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n# %%\n", "small.py:1 is before the first cell: expected a line '# %%'"),
        ("# %%\n# %% [html]\n", r"small.py:2: '# %% \[html\]', expected '# %%'"),
    ],
)
def test_what_is_no_source_is_refused(tmp_path: Path, text: str, said: str) -> None:
    source = tmp_path / "small.py"
    source.write_text(text)
    with pytest.raises(BUILD["NotebookError"], match=said):
        BUILD["notebook_of"](source)


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python as a user does, with this package."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)


def test_an_unknown_notebook_is_refused() -> None:
    found = python(DOCS / "build_notebooks.py", "lines")
    assert found.returncode == 2
    assert "no notebook 'lines': expected some of line, calibration" in found.stderr


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_notebooks_that_warn_stop_the_build(tmp_path: Path, stream: str) -> None:
    source = tmp_path / "small.py"
    source.write_text(f"# %%\nimport sys\nprint('here', file=sys.{stream})\n\n# %% [sh]\n# echo shell\n")
    script = (
        f"import runpy\nnames = runpy.run_path({str(DOCS / 'build_notebooks.py')!r})\n"
        f"from pathlib import Path\nbook = names['notebook_of'](Path({str(source)!r}))\nnames['run'](book)\n"
        "print([output['text'] for cell in book.cells for output in cell.outputs])\n"
    )
    found = python("-c", script)
    if stream == "stdout":
        assert (found.returncode, found.stdout) == (0, "['here\\n', 'shell\\n']\n"), found.stderr
    else:
        assert found.returncode == 1
        assert "cell-0 writes to standard error, expected nothing there:\nhere" in found.stderr


@pytest.mark.timeout(1200)  # seconds here; minutes on a machine that is busy
def test_the_first_notebook_runs(tmp_path: Path) -> None:
    found = python(DOCS / "build_notebooks.py", "line", "--out", tmp_path)
    assert found.returncode == 0, found.stderr
    made = json.loads((tmp_path / "line.ipynb").read_text(encoding="utf-8"))
    assert cells(made) == cells(notebook("line"))
    kinds = [[output["output_type"] for output in cell.get("outputs", [])] for cell in made["cells"]]
    assert kinds == [
        [output["output_type"] for output in cell.get("outputs", [])] for cell in notebook("line")["cells"]
    ]
    assert (tmp_path / "images" / "line.png").stat().st_size < 100_000


# The pages of the site


@pytest.fixture(scope="module")
def pages() -> dict[str, Any]:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    return runpy.run_path(str(DOCS / "notebook_pages.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_all_cells_outputs_and_pictures(pages: dict[str, Any], name: str) -> None:
    text, pictures = pages["page_of"](notebook(name), name)
    for cell in notebook(name)["cells"]:
        if cell["cell_type"] == "code":
            assert re.sub("^!", "", joined(cell["source"]), flags=re.MULTILINE) in text
    streams = [joined(output["text"]).rstrip() for output in outputs(name) if output["output_type"] == "stream"]
    assert all(stream in text for stream in streams)
    assert len(pictures) == sum("image/png" in output.get("data", {}) for output in outputs(name))
    assert re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text) == list(pictures)
    links = set(re.findall(r"\]\((?!https)([^)#\s]+)", text)) - pictures.keys() - {f"{name}.ipynb"}
    assert all((FOLDER / link).with_suffix(".ipynb").is_file() or (FOLDER / link).is_file() for link in links), links


def test_fences_are_longer_than_those_within(pages: dict[str, Any]) -> None:
    assert pages["fenced"]("a\n```\nb", "text") == "````text\na\n```\nb\n````"
    assert pages["fenced"]("", "text") == ""


def test_an_error_is_not_put_on_a_page(pages: dict[str, Any]) -> None:
    output = {"output_type": "error", "ename": "KeyError", "evalue": "", "traceback": []}
    cell = {"cell_type": "code", "source": "x", "outputs": [output]}
    with pytest.raises(ValueError, match=r"bad.ipynb holds an error, KeyError: run `make notebooks`"):
        pages["page_of"]({"cells": [cell]}, "bad")


def test_the_sample_report_is_one_page_of_the_first_notebook(pages: dict[str, Any]) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    evaluation = FOLDER / "sample.json"
    assert evaluation.stat().st_size < 300_000
    assert PLACES.findall(evaluation.read_text(encoding="utf-8")) == []
    page = pages["sample_report"](evaluation)
    assert "<html" in page
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']https?://", page), "it opens offline"
