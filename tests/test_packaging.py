"""What is said about versions, and the files that machines of others run: they agree with the package."""

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import subspaces

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
TESTED = ("figures", "hub", "images", "lightning", "onnx", "peft", "report", "transformers")
"""The extras whose lowest versions are tested: ray, timm and torchvision are as large as all others together."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def bounds(requirements: list[str]) -> dict[str, Version]:
    """Return the lower bound of each requirement."""
    found = {}
    for each in map(Requirement, requirements):
        (bound,) = each.specifier
        assert bound.operator == ">=", f"{each}: expected a lower bound alone"
        found[each.name] = Version(bound.version)
    return found


def pinned(name: str) -> dict[str, Version]:
    """Return the versions of a file of constraints."""
    lines = [line for line in text_of(name).splitlines() if not line.startswith("#")]
    return {package.lower(): Version(version) for package, version in (line.split("==") for line in lines)}


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", text_of("Makefile"), re.MULTILINE))


# Versions


def test_the_lowest_constraints_are_the_bounds_of_the_project() -> None:
    stated = bounds([*PROJECT["dependencies"], *(each for extra in TESTED for each in EXTRAS[extra])])
    lowest, newest = pinned("constraints-lowest.txt"), pinned("constraints.txt")
    tools = bounds(EXTRAS["test"]).keys() & lowest.keys()
    assert {name: lowest[name] for name in tools} == {name: newest[name] for name in tools}
    assert lowest.pop("torch") == newest["torch"]
    assert {name: version for name, version in lowest.items() if name not in tools} == {
        name: version for name, version in stated.items() if name != "torch"
    }


def test_the_newest_constraints_are_above_the_bounds_and_sorted() -> None:
    named = [each for extra in EXTRAS.values() for each in extra if not each.startswith("subspaces[")]
    newest = pinned("constraints.txt")
    bound = bounds([*PROJECT["dependencies"], *named])
    assert {name for name in bound if newest.get(name, Version("1000")) < bound[name]} == set()
    assert bound.keys() - newest.keys() == {"timm", "torchvision"}  # which no test needs


def test_the_bound_of_torch_is_that_of_the_newest_part_that_is_used() -> None:
    page = text_of("docs/install.md")
    parts = re.findall(r"^\| `(torch\.[\w.]+).*? \| (\d\.\d+) \|", page, re.MULTILINE)
    assert len(parts) > 10
    assert bounds(PROJECT["dependencies"])["torch"] == max(Version(since) for _, since in parts)
    code = "\n".join(file.read_text("utf-8") for file in (ROOT / "subspaces").rglob("*.py"))
    for name, _ in parts:
        words = name.split(".")
        assert words[-1] in code, f"{name} is used no more"
        found: Any = importlib.import_module(name.partition(".")[0])
        for at, word in enumerate(words[1:], 2):
            found = getattr(found, word, None) or importlib.import_module(".".join(words[:at]))


def test_the_page_names_every_extra_but_those_of_developers() -> None:
    table = text_of("docs/install.md").partition("| extra |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(EXTRAS) - {"test", "dev", "docs"}


# What other machines run

YAML = sorted(str(file.relative_to(ROOT)) for file in (ROOT / ".github").rglob("*.yml"))
YAML += [".pre-commit-config.yaml", "CITATION.cff"]


def load(name: str) -> Any:
    if not (ROOT / name).exists():
        pytest.skip(f"{name} is not part of the source distribution")
    return yaml.safe_load(text_of(name))


@pytest.mark.parametrize("name", YAML)
def test_yaml_can_be_read_and_workflows_call_targets_that_exist(name: str) -> None:
    found = load(name)
    assert isinstance(found, dict)
    if "workflows/" not in name:
        return
    assert set(found) >= {"name", True, "jobs"}  # `on` is a truth value in YAML 1.1
    steps = [step for job in found["jobs"].values() for step in job["steps"]]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    called = {target for step in steps for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    assert called <= targets()
    if name.endswith("/tests.yml"):
        assert called >= {"test", "test-lowest", "demo", "wheel-test"}


def test_the_tests_run_on_every_version_of_python_that_is_named() -> None:
    matrix = load(".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    known = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in PROJECT["classifiers"]]
    assert matrix == [each[1] for each in known if each]
    assert PROJECT["requires-python"] == f">={matrix[0]}"


def test_the_citation_is_of_this_version() -> None:
    citation = load("CITATION.cff")
    assert (citation["version"], citation["license"]) == (subspaces.__version__, PROJECT["license"])


def test_the_hooks_before_a_commit_call_tools_of_the_development_environment() -> None:
    hooks = [hook for repo in load(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert tools == {"ruff", "mypy"} <= bounds([each for each in EXTRAS["dev"] if "[" not in each]).keys()


def test_every_target_of_the_makefile_is_declared_and_explained() -> None:
    makefile = text_of("Makefile")
    declared = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert declared is not None
    assert set(declared[1].split()) == targets()
    assert set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)) == targets()
