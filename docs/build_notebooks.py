"""Make the notebooks under docs/notebooks/ from their sources and run them, as `make notebooks` does.

A source is a Python file in the percent format: a cell begins with a line `# %%`, text with `# %% [markdown]`, and
commands of a shell with `# %% [sh]`; the lines of both are comments. The cell with `tags=["gallery"]` draws the picture
of the gallery. Each notebook runs in an empty folder, and whatever it writes to standard error stops the build.
"""

import argparse
import ast
import base64
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import v4
from traitlets.config import Config

FOLDER = Path(__file__).parent / "notebooks"
NAMES = ("line", "calibration", "landscape", "lora", "export")
"""The notebooks in the order in which they are best read."""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
BEGIN = re.compile(r"^# %%(?: \[(markdown|sh)\])?(?: tags=(\[.*\]))?$")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
REWRITTEN = "\x1b[2K"  # in a line that a program writes over
SAMPLED = "line"
"""The notebook whose evaluation becomes the sample report when the site is built."""
LONGEST = 1800  # seconds that a cell may take, on a machine that is busy


class NotebookError(Exception):
    """A source that is no notebook, or a notebook that did not run as it should."""


def notebook_of(source: Path) -> Any:
    """Return the notebook of a source, not yet run: its cells have the same ids each time."""
    cells: list[tuple[str, list[str], list[str]]] = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# %%"):
            if (match := BEGIN.match(line)) is None:
                raise NotebookError(f"{source.name}:{number}: {line!r}, expected '# %%', [markdown] or [sh], tags=[…]")
            cells.append((match[1] or "code", ast.literal_eval(match[2] or "[]"), []))
        elif cells:
            cells[-1][2].append(line)
        elif line.strip():
            raise NotebookError(f"{source.name}:{number} is before the first cell: expected a line '# %%'")
    found = v4.new_notebook(metadata={"kernelspec": KERNEL})
    for number, (kind, tags, lines) in enumerate(cells):
        text = "\n".join(lines if kind == "code" else [re.sub("^# ?", "", line) for line in lines]).strip()
        if kind == "sh":
            text = "\n".join(f"!{line}" for line in text.splitlines())
        make: Any = v4.new_markdown_cell if kind == "markdown" else v4.new_code_cell
        found.cells.append(make(text, id=f"cell-{number}", metadata={"tags": tags} if tags else {}))
    return found


def run(notebook: Any, kept: str | None = None) -> bytes | None:
    """Run all cells of a notebook in an empty folder, in place; return the file there that is named `kept`."""
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    paths = os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PATH": commands, "PYTHONPATH": paths, "COLUMNS": "100"}
    environment["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm's, where there are no widgets
    with tempfile.TemporaryDirectory() as sockets, tempfile.TemporaryDirectory() as folder:
        # files as sockets: no other process can take a port in between, or listen to it
        kernel = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        resources = {"metadata": {"path": folder}}
        options: dict[str, Any] = {"timeout": LONGEST, "record_timing": False, "resources": resources}
        NotebookClient(notebook, config=kernel, kernel_name=KERNEL["name"], **options).execute(env=environment)
        file = None if kept is None else (Path(folder) / kept).read_bytes()
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            if output.get("name") == "stderr":
                raise NotebookError(f"{cell['id']} writes to standard error, expected nothing there:\n{output['text']}")
        join_streams(cell)
    return file


def join_streams(cell: Any) -> None:
    """Make one text of what a cell prints, without the colours and progress bars of a terminal."""
    streams = [output for output in cell.get("outputs", []) if output["output_type"] == "stream"]
    if streams:
        lines = "".join(output["text"] for output in streams).splitlines()
        kept = [ESCAPE.sub("", line).rstrip() for line in lines if REWRITTEN not in line]
        streams[0]["text"] = "\n".join(kept).strip("\n") + "\n"
        cell["outputs"] = [output for output in cell["outputs"] if all(output is not each for each in streams[1:])]


def picture(notebook: Any, name: str) -> bytes:
    """Return the picture of the gallery as a PNG file."""
    for cell in notebook.cells:
        if "gallery" in cell.metadata.get("tags", []):
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output["data"]["image/png"])
    raise NotebookError(f'{name} has no picture in a cell with tags=["gallery"]')


def build(name: str, folder: Path) -> None:
    """Write NAME.ipynb, run, and images/NAME.png into a folder; of the first notebook also its evaluation."""
    began = time.monotonic()
    (folder / "images").mkdir(parents=True, exist_ok=True)
    notebook = notebook_of(FOLDER / f"{name}.py")
    evaluation = run(notebook, "evaluation.json" if name == SAMPLED else None)
    if evaluation is not None:
        (folder / "sample.json").write_bytes(evaluation)
    (folder / "images" / f"{name}.png").write_bytes(picture(notebook, name))
    nbformat.validate(notebook)
    target = folder / f"{name}.ipynb"
    nbformat.write(notebook, target)
    print(f"{target.name}: {time.monotonic() - began:.0f} s, {target.stat().st_size / 1000:.0f} kB")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the notebooks that are named, by default all."""
    parser = argparse.ArgumentParser(description="Run the notebooks and keep their outputs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"notebooks to run, of {', '.join(NAMES)}")
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder that they are written to")
    options = parser.parse_args(arguments)
    for name in options.names or NAMES:
        if name not in NAMES:
            parser.error(f"no notebook {name!r}: expected some of {', '.join(NAMES)}")
        build(name, options.out)


if __name__ == "__main__":
    main()
