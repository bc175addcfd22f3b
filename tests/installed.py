"""Use the installed package as a user does who asked for no extra: run with `python -I tests/installed.py README`.

Fails where the package of an extra can be imported, or where the package is not the one installed beside the
interpreter. `SEEDS EPOCHS` after the README make the demo smaller than it is.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MODULES = {"pillow": "PIL", "pyyaml": "yaml", "pytest-timeout": "pytest_timeout", "pytest-xdist": "xdist"}
"""What is imported under another name than it is installed by."""


def required(package: str, extra: bool = False) -> set[str]:
    """Return the names of what an installed package needs, or of what it needs for its extras."""
    try:
        wanted = metadata.requires(package) or []
    except metadata.PackageNotFoundError:  # of another platform
        return set()
    named = [re.split(r"[^\w.-]", each, maxsplit=1)[0].lower() for each in wanted if ("extra ==" in each) == extra]
    return {name.replace("_", "-") for name in named} - {"subspaces"}


def extras() -> set[str]:
    """Return what the package needs for its extras alone, and not for anything that it needs in any case."""
    known, left = set[str](), {"subspaces"}
    while left:
        left = {name for each in left for name in required(each)} - known
        known |= left
    return required("subspaces", extra=True) - known


def check_isolation() -> None:
    """Fail if the package of an extra is there, or if the package is not the installed one."""
    import subspaces

    missing = {"matplotlib", "plotly", "onnx", "ray", "transformers", "lightning", "peft", "pillow", "pytest"}
    assert missing <= extras(), f"the metadata of the package do not name {missing - extras()} as an extra's"
    found = [name for name in extras() if find_spec(MODULES.get(name, name.replace("-", "_")))]
    assert not found, f"installed without extras, but {sorted(found)} can be imported"
    where = Path(subspaces.__file__).resolve()
    assert Path(sys.prefix).resolve() in where.parents, f"{where} is not the installed package"
    assert (resources.files("subspaces") / "py.typed").is_file()


def ten_lines(readme: Path) -> None:
    """Run the first block of code of the README, on random data."""
    import torch
    from torch import nn

    def make_net() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    loader = [(torch.randn(16, 5), torch.randint(3, (16,))) for _ in range(4)]
    names: dict[str, Any] = {"make_net": make_net, "loader": loader}
    exec(re.findall(r"```python\n(.*?)```", readme.read_text("utf-8"), re.DOTALL)[0], names)
    assert names["pair"](torch.randn(4, 5)).shape == (4, 3)
    assert Path("family.safetensors").stat().st_size > 0


def commands() -> list[list[str]]:
    """Return all commands, and the commands of these."""
    from subspaces.cli import build

    found, parsers = [], [([], build())]
    while parsers:
        words, parser = parsers.pop()
        found.append(words)
        parsers += [([*words, name], each) for name, each in parser.commands.items()]
    return found


def helps() -> int:
    """Ask every command for its help, and return how many there are."""
    from subspaces.cli import main

    every = commands()
    for words in every:
        shown, code = io.StringIO(), None
        with contextlib.redirect_stdout(shown):
            try:
                main([*words, "--help"])
            except SystemExit as ended:
                code = ended.code
        assert code == 0, f"{words} --help ended with {code}"
        assert shown.getvalue().startswith("usage:"), f"{words} --help printed {shown.getvalue()[:80]!r}"
    return len(every)


def demo(options: list[str]) -> str:
    """Run the demo by the installed command, and return what it printed."""
    command = Path(sys.executable).with_name("subspaces")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([command, "demo", *options], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one network stopped early" in done.stdout
    assert done.stdout.endswith("pip install 'subspaces[report]', then the same command again\n"), done.stdout
    return done.stdout


def main(readme: str, *size: str) -> None:
    """Do all of it in an empty folder."""
    page = Path(readme).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_isolation()
        ten_lines(page)
        print(f"{helps()} helps")
        print(demo([word for pair in zip(("--seeds", "--epochs"), size, strict=False) for word in pair]), end="")
        os.chdir("/")


if __name__ == "__main__":
    main(*sys.argv[1:])
