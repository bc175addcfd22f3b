"""Runs that share their images: read once, shown, and trained."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from subspaces.core import memory
from subspaces.experiments.data import Dataset
from subspaces.experiments.training import feasible
from subspaces.experiments.training.advice import against_memory
from subspaces.experiments.training.display import Display, Mode, progress_bar
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.images import load_levels
from subspaces.experiments.training.loop import Held, train_runs
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.trainer import TrainingError
from subspaces.experiments.training.world import ALONE, World

Watch = Callable[[], AbstractContextManager[Display]]


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs by what they must share to be trained at once: images, batches, and whether they have dropout.

    Those with dropout take no turns on a GPU, and would keep the others from it.
    """
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        one = run.recipe
        key = (*feasible.data_of(dataclasses.replace(one, label_noise=0.0)), one.batch, one.dropout > 0)
        found.setdefault(key, []).append(run)
    return list(found.values())


def read_group(runs: Sequence[Run], data: Path | None, show: Mode, processes: int = 1) -> dict[float, Dataset]:
    """Return the images of a group by their label noise, and refuse batches that cannot be trained on.

    Each of several `processes` that train together reads them.
    """
    wanted = [run.recipe for run in runs]
    with progress_bar(show) as progress:
        dataset = load_levels(wanted, data, progress)
    feasible.check_loaded(wanted, next(iter(dataset.values())), processes)
    return dataset


def train_group(
    runs: Sequence[Run],
    dataset: Mapping[float, Dataset],
    execution: Execution,
    watch: Watch,
    held: Held | None,
    world: World = ALONE,
) -> None:
    """Train a group and show it, but for runs that others hold, of which `held` is told."""
    with watch() as shown:
        try:
            train_runs(runs, dataset, execution, shown.report, shown.tick, shown.begin, held, world)
        except Exception as error:
            if isinstance(error, TrainingError) or not memory.ran_out(error):
                raise
            raise TrainingError(against_memory(runs[0].recipe, len(runs), execution, error)) from error
