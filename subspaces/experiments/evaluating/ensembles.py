"""Ensembles of independent runs: the mean of the probabilities of networks that share nothing but the data.

p(y | x) = 1/k sum_i softmax(f(x; theta_i)), with theta_i the midpoint of run i, and batch-norm statistics of its own.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.evaluation.classification import Classes, log_mean
from subspaces.evaluation.display import Progress, bars, counted
from subspaces.evaluation.metrics import of_task, tally
from subspaces.evaluation.points import middle_of
from subspaces.experiments import locks
from subspaces.experiments.evaluating.run_subject import OneRun, RunSubject, run_subjects
from subspaces.experiments.locks import Kept, stop_on_signals
from subspaces.experiments.training.execution import Execution, Precision
from subspaces.experiments.training.recipe import DATA
from subspaces.experiments.training.runs import Run, RunError

FILE = "ensembles.json"


@dataclass(frozen=True)
class Measured:
    """The metrics of an ensemble on each split; `key` has its runs and settings."""

    key: dict[str, Any]
    environment: dict[str, Any]
    images: dict[str, int]
    metrics: dict[str, dict[str, float]]


def ensembles_in(path: Path) -> list[Measured]:
    """Return the ensembles that a file holds; of one in several precisions the last that was measured."""
    found = {str(key["families"]) + str(key["batches"]): Measured(key, **value) for key, value in Kept(path).items()}
    return list(found.values())


def _find(kept: Kept, key: dict[str, Any]) -> Measured | None:
    """Return what was measured of a key with all the metrics that there are by now."""
    found, names = kept.find(key), {metric.name for metric in of_task("classification")}
    if found is None or not all(names <= each.keys() for each in found["metrics"].values()):
        return None
    return Measured(key, **found)


def evaluate_together(
    groups: Sequence[Sequence[OneRun]],
    *,
    to: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    statistics_batches: int | None = None,
    precision: Precision = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
) -> list[Measured]:
    """Measure the midpoints of several runs as one ensemble, for each group of runs, unless that is there already.

    The runs of a group are finished and on the same data; `to` is the folder for `ensembles.json`, the rest as in
    `evaluate`.
    """
    execution = Execution(device=device, precision=precision, workers=workers).resolved()
    open_run = run_subjects(data, execution, trust)
    groups = [checks.several("groups", group, "lists of runs") for group in checks.several("groups", groups, "lists")]
    members = [[open_run(run if isinstance(run, Run) else Run.open(run)) for run in group] for group in groups]
    for group in members:
        _check(group)
    kept = Kept(Path(to) / FILE)
    keys = [_key(group, statistics_batches, execution.precision) for group in members]
    left = {index: members[index] for index, key in enumerate(keys) if _find(kept, key) is None}
    logits: dict[RunSubject, dict[str, Tensor]] = {}  # of each run's midpoint [n, classes], while a group asks for it

    def work(index: int) -> None:
        group = left.pop(index)
        if _find(kept, keys[index]) is None:  # no other process has done so by now
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
    return [found for key in keys if (found := _find(kept, key)) is not None]


def _values(first: RunSubject, members: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
    metrics, images = {}, {}
    for split in first.splits:
        answer = log_mean(torch.stack([each[split] for each in members]))
        labels = getattr(first.images_of, split).labels.to(answer.device)
        metrics[split], images[split] = tally(of_task("classification"), [(Classes(answer), labels)]), len(answer)
    return {"environment": first.environment, "images": images, "metrics": metrics}


def _key(group: Sequence[RunSubject], statistics: int | None, precision: str) -> dict[str, Any]:
    """Return the key of an ensemble, whatever the order of its runs."""
    runs = {one.checksum: one.run.folder.name for one in sorted(group, key=lambda one: one.run.folder.name)}
    return {"runs": list(runs.values()), "families": list(runs), "batches": statistics, "precision": precision}


def _check(group: Sequence[RunSubject]) -> None:
    if len({one.checksum for one in group}) < max(2, len(group)):
        names = ", ".join(one.run.folder.name for one in group) or "no run"
        raise RunError(f"an ensemble of {names}: expected two or more runs that differ")
    for one in group[1:]:
        for field in DATA:
            ours, theirs = getattr(group[0].recipe, field), getattr(one.recipe, field)
            if ours != theirs:
                raise RunError(
                    f"{one.run.folder} has {field} {theirs!r}, not {ours!r}: an ensemble is of runs on the same data"
                )
