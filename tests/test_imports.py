"""The package: who may import whom, who may print, and what is installed beside its modules."""

import ast
import graphlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

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


def test_every_module_has_its_place_and_imports_only_from_those_before_it() -> None:
    files = [file for file in FILES if place(file) != "__init__"]
    assert {place(file) for file in files} == set(KNOWS), "say in KNOWS what a new place may import"
    assert {str(file): wrong for file in files if (wrong := violations(place(file), imported(file)))} == {}


def module(file: Path) -> str:
    """Return the name of a file's module."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join((ROOT.name, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def test_no_module_imports_itself_through_others() -> None:
    """Inside functions and for type checkers too; only the package itself, which imports lazily, is left out.

    `from a import b` is of `a.b` if there is one. That a module's packages are imported before it is left out.
    """
    files = {module(file): imported(file) for file in FILES if file.parent != ROOT or file.name != "__init__.py"}
    edges: dict[str, set[str]] = {}
    for name, names in files.items():
        nearest = ({each, each.rpartition(".")[0]} & files.keys() for each in names)
        edges[name] = {max(each, key=len) for each in nearest if each} - {name}
    assert sum(map(len, edges.values())) > 500
    graphlib.TopologicalSorter(edges).prepare()  # or a CycleError that names them


def prints(file: Path) -> list[int]:
    """Return the lines that call `print`, as a function or as a method of a console."""
    calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if "print" in (getattr(call, "id", None), getattr(call, "attr", None))]


def test_only_the_command_line_prints() -> None:
    found = {place(file): lines for file in FILES if (lines := prints(file))}
    assert set(found) == {"cli"}


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
found["midpoint"].nll, found.frame, found.best(), found.row("midpoint", "same")
ours = [name for name in sys.modules if name.startswith("subspaces.")]
print(len(ours), [name for name in ours if name.split(".")[1] in ("experiments", "reports", "cli")])
"""


def test_evaluating_a_family_imports_no_experiments():
    done = subprocess.run([sys.executable, "-c", EVALUATED], capture_output=True, text=True, check=True)
    count, wrong = done.stdout.split(" ", 1)
    assert wrong == "[]\n"
    assert int(count) < 110


def test_templates_scripts_and_styles_are_installed_with_the_package():
    tool = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]
    patterns = tool["setuptools"]["package-data"]["subspaces"]
    installed = {file for pattern in patterns for file in ROOT.glob(pattern)}
    beside = {file for file in ROOT.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert len(beside) > 3
    assert beside <= installed
