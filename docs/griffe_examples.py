"""Let mkdocstrings show the `Example:` blocks of docstrings as code (see `extensions` in mkdocs.yml)."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Write `Example:` as `Examples:`, the only one of Google's two names for the section that Griffe reads."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of an object, as soon as it is read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
