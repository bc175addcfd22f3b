"""Train recipes: the call behind `subspaces train`."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.experiments import data as datasets
from subspaces.experiments.data.loading import OWN, check_name_and_root
from subspaces.experiments.locks import stop_on_signals
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training import cluster
from subspaces.experiments.training.display import Mode, check_mode
from subspaces.experiments.training.execution import Execution, joined, placed, started
from subspaces.experiments.training.recipe import COMMON, Recipe, all_fields, find
from subspaces.experiments.training.runs import Run, free
from subspaces.experiments.training.scheduling import Failure, train_runs
from subspaces.networks import registry
from subspaces.text import nearest


def train(
    recipe: Recipe | str | Sequence[Recipe | str],
    *,
    seeds: Sequence[int] | None = None,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "runs",
    show: Mode = "bar",
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
        changes: any field of `Recipe` (epochs=10) or `Execution` (device="cpu") to set.

    Example:
        >>> (run,) = ss.train("digits-line", epochs=20)
        >>> run.result["test_accuracy"] > 0
        True
    """
    check_mode(show)
    out = checks.folder("out", out)
    data = None if data is None else checks.folder("data", data)
    chosen, execution = configure(recipe, seeds, changes, data)
    return train_recipes(chosen, execution, data=data, out=out, show=show)


def train_recipes(
    recipes: Sequence[Recipe],
    execution: Execution,
    *,
    data: Path | None,
    out: Path,
    show: Mode,
    then: cluster.Then = None,
) -> list[Run]:
    """Train recipes that are checked already, as `train` does, and return the finished runs.

    `then` is what a machine of a cluster does with each run that it has trained.
    """
    runs = list({run.folder: run for run in (Run.under(out, one) for one in recipes)}.values())
    failures, told = list[Failure](), set[str]()
    with joined(execution) as (world, here):
        for run in runs:
            world.on_first(run.check)
        if not world.first:
            show = "quiet"
        for later in (False, True):  # those that start from others come after these
            left = [run for run in runs if bool(run.recipe.start_from) is later]
            if not world.alone:
                unfinished = world.on_first(lambda: [run.finished for run in left])  # noqa: B023
                ours = [run for run, done in zip(left, unfinished, strict=True) if not done]
                failures += train_runs(ours, here, data, show, {}, world)
                continue
            while left:  # what other processes train is put off, and waited for when nothing else is left
                with stop_on_signals() as stop:
                    ours, held = free(left, told, stop)
                if ours and execution.ray is not None:
                    failures += cluster.train(ours, train_recipes, execution, data, out, show, then)
                elif ours:
                    failures += train_runs(ours, here, data, show, held)
                left = list(held)
    if started()[0] == 0:
        for run in runs:
            run.tidy()
    if failures:
        raise failures[0]
    return runs


def configure(
    recipe: Recipe | str | Sequence[Recipe | str],
    seeds: Sequence[int] | None,
    changes: dict[str, Any],
    data: str | os.PathLike[str] | None = None,
) -> tuple[list[Recipe], Execution]:
    """Return the recipes with all changes and seeds applied, and what was asked for of their execution.

    What shows before any work is refused here. Recipes of the user's own images say which images `data` has.
    """
    several = checks.all_of("train", recipe, (Recipe, str), "a Recipe, the name of one, or several of either")
    known = set(all_fields())
    settings = {entry.name for entry in fields(Execution)}
    for name in changes:
        if name not in known | settings:
            raise ArgumentError(f"{name}=…: no such setting; {nearest(name, sorted(known | settings))}")
    execution = Execution(**{name: value for name, value in changes.items() if name in settings})
    if execution.ray is None:
        placed(execution)  # which refuses what this machine cannot do
    else:
        cluster.check(execution)
    altered = {name: value for name, value in changes.items() if name in known}
    if not isinstance(altered.get("method", ""), str):
        raise ArgumentError(f"method={checks.shown(altered['method'])}: expected one of {', '.join(METHODS)}")
    found = [one if isinstance(one, Recipe) else find(one) for one in several]
    found = [replace(one, **own) for one, own in zip(found, _shares(found, altered), strict=True)]
    if seeds is not None:
        expected = "one or more of them, such as [0, 1]"
        if not (seeds := checks.several("seeds", seeds, expected)):
            raise ArgumentError(f"seeds={seeds!r}: expected {expected}")
        found = [replace(one, seed=seed) for one in found for seed in seeds]
    _check_names(found, data)
    if any(one.dataset == OWN and not one.fingerprint for one in found):
        here = datasets.fingerprint_of(data)
        found = [replace(one, fingerprint=one.fingerprint or here) if one.dataset == OWN else one for one in found]
    return found, execution


def _shares(recipes: Sequence[Recipe], changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes to each recipe: what only some methods use is for those, and leaves the others the same runs.

    A change that none of them uses goes to all, to be refused.
    """
    used = []
    for one in recipes:
        kind = METHODS.get(changes.get("method", one.method))
        names = {*COMMON, *kind.names()} if kind else {*all_fields()}  # another method is refused
        used.append(names - {"schedule"} if kind and kind.schedule else names)
    some = set().union(*used)
    return [{name: value for name, value in changes.items() if name in each or name not in some} for each in used]


def _check_names(recipes: Sequence[Recipe], data: str | os.PathLike[str] | None) -> None:
    """Refuse names of data sets and networks that there are not, and dropout where a network has none."""
    for name in {one.dataset for one in recipes}:
        with suppress(FileNotFoundError):  # a finished run needs no data
            check_name_and_root(name, data)
    for network, dropout in {(one.network, one.dropout) for one in recipes}:
        registry.check_name(network)
        if dropout and ":" not in network:
            with torch.device("meta"):  # which takes no memory
                registry.build(network, classes=10, image_shape=(3, 32, 32), dropout=dropout)
