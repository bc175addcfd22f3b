"""The model card beside an export, from the template `card.md.jinja`.

Names come from files and folders of anybody, so whatever the template prints is escaped: neither Markdown nor HTML has
a meaning in it. What is code, or was escaped before, is `Markup`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subspaces.core.batchnorm import tracked
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.selection.selection import shown
from subspaces.export.making import Made
from subspaces.text import number, printable


def card(made: Made, file: Path, format: str, checks: Sequence[str]) -> str:
    """Return the card of an export as Markdown."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def as_text(value: Any) -> Any:
        return value if isinstance(value, Markup) else _escaped(str(value))

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=as_text,
    )
    environment.filters |= {
        "alpha": shown,
        "thousands": lambda value: f"{value:,}",
        "quoted": lambda value: Markup(_quoted(value)),
        "printable": lambda value: Markup(printable(value)),
        "word": number,
    }
    weights = format == "safetensors"
    module = made.network if weights or made.program is None else made.program.network
    family = made.network if weights and isinstance(made.network, Subspace) else None
    return environment.get_template("card.md.jinja").render(
        about=made.about,
        made=made,
        file=file.name,
        format=format,
        checks=checks,
        types=sorted({str(each.dtype).removeprefix("torch.") for each in module.parameters()}),
        count=len(made.network.members) if isinstance(made.network, Ensemble) else 1,
        keyword=made.program is not None and made.program.inputs.keyword,
        uncalibrated=family is not None and bool(tracked(family.template)),
    )


def _escaped(text: str) -> str:
    """Return text as a line of Markdown that shows it as it is, with nothing of it as Markdown, HTML or a link."""
    line = printable(re.sub(r"\s+", " ", text))
    escaped = re.sub(r"[\\`*_\[\]|~]", r"\\\g<0>", line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return re.sub(r"://|www\.", lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", escaped)


def _quoted(text: str) -> str:
    """Return text as Python writes it, in double quotes."""
    quoted = repr(text)
    return quoted if '"' in text else f'"{quoted[1:-1]}"'
