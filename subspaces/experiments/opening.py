"""Runs and files of evaluations as evaluations that know how their networks were trained."""

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import RUNS, of_runs
from subspaces.evaluation.cache import Measured, Shelf
from subspaces.evaluation.integrity import measured_of
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.points import kind
from subspaces.evaluation.record import FILE as EVALUATION
from subspaces.evaluation.record import Answered, Record, Row, Training
from subspaces.evaluation.run_ensembles import FILE, evaluate_together
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training.recipe import Recipe, all_fields
from subspaces.experiments.training.runs import Run, RunError

Source = str | os.PathLike[str] | Run | Record
"""A run, its folder, an evaluation, or the file of one."""


def training_of(recipe: Recipe, *, log: Sequence[dict[str, Any]] = (), seconds: float | None = None) -> Training:
    """Return how a run was trained, as far as tables, figures and pages tell it."""
    settings = recipe.distinguishing()
    metadata = {name: all_fields()[name].metadata for name in settings}
    words = {
        name: each.get("symbol") or name.replace("_", " ") for name, each in metadata.items() if "label" not in each
    }
    order = [list(METHODS).index(recipe.method), *recipe.definition.own().values(), *settings.values()]
    return Training(
        group=json.dumps(settings, default=str),
        label=recipe.definition.label(),
        settings=settings,
        words=words,
        order=order,
        seeds=[recipe.seed],
        data=recipe.data_name,
        fingerprint=recipe.fingerprint or recipe.dataset,
        network=recipe.network,
        label_noise=recipe.label_noise,
        epochs=recipe.epochs,
        vertices=recipe.shape().vertices,
        cost=recipe.training_cost,
        log=list(log),
        seconds=seconds,
        folder="",
        recipe=recipe.to_dict(),
    )


def evaluation_of(run: Run, record: Record | None = None) -> Record:
    """Return the evaluation of a run, `record` if that is at hand, with how the run was trained."""
    found, log = measured_of(run) if record is None else record, run.log()
    made = training_of(run.recipe, log=log, seconds=_seconds(found, log))
    shape = run.recipe.result_shape()
    about = {"kind": kind(shape), "vertices": shape.vertices, "members": run.recipe.definition.members}
    training = dataclasses.replace(made, folder=str(run.folder), starts=run.starts())
    own: dict[str, Any] = {"shape": {**found.shape, **about}, "statistics": {**found.statistics, **distances(run)}}
    return dataclasses.replace(found, name=run.folder.name, training=training, **own)


def _seconds(record: Record, log: Sequence[dict[str, Any]]) -> float | None:
    """Return the time that the steps of training took, from the speed of each epoch; None where it is not known.

    The images of an epoch are those of the batch-norm statistics, where these are of all training images.
    """
    statistics = record.statistics
    images = 0 if statistics.get("batches") else int(statistics.get("images") or 0)
    speeds = [float(row.get("images_per_second") or 0) for row in log]
    return sum(images / speed for speed in speeds) if images and speeds and all(speeds) else None


def opened(sources: Source | Iterable[Source], *, alike: bool = True) -> list[Record]:
    """Return the evaluations of runs, folders and files, once each; a folder in which no run was begun is passed over.

    Args:
        sources: runs, their folders, evaluations, or files of such.
        alike: refuse runs that are not evaluated, and evaluations on test splits of different sizes.
    """
    several = checks.all_of("runs", sources, (str, os.PathLike, Run, Record), "run folders, or files of evaluations")
    found: dict[Any, Record] = {}
    for source in several:
        if isinstance(source, Record):
            found.setdefault(id(source), _with_training(source))
        elif isinstance(source, Run):
            found.setdefault(source.folder.resolve(), _evaluation_of(source, alike))
        elif Path(source).is_file():
            found.setdefault(Path(source).resolve(), _with_training(Record.read(Path(source))))
        else:
            for folder in Run.begun([source]):
                found.setdefault(folder.resolve(), _evaluation_of(Run.open(folder.resolve()), alike))
    made = list(found.values())
    if not made:
        raise ArgumentError("no runs were given: expected one run folder or more")
    for other in made:
        _check_comparable(made[0], other, alike)
    return made


