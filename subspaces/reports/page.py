"""The page: one HTML file that holds its numbers, pictures and scripts, and opens offline."""

import base64
import os
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from subspaces.core import storage
from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.evaluation.comparing import groups_of
from subspaces.evaluation.evaluation import Evaluation
from subspaces.reports import content, tables
from subspaces.reports.content import Page
from subspaces.reports.figures import listed

# in the order of the keys, which is that of the colours; a filter of jinja2 escapes what would end the element
JSON = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}


def write_report(evaluations: Evaluation | Iterable[Evaluation], path: str | os.PathLike[str]) -> Path:
    """Write the page of evaluations on one data set, and return where it is.

    Args:
        evaluations: of families and networks, and of ensembles of several runs.
        path: the HTML file; an older one is replaced.
    """
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        problem = f"{target} is a folder" if target.is_dir() else f"the folder {target.parent} does not exist"
        raise ArgumentError(f"{problem}: expected the name of an HTML file in an existing folder")
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingPackageError("the report needs plotly: pip install 'subspaces[report]'") from None
    page = Page.of(groups_of(listed(evaluations)))
    storage.write(target, _html(page, get_plotlyjs()).encode())
    return target


def _html(page: Page, library: str) -> str:
    """Return the page; its policy lets it load nothing."""
    import jinja2

    from subspaces.reports import charts

    here = resources.files(__package__) / "templates"
    html, style, script = ((here / name).read_text("utf-8") for name in ("page.html", "style.css", "page.js"))
    runs, shifted = page.walks(), tables.Shifted(page)
    drawn = charts.charts(page, shifted)
    data: dict[str, Any] = {
        "what": page.what,
        "classes": list(map(str, page.groups[0].evaluations[0].dataset["classes"])),
        "metrics": [
            {"label": content.capital(each.label), "percent": each.percent}
            | {"digits": page.places(each), "higher": not each.lower_is_better}
            for each in page.metrics
        ],
        "runs": runs,
        "template": charts.template(),
        "dark": charts.THEME,
        "charts": {name: {"selects": [s[0] for s in one.selects], "states": one.states} for name, one in drawn.items()},
    }
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = JSON
    return environment.from_string(html).render(
        page=page,
        charts=drawn,
        shifted=shifted,
        walkable=any(run["middle"] for run in runs),
        reliable=all(point["reliability"] for run in runs for point in run["points"]),
        content=content,
        tables=tables,
        points=base64.b64encode(tables.points(page).encode()).decode(),
        style=style,
        data=content.rounded(data),
        scripts=(library, script),
    )
