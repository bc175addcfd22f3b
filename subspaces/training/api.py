"""Train recipes: the call behind `subspaces train`."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from subspaces import data as datasets
from subspaces import memory, values
from subspaces.methods import METHODS
from subspaces.text import nearest
from subspaces.training import feasible
from subspaces.training import recipes as book
from subspaces.training.advice import against_memory
from subspaces.training.display import Mode, check_mode, display, reading
from subspaces.training.execution import Execution
from subspaces.training.images import identified, load_levels
from subspaces.training.loop import Held, train_runs
from subspaces.training.recipe import COMMON, Recipe, all_fields
from subspaces.training.runs import Run, RunError
from subspaces.training.sharing import Waiting
from subspaces.training.signals import stop_on_signals
from subspaces.training.trainer import LastTrainingError, TrainingError
from subspaces.training.turns import Failure


def train(
    recipe: Recipe | str | Sequence[Recipe | str],
    *,
    seeds: Sequence[int] | None = None,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "runs",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> list[Run]:
    """Train one recipe or several, for each of the seeds, and return the finished runs.

    A run lives in a folder below `out` that is named by its configuration. One that is finished is
    not trained again, and one that was interrupted continues. On a GPU as many runs as fit into its memory are trained
    at once, or `at_once` of them. Processes with runs in common share them: what one trains the others leave to it, and
    wait for at the end.

    Args:
        recipe: a `Recipe`, the name of one, or several of either.
        seeds: train each recipe once for each of these instead of its own seed.
        data: the folder with the data sets; by default `data`.
        out: the folder for the runs.
        show: "bar" for progress bars, "json" for a line per epoch on standard output, "quiet".
        tensorboard: also write the log for TensorBoard, where that is installed.
        changes: any field of `Recipe` (epochs=10) or `Execution` (device="cpu") to set.

    Example:
        >>> (run,) = ss.train("digits-line", epochs=20)
        >>> run.result["test_accuracy"]
    """
    check_mode(show)
    out = values.folder("out", out)
    data = None if data is None else values.folder("data", data)
    chosen, execution = configure(recipe, seeds, changes, data)
    feasible.check(chosen, data)
    return train_recipes(chosen, execution, data=data, out=out, show=show, tensorboard=tensorboard)


def train_recipes(
    recipes: Sequence[Recipe], execution: Execution, *, data: Path | None, out: Path, show: Mode, tensorboard: bool
) -> list[Run]:
    """Train recipes that are checked already, as `train` does, and return the finished runs."""
    execution = execution.resolved()
    runs = list({run.folder: run for run in (Run.under(out, one) for one in recipes)}.values())
    for run in runs:
        run.check()
    failures: list[Failure] = []

    def train_free(free: Sequence[Run], held: Held) -> None:
        for members in _groups(free):
            wanted = [run.recipe for run in members]
            with reading(show) as progress:
                dataset = load_levels(wanted, data, progress)
            feasible.check_loaded(wanted, next(iter(dataset.values())))
            try:
                _train_group(members, dataset, execution, show, tensorboard, held)
            except LastTrainingError:
                raise
            except (TrainingError, RunError) as error:  # the others can be trained nevertheless
                failures.append(error)

    _share(runs, train_free)
    for run in runs:
        run.tidy()
    if failures:
        raise failures[0]
    return runs


def _share(runs: Sequence[Run], train_free: Callable[[Sequence[Run], Held], None]) -> None:
    """Train all runs: what other processes train is put off, and waited for when nothing else is left."""
    wait = Waiting("training")
    free, held = _free(runs, wait)
    while free:
        train_free(free, held.__setitem__)
        free, held = _free(list(held), wait)


def _free(runs: Sequence[Run], wait: Waiting) -> tuple[list[Run], dict[Run, str]]:
    """Return what is not finished: the runs that nobody trains, and those that others do, if these are not all."""
    with stop_on_signals() as stop:
        while True:
            stop.heed()
            left = [run for run in runs if not run.finished]
            held = {run: holder for run in left if (holder := run.holder()) is not None}
            free = [run for run in left if run not in held]
            if free or not held:
                return free, held
            wait({run.folder.name: holder for run, holder in held.items()}, stop)


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs by what they must share to be trained at once: images, batches, and whether they have dropout.

    Those with dropout take no turns on a GPU, and would keep the others from it.
    """
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        one = run.recipe
        key = (*feasible.data_of(dataclasses.replace(one, label_noise=0.0)), one.batch, one.dropout > 0)
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _train_group(
    runs: Sequence[Run],
    dataset: Mapping[float, datasets.Dataset],
    execution: Execution,
    show: Mode,
    tensorboard: bool,
    held: Held,
) -> None:
    """Train runs with the same images and batches, but for those that others hold, of which `held` is told."""
    batches = -(-len(next(iter(dataset.values())).train) // runs[0].recipe.batch)
    with display(batches, show, tensorboard) as shown:
        try:
            train_runs(runs, dataset, execution, shown.report, shown.tick, shown.begin, held)
        except Exception as error:
            if isinstance(error, TrainingError) or not memory.ran_out(error):
                raise
            raise TrainingError(against_memory(runs[0].recipe, len(runs), execution, error)) from error


def _shares(recipes: Sequence[Recipe], changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes to each recipe: what only some methods use is for those, and leaves the others the same runs.

    A change that none of them uses goes to all, to be refused.
    """
    used = [_used(changes.get("method", one.method)) for one in recipes]
    some = set().union(*used)
    return [{name: value for name, value in changes.items() if name in each or name not in some} for each in used]


def _used(method: str) -> set[str]:
    """Return the fields that a method leaves free."""
    if method not in METHODS:
        return set(all_fields())  # the method is refused
    kind = METHODS[method]
    return {*COMMON, *kind.names()} - ({"schedule"} if kind.schedule else set())


def configure(
    recipe: Recipe | str | Sequence[Recipe | str],
    seeds: Sequence[int] | None,
    changes: dict[str, Any],
    data: str | os.PathLike[str] | None = None,
) -> tuple[list[Recipe], Execution]:
    """Return the recipes with all changes and seeds applied, and what was asked for of their execution.

    Those of the user's own images say which images `data` has.
    """
    several = values.all_of("train", recipe, (Recipe, str), "a Recipe, the name of one, or several of either")
    fields = set(all_fields())
    settings = {entry.name for entry in dataclasses.fields(Execution)}
    for name in changes:
        if name not in fields | settings:
            raise TypeError(f"{name}=…: no such setting; {nearest(name, sorted(fields | settings))}")
    execution = Execution(**{name: value for name, value in changes.items() if name in settings})
    execution.resolved()  # which refuses what this machine cannot do
    altered = {name: value for name, value in changes.items() if name in fields}
    if not isinstance(altered.get("method", ""), str):
        raise ValueError(f"method={values.shown(altered['method'])}: expected one of {', '.join(METHODS)}")
    found = [one if isinstance(one, Recipe) else book.find(one) for one in several]
    found = [dataclasses.replace(one, **own) for one, own in zip(found, _shares(found, altered), strict=True)]
    if altered.get("trunk") and not all(one.branch for one in found):
        raise ValueError(f"trunk={altered['trunk']}: expected a branch from 1 on with it; branch 0 is the run itself")
    if seeds is not None:
        seeds = values.several("seeds", seeds, "one or more of them, such as [0, 1]")
        if not seeds:
            raise ValueError(f"seeds={seeds!r}: expected one or more of them, such as [0, 1]")
        found = [dataclasses.replace(one, seed=seed) for one in found for seed in seeds]
    return identified(found, data), execution