def _with_training(record: Record) -> Record:
    """Return the evaluation of a run that was saved elsewhere with what its recipe tells."""
    if record.training is not None or record.recipe is None:
        return record
    return dataclasses.replace(record, training=training_of(Recipe.from_dict(record.recipe)))


def _check_comparable(first: Record, other: Record, alike: bool) -> None:
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


def evaluations_together(
    groups: Sequence[Sequence[Run]], evaluations: Sequence[Record], **settings: Any
) -> list[Record]:
    """Measure runs together, as `evaluate_together` does, and return the ensembles as evaluations.

    Of the runs of each ensemble one or more are among the evaluations; the seeds of all are those of the ensemble.
    """
    measured = evaluate_together(groups, **settings)
    recipes = {run.folder.name: run.recipe for group in groups for run in group}
    members = {f: name for one in measured for name, f in zip(one.key["runs"], one.key["families"], strict=True)}
    others = members.keys() - {each.family for each in evaluations}
    more = [
        dataclasses.replace(
            evaluations[0], environment={"family": family}, training=training_of(recipes[members[family]])
        )
        for family in others
    ]
    found = [together(one, [*evaluations, *more]) for one in measured]
    return [each for each in found if each is not None]


def ensembles_beside(evaluations: Sequence[Record], *folders: Path) -> list[Record]:
    """Return the ensembles of these runs that `ensembles.json` holds, in the folders of the runs and in these."""
    around = [Path(each.training.folder).parent for each in evaluations if each.training and each.training.folder]
    places = dict.fromkeys(folder.resolve() for folder in (*around, *folders))
    measured = [one for place in places for one in Shelf(place / FILE).read()]
    return [made for made in (together(one, evaluations) for one in measured) if made is not None]


def together(measured: Measured, evaluations: Sequence[Record]) -> Record | None:
    """Return an ensemble of runs as an evaluation; None unless all members are among runs that differ in their seed."""
    by_family = {each.family: each for each in evaluations if each.family is not None and each.training is not None}
    members = [by_family.get(family) for family in measured.key["families"]]
    known = [each for each in members if each is not None and each.training is not None]
    if len(known) < len(members) or len({each.training.group for each in known if each.training}) != 1:
        return None
    first = known[0]
    assert first.training is not None
    seeds = sorted(each.training.seeds[0] for each in known if each.training is not None)
    usual = "probabilities"
    alphas: list[Any] = [float(number) for number in range(len(known))]
    answered = Answered(RUNS, of_runs(len(known)), len(known), RUNS, alphas, usual)
    rows = [
        Row("ensemble", RUNS, alphas, [], split, measured.images[split], metrics, average=usual, networks=len(known))
        for split, metrics in measured.metrics.items()
    ]
    return dataclasses.replace(
        first,
        name=answered.words,
        metrics=[each.described for each in of_task(first.task)],
        answers=[answered],
        rows=rows,
        planes=[],
        choices=[],
        checks=[],
        examples=None,
        shifts=[],
        outliers=[],
        environment=measured.environment,
        training=dataclasses.replace(first.training, seeds=seeds, log=[], seconds=None, folder=""),
    )


def _evaluation_of(run: Run, needed: bool) -> Record:
    """Return the evaluation of a run; unless it is needed, an empty one of a run without any."""
    if needed or (run.folder / EVALUATION).exists():
        return evaluation_of(run)
    dataset: dict[str, Any] = {"name": run.recipe.dataset, "classes": [], "splits": {}}
    return evaluation_of(run, Record(run.folder.name, {}, "", [], [], {}, dataset, {}, run.recipe.to_dict()))


def distances(run: Run) -> dict[str, float]:
    """Return how far apart the vertices of a finished run are, which need not be what its log is of."""
    return {name: float(run.result[name]) for name in ("l2", "cos2") if name in run.result} if run.finished else {}
