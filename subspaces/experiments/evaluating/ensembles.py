"""Ensembles of independent runs: the mean of the probabilities of networks that share nothing but the data.

p(y | x) = 1/k sum_i softmax(f(x; theta_i)), with theta_i the midpoint of run i, and batch-norm statistics of its own.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.evaluation.answers import middle_of
from subspaces.evaluation.classification import log_mean
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.images import Progress
from subspaces.experiments import locks
from subspaces.experiments.evaluating.cache import Measured, Shelf
from subspaces.experiments.evaluating.run_subject import OneRun, RunSubject, run_subjects
from subspaces.experiments.training.execution import Execution, Precision
from subspaces.experiments.training.feasible import DATA
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.signals import stop_on_signals

FILE = "ensembles.json"
ALIKE = DATA  # what decides which images are asked about


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
    open_run = run_subjects(data, Execution(device=device, precision=precision, workers=workers).resolved(), trust)
    groups = [checks.several("groups", group, "lists of runs") for group in checks.several("groups", groups, "lists")]
    members = [[open_run(run if isinstance(run, Run) else Run.open(run)) for run in group] for group in groups]
    for group in members:
        _check(group)
    Path(to).mkdir(parents=True, exist_ok=True)
    shelf = Shelf(Path(to) / FILE)
    keys = [key_of(group, statistics_batches) for group in members]
    missing = {index: members[index] for index, key in enumerate(keys) if shelf.find(key, precision) is None}
    if missing:
        with stop_on_signals() as stop, bars(progress, stop.heed) as shown, locks.made(Path(to)):
            tick = counted(shown, "ensembles of runs", 0, len(missing))
            locks.share(
                list(missing),
                lambda index: locks.beside(shelf.path, keys[index]),
                _Measuring(missing, keys, shelf, precision, tick),
                lambda index: f"the ensemble of {', '.join(keys[index]['runs'])}",
                stop,
            )
    return [found for key in keys if (found := shelf.find(key, precision)) is not None]


class _Measuring:
    """Measures groups by their number; what runs answer is kept while a group is left that asks for it."""

    def __init__(
        self,
        groups: dict[int, list[RunSubject]],
        keys: Sequence[dict[str, Any]],
        shelf: Shelf,
        precision: Precision,
        tick: Callable[[int], None],
    ) -> None:
        self.left, self.keys, self.shelf, self.precision, self.tick = groups, keys, shelf, precision, tick
        self.logits: dict[RunSubject, dict[str, Tensor]] = {}  # of each run's midpoint [n, classes], on each split

    def __call__(self, index: int) -> None:
        """Measure a group, unless another process has done so by now."""
        key, group = self.keys[index], self.left.pop(index)
        if self.shelf.find(key, self.precision) is None:
            said = [self._said(one, key["batches"]) for one in group]
            means = {split: log_mean(torch.stack([one[split] for one in said])) for split in group[0].splits}
            self.shelf.add(Measured.of(key, group[0], means))
        wanted = {one for others in self.left.values() for one in others}
        self.logits = {one: logits for one, logits in self.logits.items() if one in wanted}
        self.tick(1)

    def _said(self, one: RunSubject, batches: int | None) -> dict[str, Tensor]:
        if one not in self.logits:
            said = one.predictor(one.splits, batches).whole(middle_of(one.shape))
            one.release()
            self.logits[one] = {split: logits.cpu() for split, logits in said.items()}
            self.tick(0)
        return self.logits[one]


def key_of(group: Sequence[RunSubject], statistics: int | None = None) -> dict[str, Any]:
    """Return what tells one measurement of this kind from another; the order of the runs does not matter."""
    runs = {one.checksum: one.run.folder.name for one in sorted(group, key=lambda one: one.run.folder.name)}
    return {"runs": list(runs.values()), "families": list(runs), "batches": statistics}


def _check(group: Sequence[RunSubject]) -> None:
    """Refuse ensembles of less than two different runs, or of runs on other data."""
    if len({one.checksum for one in group}) < max(2, len(group)):
        names = ", ".join(one.run.folder.name for one in group) or "no run"
        raise RunError(f"an ensemble of {names}: expected two or more runs that differ")
    for one in group[1:]:
        for field in ALIKE:
            ours, theirs = getattr(group[0].recipe, field), getattr(one.recipe, field)
            if ours != theirs:
                raise RunError(
                    f"{group[0].run.folder} has {field} {ours!r} and {one.run.folder} {theirs!r}: "
                    "an ensemble is of runs on the same data"
                )
