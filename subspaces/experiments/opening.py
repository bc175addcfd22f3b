"""Runs and files of evaluations as evaluations that know how their networks were trained."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.evaluation import FILE as EVALUATION
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.points import RUNS, kind
from subspaces.evaluation.rows import Answered, Row, Training
from subspaces.experiments.evaluating.ensembles import FILE, Measured, ensembles_in, evaluate_together
from subspaces.experiments.evaluating.integrity import measured_of
from subspaces.experiments.evaluating.training import training_of, training_of_run
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError

Source = str | os.PathLike[str] | Run | Evaluation
"""A run, its folder, an evaluation, or the file of one."""


def evaluation_of(run: Run, record: Evaluation | None = None) -> Evaluation:
    """Return the evaluation of a run, `record` if that is at hand, with how the run was trained."""
    found = measured_of(run) if record is None else record
    shape = run.recipe.result_shape()
    about = {"kind": kind(shape), "vertices": shape.vertices, "members": run.recipe.definition.members}
    training = training_of_run(run, found.statistics)
    own: dict[str, Any] = {"shape": {**found.shape, **about}, "statistics": {**found.statistics, **distances(run)}}
    return dataclasses.replace(found, name=run.folder.name, training=training, **own)


def opened(sources: Source | Iterable[Source], *, alike: bool = True) -> list[Evaluation]:
    """Return the evaluations of runs, folders and files, once each; a folder in which no run was begun is passed over.

    Args:
        sources: runs, their folders, evaluations, or files of such.
        alike: refuse runs that are not evaluated, and evaluations on test splits of different sizes.
    """
    several = checks.all_of(
        "runs", sources, (str, os.PathLike, Run, Evaluation), "run folders, or files of evaluations"
    )
    found: dict[Any, Evaluation] = {}
    for source in several:
        if isinstance(source, Evaluation):
            found.setdefault(id(source), _with_training(source))
        elif isinstance(source, Run):
            found.setdefault(source.folder.resolve(), _evaluation_of(source, alike))
        elif Path(source).is_file():
            found.setdefault(Path(source).resolve(), _with_training(Evaluation.load(Path(source))))
        else:
            for folder in Run.begun([source]):
                found.setdefault(folder.resolve(), _evaluation_of(Run.open(folder.resolve()), alike))
    made = list(found.values())
    if not made:
        raise ArgumentError("no runs were given: expected one run folder or more")
    for other in made:
        _check_comparable(made[0], other, alike)
    return made


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


def evaluations_together(
    groups: Sequence[Sequence[Run]], evaluations: Sequence[Evaluation], **settings: Any
) -> list[Evaluation]:
    """Measure runs together, as `evaluate_together` does, and return the ensembles as evaluations.

    Of the runs of each ensemble one or more are among the evaluations; the seeds of all are those of the ensemble.
    """
    trained = {run.folder.name: training_of(run.recipe) for group in groups for run in group}
    found = [together(one, evaluations, trained) for one in evaluate_together(groups, **settings)]
    return [each for each in found if each is not None]


def ensembles_beside(evaluations: Sequence[Evaluation], *folders: Path) -> list[Evaluation]:
    """Return the ensembles of these runs that `ensembles.json` holds, in the folders of the runs and in these."""
    around = [Path(each.training.folder).parent for each in evaluations if each.training and each.training.folder]
    places = dict.fromkeys(folder.resolve() for folder in (*around, *folders))
    found = [together(one, evaluations, {}) for place in places for one in ensembles_in(place / FILE)]
    return [each for each in found if each is not None]


def together(
    measured: Measured, evaluations: Sequence[Evaluation], trained: Mapping[str, Training]
) -> Evaluation | None:
    """Return an ensemble of runs as an evaluation; None unless all members are known and differ in their seed alone."""
    known = {each.family: each for each in evaluations if each.family is not None and each.training is not None}
    families, names = measured.key["families"], measured.key["runs"]
    members = [known[f].training if f in known else trained.get(name) for f, name in zip(families, names, strict=True)]
    first = next((known[family] for family in families if family in known), None)
    trainings = [each for each in members if each is not None]
    if first is None or len(trainings) < len(members) or len({each.group for each in trainings}) != 1:
        return None
    alphas: list[Any] = [float(number) for number in range(len(members))]
    answered = Answered(RUNS, f"ensemble of {len(members)} runs", len(members), RUNS, alphas, "probabilities")
    how: dict[str, Any] = {"average": "probabilities", "networks": len(members)}
    return dataclasses.replace(
        first,
        name=answered.words,
        metrics=[each.described for each in of_task(first.task)],
        answers=[answered],
        rows=[
            Row("ensemble", RUNS, alphas, [], split, measured.images[split], metrics, **how)
            for split, metrics in measured.metrics.items()
        ],
        planes=[],
        choices=[],
        examples=None,
        environment=measured.environment,
        training=dataclasses.replace(
            trainings[0], seeds=sorted(each.seeds[0] for each in trainings), log=[], seconds=None, folder=""
        ),
    )


def _evaluation_of(run: Run, needed: bool) -> Evaluation:
    """Return the evaluation of a run; unless it is needed, an empty one of a run without any."""
    if needed or (run.folder / EVALUATION).exists():
        return evaluation_of(run)
    dataset: dict[str, Any] = {"name": run.recipe.dataset, "classes": [], "splits": {}}
    return evaluation_of(run, Evaluation(run.folder.name, {}, "", [], [], {}, dataset, {}, run.recipe.to_dict()))


def distances(run: Run) -> dict[str, float]:
    """Return how far apart the vertices of a finished run are, which need not be what its log is of."""
    return {name: float(run.result[name]) for name in ("l2", "cos2") if name in run.result} if run.finished else {}
