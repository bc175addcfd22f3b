"""Whether run folders are as they were written: the call behind `subspaces check`."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from subspaces.core import checks, storage
from subspaces.evaluation.evaluation import FILE
from subspaces.evaluation.files import MEASUREMENTS, read_lines, read_measurements
from subspaces.experiments.opening import measured_of
from subspaces.experiments.training import run_files
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import FAMILY, FILES, RESULT, STATE, TRAINED, Run, RunError

READERS: dict[str, Callable[[Path, str], Any]] = {
    ".json": lambda path, remedy: run_files.read_json(path, None, remedy),
    ".jsonl": read_lines,
    ".safetensors": lambda path, remedy: run_files.read_tensors(path, None, remedy),
}
Folder = str | os.PathLike[str]


def check(runs: Folder | Iterable[Folder]) -> list[str]:
    """Return what is wrong with run folders, or folders of such, a sentence each; nothing is wrong if it is empty.

    Example:
        >>> ss.check("runs")
        []
    """
    several = checks.all_of("check", runs, (str, os.PathLike), "a run folder, or several of them")
    return [problem for folder in several for _, problems in checked(Path(folder)) for problem in problems]


def checked(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield every run in a folder, or that it is, and what the runs share, each with what is wrong with it."""
    places = (folder, *sorted(folder.iterdir())) if folder.is_dir() else ()
    runs = [path for path in places if path.is_dir() and any(os.path.lexists(path / name) for name in FILES)]
    if not runs:
        what = "run folder and holds none" if places else "folder"
        yield folder, [f"{folder} is no {what}: expected one of a run, or of several"]
    for path in runs[:1] if folder in runs else runs:
        yield path, _problems_of_run(path)


def _problems_of_run(folder: Path) -> list[str]:
    """Return what is wrong with a run, unless another process works on it: then its files change under our eyes."""
    with suppress(OSError):  # a folder that cannot be written to has nobody at work
        try:
            holder = Run(folder, Recipe()).holder()
        except RunError as error:  # this process
            return [f"{error}: check it when that has ended"]
        if holder is not None:
            return [f"{folder} is in use by {holder}: check it when that has ended"]
    try:
        run = Run.open(folder)
    except (RunError, OSError) as error:
        return [str(error)]
    found: dict[str, None] = {}  # each once
    for check in _checks(run):
        try:
            check()
        except (RunError, storage.FileError, OSError) as error:
            found[str(error)] = None
    if (folder / RESULT).exists() and not run.finished:
        found[f"{folder} has a result without its networks: put {FAMILY} back to evaluate it, or train it anew"] = None
    return list(found)


def _checks(run: Run) -> Iterator[Callable[[], object]]:
    """Yield the checks of one run: its files, and whether they belong together."""
    yield from (run.starts, run.log)
    if run.finished:
        yield from (partial(run.check_family, path) for path in (run.family_file, run.trained_file))
    if (run.folder / FILE).exists():
        yield partial(measured_of, run)
    if (run.folder / MEASUREMENTS).exists():
        yield partial(read_measurements, run.folder / MEASUREMENTS)
    known = {*FILES, TRAINED, FILE, MEASUREMENTS} - {STATE}
    for path in sorted(run.folder.iterdir()):
        if path.suffix in READERS and path.name not in known:
            yield partial(READERS[path.suffix], path, "remove it")
