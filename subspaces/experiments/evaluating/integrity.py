"""Whether run folders are as they were written: the call behind `subspaces check`."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from subspaces.core import checks, files
from subspaces.errors import ArgumentError
from subspaces.evaluation import measurements
from subspaces.evaluation.evaluation import FILE, REMEDY, Evaluation
from subspaces.experiments.training import seals
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import FAMILY, LOG, STATE, TRAINED, Run, RunError

TRUNKS = ".trunks"
OF_A_RUN = ("config.json", "environment.json", LOG, STATE, FAMILY, "result.json")
Folder = str | os.PathLike[str]


def check(runs: Folder | Iterable[Folder]) -> list[str]:
    """Return what is wrong with run folders, a sentence each; nothing is wrong if it is empty.

    Args:
        runs: a run folder, a folder of run folders, or several of either.

    Example:
        >>> ss.check("runs")
        []
    """
    several = checks.all_of("check", runs, (str, os.PathLike), "a run folder, or several of them")
    return [problem for folder in several for _, problems in checked(Path(folder)) for problem in problems]


def checked(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield every run in a folder, or that it is, and what the runs share, each with what is wrong with it."""
    if not folder.is_dir():
        yield folder, [f"{folder} is no folder: expected one of a run, or of several"]
        return
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name != TRUNKS and _begun(path)]
    runs = [folder] if _begun(folder) else inside
    for path in runs:
        yield path, _in_use(path) or _complaints(path)
    if (trunks := sorted((folder / TRUNKS).glob("*.safetensors"))) and runs and runs != [folder]:
        problems: list[str] = []
        for path in trunks:
            key = path.name.partition("-")[0]
            _attempt(problems, seals.read_tensors, path, key, "remove it, and the trunk is trained again")
        yield folder / TRUNKS, problems
    if not runs:
        yield folder, [f"{folder} is no run folder and holds none: expected one of a run, or of several"]


def _begun(folder: Path) -> bool:
    return any((folder / name).exists() or (folder / name).is_symlink() for name in OF_A_RUN)


def _in_use(folder: Path) -> list[str]:
    """Return a sentence if another process is writing to a run."""
    try:
        holder = Run(folder, Recipe()).holder()
    except RunError as error:
        return [f"{error}: check it when that has ended"]
    except OSError:  # a folder that cannot be written to is not in use
        return []
    return [] if holder is None else [f"{folder} is in use by {holder}: check it when that has ended"]


def _attempt(problems: list[str], check: Callable[..., object], *args: Any) -> None:
    try:
        check(*args)
    except (RunError, files.FileError, OSError) as error:
        problems.append(str(error))


def _complaints(folder: Path) -> list[str]:
    """Return what is wrong with the files of a run."""
    problems: list[str] = []
    try:
        run = Run.open(folder)  # which tells what else there is
        _attempt(problems, run.starts)
        _attempt(problems, run.log)
        if run.finished:
            _attempt(problems, run.check_family, run.family_file)
            _attempt(problems, run.check_family, run.trained_file)
        elif (folder / "result.json").exists():
            _attempt(problems, seals.there, run.family_file, "put it back")
            lacking = f"put {FAMILY} back to evaluate it, or train it anew"
            problems.append(f"{folder} has a result without its networks: {lacking}")
        special = {"config.json", "environment.json", FAMILY, TRAINED, FILE}
        readers = {".json": seals.read_json, ".safetensors": seals.read_tensors}
        for path in sorted(folder.iterdir()):
            if path.name not in special and path.suffix in readers:
                _attempt(problems, readers[path.suffix], path, run.recipe.key, "remove it")
        if (folder / FILE).exists():
            _attempt(problems, measured_of, run)
        if (folder / measurements.FILE).exists():
            _attempt(problems, measurements.read, folder / measurements.FILE)
    except (RunError, OSError) as error:  # of a file that tells which others there are
        problems.append(str(error))
    return problems


def measured_of(run: Run) -> Evaluation:
    """Return the evaluation of a run, which must be of this run and of the family that it has now."""
    try:
        found = Evaluation.read(run.folder)
        same = found.recipe is not None and Recipe.from_dict(found.recipe).key == run.recipe.key
    except files.FileError as error:
        raise RunError(str(error)) from None
    except ArgumentError as error:
        raise RunError(f"{run.folder / FILE} is damaged ({error}): {REMEDY}") from None
    if not same:
        raise RunError(f"{run.folder} was evaluated with another configuration: remove its {FILE}")
    if run.finished and found.family != run.family_checksum:
        raise RunError(f"{run.folder} was trained anew since it was evaluated: evaluate it again")
    return found
