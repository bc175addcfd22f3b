"""Train recipes: the call behind `subspaces train`."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training import cluster, feasible
from subspaces.experiments.training import recipes as book
from subspaces.experiments.training.display import Mode, check_mode, display
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.groups import groups, read_group, train_group
from subspaces.experiments.training.images import identified
from subspaces.experiments.training.loop import Held
from subspaces.experiments.training.recipe import COMMON, Recipe, all_fields
from subspaces.experiments.training.runs import Run, RunError, free
from subspaces.experiments.training.signals import stop_on_signals
from subspaces.experiments.training.trainer import LastTrainingError, TrainingError
from subspaces.experiments.training.turns import Failure
from subspaces.experiments.training.world import World, joined, placed, started
from subspaces.text import nearest


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
    at once, or `at_once` of them; with `ray` the machines of a cluster train them. Processes with runs in common share
    them: what one trains the others leave to it, and wait for at the end.

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
    out = checks.folder("out", out)
    data = None if data is None else checks.folder("data", data)
    chosen, execution = configure(recipe, seeds, changes, data)
    feasible.check(chosen, data)
    return train_recipes(chosen, execution, data=data, out=out, show=show, tensorboard=tensorboard)


def train_recipes(
    recipes: Sequence[Recipe],
    execution: Execution,
    *,
    data: Path | None,
    out: Path,
    show: Mode,
    tensorboard: bool,
    then: cluster.Then | None = None,
) -> list[Run]:
    """Train recipes that are checked already, as `train` does, and return the finished runs.

    `then` is what a machine of a cluster does with each run that it has trained.
    """
    runs = list({run.folder: run for run in (Run.under(out, one) for one in recipes)}.values())
    if execution.ray is None or all(run.finished for run in runs):
        failures = _train_together(runs, execution, data, show, tensorboard)
    else:
        _check(runs)
        where: dict[str, Any] = {"data": data, "out": out, "show": show, "tensorboard": tensorboard, "then": then}
        failures = _share(runs, lambda free, _: cluster.train(free, train_recipes, execution, **where))
    if started()[0] == 0:
        for run in runs:
            run.tidy()
    if failures:
        raise failures[0]
    return runs


def _check(runs: Sequence[Run]) -> None:
    for run in runs:
        run.check()


def _train_together(
    runs: Sequence[Run], execution: Execution, data: Path | None, show: Mode, tensorboard: bool
) -> list[Failure]:
    """Train runs on this machine, alone or with the processes that were started with this one."""
    with joined(execution) as (world, here):
        world.on_first(partial(_check, runs))
        if not world.first:
            show, tensorboard = "quiet", False

        def train_here(some: Sequence[Run], held: Held | None) -> list[Failure]:
            return _train_here(some, held, execution=here, data=data, show=show, tensorboard=tensorboard, world=world)

        if world.alone:
            return _share(runs, train_here)
        left = world.on_first(lambda: [index for index, run in enumerate(runs) if not run.finished])
        return train_here([runs[index] for index in left], None)


def _train_here(
    runs: Sequence[Run],
    held: Held | None,
    *,
    execution: Execution,
    data: Path | None,
    show: Mode,
    tensorboard: bool,
    world: World,
) -> list[Failure]:
    """Train runs in this process, and return what went wrong with some: the others can be trained nevertheless."""
    failures: list[Failure] = []
    for members in groups(runs):
        dataset = read_group(members, data, show, world.size)
        try:
            train_group(members, dataset, execution, partial(display, show, tensorboard), held, world)
        except LastTrainingError:
            raise
        except (TrainingError, RunError) as error:
            failures.append(error)
    return failures


def _share(runs: Sequence[Run], train_free: Callable[[Sequence[Run], Held], list[Failure]]) -> list[Failure]:
    """Train all runs: what other processes train is put off, and waited for when nothing else is left."""
    told = set[str]()
    failures: list[Failure] = []
    left = list(runs)
    while left:
        with stop_on_signals() as stop:
            open_runs, held = free(left, told, stop)
        if open_runs:
            failures += train_free(open_runs, held.__setitem__)
        left = list(held)
    return failures


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
    several = checks.all_of("train", recipe, (Recipe, str), "a Recipe, the name of one, or several of either")
    fields = set(all_fields())
    settings = {entry.name for entry in dataclasses.fields(Execution)}
    for name in changes:
        if name not in fields | settings:
            raise ArgumentError(f"{name}=…: no such setting; {nearest(name, sorted(fields | settings))}")
    execution = Execution(**{name: value for name, value in changes.items() if name in settings})
    if execution.ray is None:
        placed(execution)  # which refuses what this machine cannot do
    else:
        cluster.check(execution)
    altered = {name: value for name, value in changes.items() if name in fields}
    if not isinstance(altered.get("method", ""), str):
        raise ArgumentError(f"method={checks.shown(altered['method'])}: expected one of {', '.join(METHODS)}")
    found = [one if isinstance(one, Recipe) else book.find(one) for one in several]
    found = [dataclasses.replace(one, **own) for one, own in zip(found, _shares(found, altered), strict=True)]
    if seeds is not None:
        seeds = checks.several("seeds", seeds, "one or more of them, such as [0, 1]")
        if not seeds:
            raise ArgumentError(f"seeds={seeds!r}: expected one or more of them, such as [0, 1]")
        found = [dataclasses.replace(one, seed=seed) for one in found for seed in seeds]
    return identified(found, data), execution
