"""What other installed packages add to this one: methods, recipes, metrics, answers, tasks.

A package names the module that adds them in its pyproject.toml, and the command line imports it before all else:

    [project.entry-points.subspaces]
    mine = "my_package.my_methods"
"""

import sys
from importlib.metadata import EntryPoint, entry_points

GROUP = "subspaces"


def load() -> None:
    """Import what installed packages add; one that fails is an error of one line."""
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            sys.exit(f"error: {_package(point)} cannot add to subspaces: {said}; mend it, or uninstall it")


def _package(point: EntryPoint) -> str:
    """Return which package an entry point is of."""
    owner = point.dist.name if point.dist is not None else "a package"
    return f"{owner} ({point.name} = {point.value!r})"
