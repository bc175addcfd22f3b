"""Make the site's pages of the notebooks under docs/notebooks/ with their pictures, and the sample report.

MkDocs calls the functions `on_*` (see `hooks` in mkdocs.yml). Notebooks are read as they are, run or not: nothing is
executed here. Each becomes a Markdown page, so that code and tables look like those of all other pages, with its
pictures as files beside it and a link to the notebook itself.
"""

import base64
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FOLDER = "notebooks"
SAMPLE = "sample-report.html"
PLACE = "<!-- sample report -->"
"""Where the gallery's link to the sample report goes, whose file exists on the site alone."""
LINK = re.compile(r"\(((?:[\w-]+/)*[\w-]+)\.ipynb((?:#[\w-]+)?)\)")
Pictures = dict[str, bytes]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, its pictures, and the sample report."""
    docs = Path(config.docs_dir)
    for notebook in sorted((docs / FOLDER).glob("*.ipynb")):
        text, pictures = page_of(json.loads(notebook.read_text(encoding="utf-8")), notebook.stem)
        files.append(File.generated(config, f"{FOLDER}/{notebook.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=content))
    if (docs / FOLDER / "sample.json").exists():
        existing = files.get_file_from_path(SAMPLE)
        if existing is not None:  # that `make notebooks` wrote
            files.remove(existing)
        files.append(File.generated(config, SAMPLE, content=sample_report(docs / FOLDER / "sample.json")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to notebooks lead to their pages, and put the link to the sample report in its place."""
    if page.file.src_uri.startswith(f"{FOLDER}/"):
        return markdown  # the links of these are made already
    return LINK.sub(r"(\1.md\2)", markdown).replace(PLACE, f"[Open the sample report]({SAMPLE})")


def page_of(notebook: dict[str, Any], name: str) -> tuple[str, Pictures]:
    """Return a notebook as Markdown, and the pictures that it refers to by their names."""
    parts: list[str] = []
    pictures: Pictures = {}
    for cell in notebook["cells"]:
        text = joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(LINK.sub(r"(\1.md\2)", text))
            continue
        shell = text.startswith("!")
        parts.append(fenced(re.sub("^!", "", text, flags=re.MULTILINE), "sh" if shell else "python"))
        for output in cell["outputs"]:
            parts.append(_shown(output, name, pictures))
    parts.insert(1, f"This page is a notebook with its outputs: [{name}.ipynb]({name}.ipynb).")
    return "\n\n".join(part for part in parts if part) + "\n", pictures


def _shown(output: dict[str, Any], name: str, pictures: Pictures) -> str:
    """Return one output of a cell as Markdown, and keep its picture."""
    if output["output_type"] == "stream":
        return fenced(joined(output["text"]).rstrip(), "text")
    if output["output_type"] == "error":
        raise ValueError(f"{name}.ipynb holds an error, {output['ename']}: run `make notebooks`")
    data = output["data"]
    if "image/png" in data:
        file = f"{name}-{len(pictures) + 1}.png"
        pictures[file] = base64.b64decode(joined(data["image/png"]))
        return f"![The figure that this cell draws]({file})"
    if "text/markdown" in data:
        return LINK.sub(r"(\1.md\2)", joined(data["text/markdown"]).strip())
    return fenced(joined(data.get("text/plain", "")).rstrip(), "text")


def fenced(text: str, language: str) -> str:
    """Return a block of code, with a fence longer than any in it; nothing of nothing."""
    longest = max((len(each) for each in re.findall("`{3,}", text)), default=2)
    return f"{'`' * (longest + 1)}{language}\n{text}\n{'`' * (longest + 1)}" if text else ""


def joined(text: str | list[str]) -> str:
    """Return text that a notebook may hold as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def sample_report(evaluation: Path) -> str:
    """Return the page that `evaluation.report` writes of a saved evaluation."""
    import subspaces as ss

    with tempfile.TemporaryDirectory() as folder:
        return ss.Evaluation.load(evaluation).report(Path(folder) / SAMPLE).read_text(encoding="utf-8")
