"""Evaluating finished runs, alone and several as one ensemble; processes share the work, and none is done twice.

The answer of several runs is p(y | x) = 1/k sum_i softmax(f(x; theta_i)), with theta_i the midpoint of run i, and
batch-norm statistics of its own.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation import session
from subspaces.evaluation.classification import Classes, log_mean
from subspaces.evaluation.display import Progress, bars, counted
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import of_task, tally
from subspaces.evaluation.plane import Network
from subspaces.evaluation.points import RUNS, kind, middle_of
from subspaces.evaluation.rows import Answered, Row, Training
from subspaces.evaluation.settings import Settings
from subspaces.experiments import locks
from subspaces.experiments.evaluating.run_subject import OneRun, RunSubject, run_subjects
from subspaces.experiments.locks import Kept, stop_on_signals
from subspaces.experiments.opening import training_of
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import DATA
from subspaces.experiments.training.runs import Run, RunError

FILE = "ensembles.json"


def evaluate(
    what: Any,
    settings: Settings | None = None,
    /,
    *,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
    **more: Any,
) -> Any:
    """Measure a run and return its evaluation, or several runs and return a list; see `subspaces.evaluate`."""
    wanted = settings or Settings.of(more)
    execution = Execution(device=device, precision=wanted.precision, workers=workers).resolved()
    found = evaluate_runs(what, wanted, data=data, execution=execution, trust=trust, progress=progress)
    return found[0] if isinstance(what, (Run, str, os.PathLike)) else found


def evaluate_runs(
    what: Any, settings: Settings, *, data: Any, execution: Execution, trust: bool, progress: Any, command: str = ""
) -> list[Evaluation]:
    """Measure what is missing of finished runs, as `evaluate` does."""
    several = checks.all_of("evaluate", what, (Run, str, os.PathLike), "a run, its folder, or several of them")
    known = [one for one in several if isinstance(one, Run) or Run.begun([one])]
    if not known:
        raise ArgumentError(f"{several[0]}: holds no run that was begun; expected the folder of a finished one")
    opened = [one if isinstance(one, Run) else Run.open(checks.folder("evaluate", one)) for one in known]
    open_run = run_subjects(data, execution, trust)
    subjects = list(dict.fromkeys(open_run(run) for run in opened))
    others = [_network(each, number, open_run) for number, each in enumerate(settings.through, 1)]
    for one in subjects:
        session.check(one, settings, others)
    with stop_on_signals() as stop, bars(progress, stop.raise_if_stopped) as shown:

        def work(one: RunSubject) -> Evaluation:
            one.check()
            found = session.evaluate(one, one.task.metrics, settings, others, shown, command)
            one.release()
            return found

        return locks.share(subjects, lambda one: one.run.attempt(), work, lambda one: one.name, stop)


def _network(through: Any, number: int, open_run: Callable[[Run], RunSubject]) -> Network:
    """Return a module, or the midpoint of another run."""
    if isinstance(through, nn.Module):
        return Network(f"network {number}", module=through)
    subject = open_run(Run.open(through))
    return Network.at_middle(subject, f"{subject.label}{' midpoint' * (kind(subject.shape) != 'single')}")


# Ensembles of runs


@dataclasses.dataclass(frozen=True)
class Measured:
    """The metrics of an ensemble on each split; `key` has its runs and settings."""

    key: dict[str, Any]
    environment: dict[str, Any]
    images: dict[str, int]
    metrics: dict[str, dict[str, float]]


def ensembles_in(path: Path) -> list[Measured]:
    """Return the ensembles that a file holds; of one that was measured in several ways the last."""
    found = {str(key["families"]) + str(key["batches"]): Measured(key, **value) for key, value in Kept(path).items()}
    return list(found.values())


def evaluate_together(
    groups: Sequence[Sequence[OneRun]],
    *,
    to: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    statistics_batches: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
    **how: Any,
) -> list[Measured]:
    """Measure the midpoints of several runs as one ensemble, for each group of runs, unless that is there already.

    The runs of a group are finished and on the same data; `to` is the folder for `ensembles.json`, and `how` has fields
    of `Execution`.
    """
    execution = Execution(**how).resolved()
    open_run = run_subjects(data, execution, trust)
    members = [[open_run(run if isinstance(run, Run) else Run.open(run)) for run in group] for group in groups]
    for group in members:
        _check(group)
    kept = Kept(Path(to) / FILE)
    keys = [_key(group, statistics_batches, execution.precision) for group in members]
    left = {index: members[index] for index, key in enumerate(keys) if kept.find(key) is None}
    logits: dict[RunSubject, dict[str, Tensor]] = {}  # of each run's midpoint [n, classes], while a group asks for it

    def work(index: int) -> None:
        group = left.pop(index)
        if kept.find(keys[index]) is None:  # no other process has done so by now
            for one in group:
                if one not in logits:
                    whole = one.predictor(one.splits, statistics_batches).whole(middle_of(one.shape))
                    logits[one] = {split: each.cpu() for split, each in whole.items()}
                    one.release()
                    tick(0)
            kept.add(keys[index], _values(group[0], [logits[one] for one in group]))
        for one in logits.keys() - {one for others in left.values() for one in others}:
            del logits[one]
        tick(1)

    if left:
        with stop_on_signals() as stop, bars(progress, stop.raise_if_stopped) as shown, locks.made(Path(to)):
            tick = counted(shown, "ensembles of runs", 0, len(left))
            locks.share(
                list(left),
                lambda index: locks.beside(kept.path, keys[index]),
                work,
                lambda index: f"the ensemble of {', '.join(keys[index]['runs'])}",
                stop,
            )
    return [Measured(key, **kept.find(key)) for key in keys]


def _check(group: Sequence[RunSubject]) -> None:
    if len({one.checksum for one in group}) < max(2, len(group)):
        names = ", ".join(one.name for one in group) or "no run"
        raise RunError(f"an ensemble of {names}: expected two or more runs that differ")
    for one in group[1:]:
        for field in DATA:
            ours, theirs = getattr(group[0].recipe, field), getattr(one.recipe, field)
            if ours != theirs:
                raise RunError(
                    f"{one.run.folder} has {field} {theirs!r}, not {ours!r}: an ensemble is of runs on the same data"
                )


def _key(group: Sequence[RunSubject], statistics: int | None, precision: str) -> dict[str, Any]:
    """Return the key of an ensemble, whatever the order of its runs, with all metrics that there are by now."""
    runs = {one.checksum: one.name for one in sorted(group, key=lambda one: one.name)}
    how = {
        "batches": statistics,
        "precision": precision,
        "metrics": [metric.name for metric in of_task("classification")],
    }
    return {"runs": list(runs.values()), "families": list(runs), **how}


def _values(first: RunSubject, members: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
    metrics, images = {}, {}
    for split in first.splits:
        answer = log_mean(torch.stack([each[split] for each in members]))
        labels = getattr(first.images_of, split).labels.to(answer.device)
        metrics[split], images[split] = tally(of_task("classification"), [(Classes(answer), labels)]), len(answer)
    return {"environment": first.environment, "images": images, "metrics": metrics}


# Ensembles as evaluations


def evaluations_together(
    groups: Sequence[Sequence[Run]], evaluations: Sequence[Evaluation], **settings: Any
) -> list[Evaluation]:
    """Measure runs together, as `evaluate_together` does, and return the ensembles as evaluations.

    Of the runs of each ensemble one or more are among the evaluations; the seeds of all are those of the ensemble.
    """
    trained = {run.folder.name: training_of(run.recipe) for group in groups for run in group}
    found = [_together(one, evaluations, trained) for one in evaluate_together(groups, **settings)]
    return [each for each in found if each is not None]


def ensembles_beside(evaluations: Sequence[Evaluation], *folders: Path) -> list[Evaluation]:
    """Return the ensembles of these runs that `ensembles.json` holds, in the folders of the runs and in these."""
    around = [Path(each.training.folder).parent for each in evaluations if each.training and each.training.folder]
    places = dict.fromkeys(folder.resolve() for folder in (*around, *folders))
    found = [_together(one, evaluations, {}) for place in places for one in ensembles_in(place / FILE)]
    return [each for each in found if each is not None]


def _together(
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
    seeds = sorted(each.seeds[0] for each in trainings)
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
        training=dataclasses.replace(trainings[0], seeds=seeds, log=[], seconds=None, folder=""),
    )
