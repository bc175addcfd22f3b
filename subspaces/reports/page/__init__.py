"""The page: one HTML file that holds its numbers, pictures and scripts, and opens offline."""

import base64
import hashlib
import html
import json
import os
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from subspaces.core import files
from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.evaluation.cache import Measured
from subspaces.reports.answers import beside
from subspaces.reports.page.content import page
from subspaces.reports.reading import Group, Source, gather

SCRIPTS = (
    "base",
    "tables",
    "charts",
    "along",
    "reliability",
    "triangle",
    "explorer",
    "curves",
    "planes",
    "shift",
    "runs",
)


def write_report(sources: Source | Sequence[Source], path: str | os.PathLike[str]) -> Path:
    """Write the page of evaluated families on one data set, and return where it is.

    Args:
        sources: run folders, each with its `evaluation.json`, evaluations, or files of such.
        path: the HTML file; an older one is replaced. What `ensembles.json` holds of several runs together, in its
            folder or in that of the runs, is shown too.
    """
    groups = gather(sources)
    return write_page(groups, path, beside(groups, Path(path).parent))


def write_page(groups: Sequence[Group], path: str | os.PathLike[str], ensembles: Iterable[Measured]) -> Path:
    """Write the page of runs whose evaluations are at hand, and of ensembles of them, and return where it is."""
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        problem = f"{target} is a folder" if target.is_dir() else f"the folder {target.parent} does not exist"
        raise ArgumentError(f"{problem}: expected the name of an HTML file in an existing folder")
    charts = _plotly()
    files.write(target, _html(page(groups, ensembles), charts).encode())
    return target


def _plotly() -> str:
    """Return the text of plotly's script, without importing the package."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise MissingPackageError("the report needs plotly: pip install 'subspaces[report]'")
    return (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _html(content: dict[str, Any], charts: str) -> str:
    """Return the page; its policy lets it run these two scripts and load nothing."""
    here = resources.files(__name__)
    own = "\n".join((here / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    scripts = [_inline(charts), _inline(f'(() => {{\n"use strict";\n{own}\n}})();\n')]
    return Template((here / "template.html").read_text(encoding="utf-8")).substitute(
        policy=f"default-src 'none'; script-src {' '.join(map(_digest, scripts))}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        title=html.escape(content["title"]),
        what=content["what"],
        subtitle=html.escape(content["subtitle"]),
        summary="\n".join(_article(part) for part in content["summary"]),
        notes="\n".join(f"<li>{html.escape(note)}</li>" for note in content["notes"]),
        style=(here / "style.css").read_text(encoding="utf-8"),
        data=embedded(content),
        charts=scripts[0],
        script=scripts[1],
    )


def _article(part: dict[str, Any]) -> str:
    """Return what is said of one subspace."""
    figures = "".join(_figure(**{name: html.escape(text) for name, text in one.items()}) for one in part["figures"])
    paragraphs = "\n".join(f"<p><b>{html.escape(k)}.</b> {html.escape(v)}</p>" for k, v in part["paragraphs"])
    heading = f'<h3>{html.escape(part["label"])}</h3>\n<dl class="figures">{figures}</dl>'
    return f"<article>\n{heading}\n{paragraphs}\n</article>"


def _figure(name: str, value: str, against: str) -> str:
    return f'<div><dt>{name}</dt><dd>{value}</dd><dd class="against">{against}</dd></div>'


def _inline(script: str) -> str:
    """Return a script that cannot close the element it stands in: a string means the same with the backslash."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def embedded(content: Any) -> str:
    """Return JSON that means the same inside of an HTML element, whatever text is in it."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
