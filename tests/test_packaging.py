"""What an installed package holds beside its modules."""

import tomllib
from pathlib import Path

import subspaces

PACKAGE = Path(subspaces.__file__).parent
PROJECT = PACKAGE.parent / "pyproject.toml"


def test_templates_scripts_and_styles_are_installed_with_the_package():
    patterns = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["package-data"]["subspaces"]
    installed = {file for pattern in patterns for file in PACKAGE.glob(pattern)}
    beside = {file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert len(beside) > 3
    assert beside <= installed
