"""Runs and files of evaluations as evaluations that know how their networks were trained; nothing is measured here."""

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from subspaces.core import checks, storage
from subspaces.errors import ArgumentError
from subspaces.evaluation.evaluation import FILE, REMEDY, Evaluation
from subspaces.evaluation.points import kind
from subspaces.evaluation.rows import Training
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training.recipe import Recipe, all_fields
from subspaces.experiments.training.runs import Run, RunError

Source = str | os.PathLike[str] | Run | Evaluation
"""A run, its folder, an evaluation, or the file of one."""


def training_of(recipe: Recipe) -> Training:
    """Return how a recipe is trained, as far as tables, figures and pages tell it."""
    settings = recipe.distinguishing()
    metadata = {name: all_fields()[name].metadata for name in settings}
    return Training(
        group=json.dumps(settings, default=str),
        label=recipe.definition.label(),
        settings=settings,
        words={n: each.get("symbol") or n.replace("_", " ") for n, each in metadata.items() if "label" not in each},
        order=[list(METHODS).index(recipe.method), *recipe.definition.own().values(), *settings.values()],
        seeds=[recipe.seed],
        data=recipe.data_name,
        fingerprint=recipe.fingerprint or recipe.dataset,
        network=recipe.network,
        label_noise=recipe.label_noise,
        epochs=recipe.epochs,
        vertices=recipe.shape().vertices,
        log=[],
        seconds=None,
        folder="",
        recipe=recipe.to_dict(),
    )


def training_of_run(run: Run, statistics: dict[str, Any]) -> Training:
    """Return how a run was trained, with its log, its starts and the time that its steps took.

    That comes from the speed of each epoch, whose images are those of the `statistics`, where these are of all training
    images; None where it is not known.
    """
    log = run.log()
    images = 0 if statistics.get("batches") else int(statistics.get("images") or 0)
    speeds = [float(row.get("images_per_second") or 0) for row in log]
    seconds = sum(images / speed for speed in speeds) if images and speeds and all(speeds) else None
    made = training_of(run.recipe)
    return dataclasses.replace(made, log=log, seconds=seconds, folder=str(run.folder), starts=run.starts())


def measured_of(run: Run) -> Evaluation:
    """Return the evaluation of a run, which must be of this run and of the family that it has now."""
    try:
        found = Evaluation.load(run.folder)
        same = found.recipe is not None and Recipe.from_dict(found.recipe).key == run.recipe.key
    except storage.FileError as error:
        raise RunError(str(error)) from None
    except ArgumentError as error:
        raise RunError(f"{run.folder / FILE} is damaged ({error}): {REMEDY}") from None
    if not same:
        raise RunError(f"{run.folder} was evaluated with another configuration: remove its {FILE}")
    if run.finished and found.family != run.family_checksum:
        raise RunError(f"{run.folder} was trained anew since it was evaluated: evaluate it again")
    return found


def evaluation_of(run: Run, record: Evaluation | None = None) -> Evaluation:
    """Return the evaluation of a run, `record` if that is at hand, with how the run was trained."""
    found = measured_of(run) if record is None else record
    shape = run.recipe.result_shape()
    about = {"kind": kind(shape), "vertices": shape.vertices, "members": run.recipe.definition.members}
    result = run.result if run.finished else {}  # how far apart the vertices are, which need not be those of the log
    apart = {name: float(result[name]) for name in ("l2", "cos2") if name in result}
    training = training_of_run(run, found.statistics)
    own: dict[str, Any] = {"shape": {**found.shape, **about}, "statistics": {**found.statistics, **apart}}
    return dataclasses.replace(found, name=run.folder.name, training=training, **own)


def opened(sources: Source | Iterable[Source], *, alike: bool = True) -> list[Evaluation]:
    """Return the evaluations of runs, folders and files, once each; a folder in which no run was begun is passed over.

    Args:
        sources: runs, their folders, evaluations, or files of such.
        alike: refuse runs that are not evaluated, and evaluations on test splits of different sizes.
    """
    expected = "run folders, or files of evaluations"
    found: dict[Any, Evaluation] = {}
    for source in checks.all_of("runs", sources, (str, os.PathLike, Run, Evaluation), expected):
        if isinstance(source, Evaluation):
            found.setdefault(id(source), _with_training(source))
        elif not isinstance(source, Run) and Path(source).is_file():
            found.setdefault(Path(source).resolve(), _with_training(Evaluation.load(Path(source))))
        else:
            folders = [source.folder] if isinstance(source, Run) else Run.begun([source])
            for folder in (each.resolve() for each in folders):
                if folder not in found:
                    found[folder] = _evaluation_of(source if isinstance(source, Run) else Run.open(folder), alike)
    made = list(found.values())
    if not made:
        raise ArgumentError("no runs were given: expected one run folder or more")
    for other in made:
        _check_comparable(made[0], other, alike)
    return made


def _evaluation_of(run: Run, needed: bool) -> Evaluation:
    """Return the evaluation of a run; unless it is needed, an empty one of a run without any."""
    if needed or (run.folder / FILE).exists():
        return evaluation_of(run)
    dataset: dict[str, Any] = {"name": run.recipe.dataset, "classes": [], "splits": {}}
    return evaluation_of(run, Evaluation(run.folder.name, {}, "", [], [], {}, dataset, {}, run.recipe.to_dict()))


def _with_training(record: Evaluation) -> Evaluation:
    """Return the evaluation of a run that was saved elsewhere with what its recipe tells."""
    if record.training is not None or record.recipe is None:
        return record
    return dataclasses.replace(record, training=training_of(Recipe.from_dict(record.recipe)))


def _check_comparable(first: Evaluation, other: Evaluation, alike: bool) -> None:
    """Refuse families of different data sets, which only runs know, and evaluations on parts of one that differ."""
    known = [one.training.fingerprint for one in (first, other) if one.training is not None]
    if len(set(known)) > 1:
        raise RunError(
            f"{first.name} is of {known[0]!r} and {other.name} of {known[1]!r}: expected runs on one data set"
        )
    ours, theirs = (record.dataset["splits"].get("test") if alike else None for record in (first, other))
    if ours != theirs:
        raise RunError(
            f"{first.name} was evaluated with {ours} test images and {other.name} with {theirs}: evaluate them alike"
        )
