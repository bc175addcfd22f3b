"""MC-dropout: a network with dropout asked several times, each time without other parts of it.

p(y | x) = 1/n sum_i softmax(f(x; theta * mask_i)), with batch norm as at test time (Gal and Ghahramani, 2016).
The numbers go to `dropout.json` in the run folder.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from subspaces import streams, values
from subspaces.data.dataset import Progress
from subspaces.evaluation import metrics
from subspaces.evaluation.api import OneRun, heeding, share, workbench
from subspaces.evaluation.bench import Bench
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.measured import Measured, Shelf
from subspaces.evaluation.points import to_place
from subspaces.evaluation.predictor import Predictor
from subspaces.networks.dropout import dropping
from subspaces.training.batches import evaluation_batches
from subspaces.training.config import Execution, Precision
from subspaces.training.environment import environment
from subspaces.training.runs import Run
from subspaces.training.signals import stop_on_signals

FILE = "dropout.json"
PASSES = 20


def evaluate_dropout(
    runs: OneRun | Sequence[OneRun],
    *,
    passes: int = PASSES,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    statistics_batches: int | None = None,
    precision: Precision = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
) -> list[Measured]:
    """Measure the midpoint of finished runs with dropout switched on, unless that is there already.

    Args:
        runs: a run whose network has dropout, its folder, or several of them.
        passes: how often each image is asked about.
        data: the folder with the data sets.
        device: "cpu", "cuda", …; "auto" takes a GPU if there is one.
        statistics_batches: for the batch-norm statistics; by default the whole training set.
        precision: as in `evaluate`.
        workers: processes that read image files.
        trust: as in `evaluate`.
        progress: True for bars, False for none, or a function of (what, done, total).
    """
    values.whole("passes", passes, 1)
    several = values.all_of("evaluate_dropout", runs, (Run, str, os.PathLike), "a run, its folder, or several of them")
    opened = [one if isinstance(one, Run) else Run.open(one) for one in several]
    bench = workbench(data, Execution(device=device, precision=precision, workers=workers).resolved(), trust)
    with stop_on_signals() as stop, bars(progress) as shown:
        told = partial(heeding, stop, shown)
        return share(
            [bench(run) for run in opened],
            lambda one: _measure(one, passes, statistics_batches, precision, told),
            stop,
        )


def _measure(bench: Bench, passes: int, statistics: int | None, precision: str, progress: Progress) -> Measured:
    """Return what is there, or measure it."""
    shelf, key = Shelf(bench.run.folder / FILE, bench.recipe.key), key_of(bench, passes, statistics)
    if (found := shelf.find(key, precision)) is not None:
        return found
    tick = counted(progress, f"{bench.run.folder.name}: dropout", 0, passes * len(bench.splits))
    predictor = bench.predictor(bench.splits, statistics)
    predictor(bench.weights(to_place(bench.shape.midpoint().tolist())))  # its weights and statistics stay
    answers = {split: _answers(bench, predictor, split, passes, tick) for split in bench.splits}
    made = Measured.of(key, environment(bench.execution), answers, predictor.labels)
    shelf.add(made)
    return made


def key_of(bench: Bench, passes: int, statistics: int | None = None) -> dict[str, Any]:
    """Return what tells one measurement of this kind from another."""
    return {"family": bench.checksum, "passes": passes, "batch": bench.recipe.batch, "batches": statistics}


@torch.no_grad()
def _answers(bench: Bench, predictor: Predictor, split: str, passes: int, tick: Any) -> Tensor:
    """Return the log of the mean of the probabilities over all passes, [n, classes]."""
    recipe, execution, device = bench.recipe, bench.execution, predictor.device
    batches = evaluation_batches(getattr(bench.dataset, split), recipe, bench.dataset, execution)
    low = execution.precision == "bfloat16"
    logits = []
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.autocast(device.type, torch.bfloat16, enabled=low, cache_enabled=False),
        dropping(predictor.network) as network,
    ):
        torch.manual_seed(streams.number(recipe.seed, "dropout"))
        for _ in range(passes):
            logits.append(torch.cat([network(x).float() for x, _ in batches]))
            tick(1)
    return metrics.log_mean(torch.stack(logits))
