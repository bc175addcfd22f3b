"""Whether run folders are as they were written: the call behind `subspaces check`."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

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
    if _begun(folder):
        yield folder, _complaints(folder)
        return
    runs = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name != TRUNKS and _begun(path)]
    for path in runs:
        yield path, _complaints(path)
    if (trunks := sorted((folder / TRUNKS).glob("*.safetensors"))) and runs:
        remedy = "remove it, and the trunk is trained again"
        checks = [partial(seals.read_tensors, path, path.name.partition("-")[0], remedy) for path in trunks]
        yield folder / TRUNKS, list(_wrong(checks))
    if not runs:
        yield folder, [f"{folder} is no run folder and holds none: expected one of a run, or of several"]


def _begun(folder: Path) -> bool:
    """Say whether there is more of a run in a folder than a lock, whatever of it is left."""
    return any((folder / name).exists() or (folder / name).is_symlink() for name in OF_A_RUN)


def _complaints(folder: Path) -> list[str]:
    """Return what is wrong with a run, unless another process works on it: then its files change under our eyes."""
    with suppress(OSError):  # a folder that cannot be written to has nobody at work
        try:
            if (holder := Run(folder, Recipe()).holder()) is not None:
                return [f"{folder} is in use by {holder}: check it when that has ended"]
        except RunError as error:
            return [f"{error}: check it when that has ended"]
    return list(_wrong(_of_run(folder)))


def _wrong(checks: Iterable[Callable[[], object]]) -> Iterator[str]:
    """Yield what each of some checks complains about, and why there are no more of them."""
    try:
        for check in checks:
            try:
                check()
            except (RunError, files.FileError, OSError) as error:
                yield str(error)
    except (RunError, OSError) as error:  # of a file that tells which others there are
        yield str(error)


def _of_run(folder: Path) -> Iterator[Callable[[], object]]:
    """Yield the checks of one run."""
    run = Run.open(folder)  # which tells what else there is
    yield run.starts
    yield run.log
    if (run.folder / "result.json").exists() and not run.finished:
        yield lambda: seals.there(run.family_file, "put it back")
        yield lambda: _without_family(run)
    if run.finished:
        yield partial(run.check_family, run.family_file)
        yield partial(run.check_family, run.trained_file)
    special = {"config.json", "environment.json", FAMILY, TRAINED, FILE}
    readers = {".json": seals.read_json, ".safetensors": seals.read_tensors}
    for path in sorted(run.folder.iterdir()):
        if path.name not in special and path.suffix in readers:
            yield partial(readers[path.suffix], path, run.recipe.key, "remove it")
    if (run.folder / FILE).exists():
        yield partial(measured_of, run)
    if (run.folder / measurements.FILE).exists():
        yield partial(measurements.read, run.folder / measurements.FILE)


def _without_family(run: Run) -> None:
    raise RunError(
        f"{run.folder} has a result without its networks: put {FAMILY} back to evaluate it, or train it anew"
    )


def measured_of(run: Run) -> Evaluation:
    """Return the evaluation of a run, which must be of this run and of the family that it has now."""
    try:
        found = Evaluation.load(run.folder)
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
