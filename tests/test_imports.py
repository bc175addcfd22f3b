"""The layers of the package: who may import whom, and who may print."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import subspaces

ROOT = Path(subspaces.__file__).parent
BASE = {"errors", "text", "version"}  # which every folder may import
KNOWS = {
    "errors": set(),
    "text": {"errors"},
    "version": set(),
    "core": set(),
    "networks": set(),
    "images": set(),
    "evaluation": {"core", "networks", "images"},
    "evaluations": {"core", "evaluation", "reports", "experiments"},
    "reports": {"core", "evaluation"},
    "export": {"core", "networks", "images", "evaluation"},
    "integrations": {"core"},
    "experiments": {"core", "networks", "images", "evaluation", "reports", "export"},
    "cli": {"core", "networks", "images", "evaluation", "reports", "export", "experiments", "api", "evaluations"},
    "__main__": {"cli"},
    "api": {"core", "networks", "evaluation", "reports", "export", "experiments"},
}
"""What each folder may import beside itself and what all may."""
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
            if rest.partition(".")[0] not in KNOWS[where] | BASE | {where}:
                wrong.append(name)
        elif top == "argparse" and where != "cli":
            wrong.append(name)
    return wrong


modules = pytest.mark.parametrize(
    "file", [file for file in FILES if place(file) != "__init__"], ids=lambda file: str(file.relative_to(ROOT))
)


@modules
def test_every_module_has_its_place_and_imports_only_from_those_before_it(file):
    assert place(file) in KNOWS, f"{file.name} is new: say in KNOWS what it may import"
    assert violations(place(file), imported(file)) == []


def module(file: Path) -> str:
    """Return the name of a file's module."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join((ROOT.name, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def graph(files: dict[str, list[str]]) -> dict[str, set[str]]:
    """Return which modules each module imports, of those that are there: `from a import b` is of `a.b` if there is one.

    That a module's packages are imported before it is left out: a package lists its modules, and they do not know it.
    """
    found: dict[str, set[str]] = {}
    for name, imported in files.items():
        nearest = ({each, each.rpartition(".")[0]} & files.keys() for each in imported)
        found[name] = {max(each, key=len) for each in nearest if each} - {name}
    return found


def cycles(edges: dict[str, set[str]]) -> list[str]:
    """Return the modules that import themselves through others, after all that are free of it are taken away."""
    left = {name: set(others) for name, others in edges.items()}
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    while last := [name for name in left if not any(name in others for others in left.values())]:
        for name in last:
            del left[name]
    return sorted(left)


def test_no_module_imports_itself_through_others() -> None:
    """Inside functions and for type checkers too; only the package itself, which imports lazily, is left out."""
    files = {module(file): imported(file) for file in FILES if file.parent != ROOT or file.name != "__init__.py"}
    edges = graph(files)
    assert sum(map(len, edges.values())) > 500
    assert cycles(edges) == []


def prints(tree: ast.AST) -> list[int]:
    """Return the lines that call `print`, as a function or as a method of a console."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if "print" in (getattr(call, "id", None), getattr(call, "attr", None))]


@modules
def test_only_the_command_line_prints(file):
    lines = prints(ast.parse(file.read_text()))
    assert place(file) == "cli" or not lines, f"{file.name} prints on lines {lines}: only cli/ may"


@pytest.mark.parametrize(
    ("where", "code", "expected"),
    [
        ("evaluation", "from subspaces.core.family import Subspace\nimport subspaces.core.shapes", []),
        ("core", "from subspaces.evaluation import tasks", ["subspaces.evaluation.tasks"]),
        ("core", "from subspaces import cli", ["subspaces.cli"]),
        ("core", "def f():\n    from . import cli", ["subspaces.cli"]),
        ("core", "import subspaces", ["subspaces"]),
        ("core", "import argparse", ["argparse"]),
        ("cli", "import argparse\nfrom subspaces.experiments import demo", []),
    ],
)
def test_the_rule_itself(where, code, expected):
    assert violations(where, list(imports(ast.parse(code), "subspaces"))) == expected


LATER = {"sklearn", "torchmetrics", "matplotlib", "plotly", "torchvision", "timm", "ray", "torch._dynamo"}
HEAVY = {"subspaces": LATER | {"lightning", "subspaces.experiments.training"}, "subspaces.cli": LATER}


def test_importing_leaves_heavy_dependencies_alone():
    each = [f"import sys, {module}; print(*sorted({heavy} & set(sys.modules)))" for module, heavy in HEAVY.items()]
    done = subprocess.run([sys.executable, "-c", "\n".join(each)], capture_output=True, text=True, check=True)
    assert done.stdout == "\n\n"


def test_all_lists_what_is_there_in_order():
    assert list(subspaces.__all__) == sorted(subspaces.__all__)
    assert all(hasattr(subspaces, name) for name in subspaces.__all__)


EVALUATED = """
import sys, torch
import subspaces as ss
batches = [(torch.randn(8, 3), torch.randint(2, (8,)))] * 2
family = ss.Subspace(lambda: torch.nn.Linear(3, 2), ss.Line())
found = ss.evaluate(family, test=batches, validation=batches, progress=False, corruptions={"same": batches})
found["midpoint"].nll, found.frame, found.best(), found.shifted("midpoint", "same")
ours = [name for name in sys.modules if name.startswith("subspaces.")]
print(len(ours), [name for name in ours if name.split(".")[1] in ("experiments", "reports", "cli")])
"""


def test_evaluating_a_family_imports_no_experiments():
    done = subprocess.run([sys.executable, "-c", EVALUATED], capture_output=True, text=True, check=True)
    count, wrong = done.stdout.split(" ", 1)
    assert wrong == "[]\n"
    assert int(count) < 110
