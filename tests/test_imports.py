"""The layers of the package: who may import whom, and who may print."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import subspaces

ROOT = Path(subspaces.__file__).parent
ORDER = (
    *(
        "importing",
        "version",
        "locks",
        "memory",
        "files",
        "values",
        "text",
        "shapes",
        "randomness",
        "streams",
        "layout",
        "points",
        "geometry",
        "nested",
        "initial",
        "template",
    ),
    *(
        "ensembles",
        "features",
        "subspace",
        "batchnorm",
        "storage",
        "networks",
        "data",
        "methods",
        "training",
        "evaluation",
    ),
    *("report", "studies", "demo", "cli", "__main__"),
)
FILES = sorted(ROOT.rglob("*.py"))


def place(file: Path) -> str:
    """Return the module or sub-package directly under `subspaces` that a file belongs to."""
    return file.relative_to(ROOT).with_suffix("").parts[0]


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the full name of everything a file of `package` imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported(file: Path) -> list[str]:
    return list(imports(ast.parse(file.read_text()), ".".join((ROOT.name, *file.relative_to(ROOT).parts[:-1]))))


def violations(where: str, names: list[str]) -> list[str]:
    """Return the imports that a file in the place `where` may not make."""
    wrong = []
    for name in names:
        top, _, rest = name.partition(".")
        if top == "subspaces":
            target = rest.partition(".")[0]
            known = target in ORDER and ORDER.index(target) < ORDER.index(where)
            if target != where and (not known or where == "networks"):
                wrong.append(name)
        elif top == "typer" and where != "cli":
            wrong.append(name)
    return wrong


modules = pytest.mark.parametrize(
    "file", [file for file in FILES if place(file) != "__init__"], ids=lambda file: str(file.relative_to(ROOT))
)


@modules
def test_every_module_has_its_place_and_imports_only_from_those_before_it(file):
    assert place(file) in ORDER, f"{file.name} is new: give it a place in ORDER"
    assert violations(place(file), imported(file)) == []


def prints(tree: ast.AST) -> list[int]:
    """Return the lines that call `print`, as a function or as a method of a console."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if "print" in (getattr(call, "id", None), getattr(call, "attr", None))]


@modules
def test_only_the_command_line_prints(file):
    lines = prints(ast.parse(file.read_text()))
    assert place(file) == "cli" or not lines, f"{file.name} prints on lines {lines}: only cli/ may"


def test_printing_is_noticed():
    assert prints(ast.parse("print(1)\nx = fingerprint(2)\nConsole().print(3)\nprint")) == [1, 3]


@pytest.mark.parametrize(
    ("where", "code", "expected"),
    [
        ("storage", "from subspaces.subspace import Subspace\nimport subspaces.shapes", []),
        ("shapes", "from subspaces.subspace import Subspace", ["subspaces.subspace.Subspace"]),
        ("shapes", "from subspaces import storage", ["subspaces.storage"]),
        ("shapes", "from . import storage", ["subspaces.storage"]),
        ("shapes", "def f():\n    import subspaces.cli", ["subspaces.cli"]),
        ("shapes", "import subspaces", ["subspaces"]),
        ("shapes", "from subspaces.unheard import of", ["subspaces.unheard.of"]),
        ("storage", "import typer", ["typer"]),
        ("cli", "import typer\nfrom subspaces import demo", []),
        ("networks", "from subspaces.networks import small\nimport torch", []),
        ("networks", "from subspaces.shapes import Line", ["subspaces.shapes.Line"]),
    ],
)
def test_the_rule_itself(where, code, expected):
    assert violations(where, list(imports(ast.parse(code), "subspaces"))) == expected


def test_relative_imports_in_a_sub_package_are_resolved():
    tree = ast.parse("from .small import a\nfrom ..shapes import b")
    assert list(imports(tree, "subspaces.networks")) == ["subspaces.networks.small.a", "subspaces.shapes.b"]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("subspaces", {"sklearn", "torchmetrics", "matplotlib", "plotly", "typer", "subspaces.training"}),
        ("subspaces.cli", {"sklearn", "torchmetrics", "matplotlib", "plotly", "torchvision", "timm"}),
    ],
)
def test_importing_leaves_heavy_dependencies_alone(module, heavy):
    code = f"import sys, {module}; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_all_lists_what_is_there_in_order():
    assert list(subspaces.__all__) == sorted(subspaces.__all__)
    assert all(hasattr(subspaces, name) for name in subspaces.__all__)
