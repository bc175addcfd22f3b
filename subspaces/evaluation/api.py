"""Evaluate runs: the call behind `subspaces evaluate`."""

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from subspaces import data as datasets
from subspaces import values
from subspaces.data.dataset import Progress
from subspaces.evaluation import checks, choices, landscape, strip
from subspaces.evaluation.bench import Bench
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.plane import Span
from subspaces.evaluation.points import GRID, plan
from subspaces.evaluation.record import Record
from subspaces.evaluation.settings import ChooseOn, Settings
from subspaces.evaluation.sweep import sweep
from subspaces.evaluation.through import Name, Network, corners, named
from subspaces.training import sharing
from subspaces.training.config import Execution, Precision
from subspaces.training.runs import Run
from subspaces.training.sharing import Waiting
from subspaces.training.signals import Stop, stop_on_signals

OneRun = Run | str | os.PathLike[str]
R = TypeVar("R")


def evaluate(
    runs: OneRun | Sequence[OneRun],
    *,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    grid: Sequence[float] | None = None,
    random: int = 6,
    triangle: int = 6,
    choose_on: ChooseOn = "auto",
    statistics_batches: int | None = None,
    plane: bool = False,
    through: Sequence[Name] = (),
    cells: int = 21,
    plane_statistics_batches: int = 50,
    check_statistics: Sequence[int] = (),
    precision: Precision = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
) -> list[Record]:
    """Measure finished runs and return what was measured, which is also `evaluation.json` in each run's folder.

    What is there already is not measured again, and what was interrupted continues. Processes with runs in common
    share them, as in `train`.

    Args:
        runs: a run, its folder, or several of them.
        data: the folder with the data sets.
        device: "cpu", "cuda", …; "auto" takes a GPU if there is one.
        grid: the points of a line or curve, by default 0, 0.05, …, 1; each comes with its opposite 1 - alpha,
            with which it forms an ensemble, and may be off the ends.
        random: how many random points of a simplex, and in their ensemble.
        triangle: into how many pieces the grid on a simplex of three vertices cuts an edge.
        choose_on: where the best points and the threshold are chosen: "validation", "test" (marked, as the
            paper does it) or "auto": on held-out images if the run has them, else nothing is chosen.
        statistics_batches: for the batch-norm statistics at each point; by default the whole training set.
        plane: also measure the plane through the first three vertices.
        through: networks of other runs for the plane, "RUN" (its midpoint) or "RUN:ALPHA"; with one of
            them the plane goes through the run's own ends, with two through its midpoint.
        cells: of the plane, in each direction.
        plane_statistics_batches: for the batch-norm statistics in each cell of the plane.
        check_statistics: repeat some points (and cells) with statistics of so many batches, to see whether it matters.
        precision: "float32" or "bfloat16"; "auto" is bfloat16 on a GPU, or whatever the numbers that are there have.
        workers: processes that read image files.
        trust: also call the network factories (`package.module:factory`) of runs that somebody else has trained.
        progress: True for bars, False for none, or a function of (what, done, total).

    Example:
        >>> (run,) = ss.train("digits-line")
        >>> (record,) = ss.evaluate(run)
        >>> record.rows[0].metrics["accuracy"]
    """
    wanted = Settings(
        grid=GRID if grid is None else grid,
        random=random,
        triangle=triangle,
        choose_on=choose_on,
        statistics_batches=statistics_batches,
        plane=plane,
        through=through,
        cells=cells,
        plane_statistics_batches=plane_statistics_batches,
        check_statistics=check_statistics,
        precision=precision,
    )
    several = values.all_of("evaluate", runs, (Run, str, os.PathLike), "a run, its folder, or several of them")
    data = None if data is None else values.folder("data", data)
    execution = Execution(device=device, precision=precision, workers=workers).resolved()
    if not isinstance(progress, bool):
        values.function("progress", progress, "True, False, or a function of (what, done, total)")
    known = [one for one in several if isinstance(one, Run) or Run.begun([one])]
    if several and not known:
        raise ValueError(f"{several[0]}: holds no run that was begun; expected the folder of a finished one")
    opened = [one if isinstance(one, Run) else Run.open(values.folder("evaluate", one)) for one in known]
    bench = workbench(data, execution, trust)
    benches = list(dict.fromkeys(bench(run) for run in opened))
    others = [named(name, bench) for name in wanted.through]
    for one in benches:  # whatever is wrong is said before anything is measured
        wanted.chosen_on(one)
        if wanted.wants_plane:
            corners(one, others)
    with stop_on_signals() as stop, bars(progress) as shown:
        told = partial(heeding, stop, shown)
        return share(benches, lambda one: _evaluate(one, others, wanted, told), stop)


def workbench(data: str | os.PathLike[str] | None, execution: Execution, trust: bool = False) -> Callable[[Run], Bench]:
    """Return a function that gives each run's bench, one for each folder, with data that runs may share."""
    load = cache(partial(_load, data))
    found: dict[Path, Bench] = {}

    def bench(run: Run) -> Bench:
        folder, one = run.folder.resolve(), run.recipe
        if folder not in found:
            _until_trained(run)
            read = partial(load, one.dataset, one.label_noise, one.validation, one.data_seed)
            found[folder] = Bench(run, read, execution, trust)
        return found[folder]

    return bench


def _until_trained(run: Run) -> None:
    """Wait for a run that is not finished if another process is at it."""
    wait = Waiting("training")
    with stop_on_signals() as stop:
        while not run.finished and (holder := run.holder()) is not None:
            wait({run.folder.name: holder}, stop)
        stop.heed()


def share(benches: Sequence[Bench], work: Callable[[Bench], R], stop: Stop) -> list[R]:
    """Do what is to be done with each run, together with other processes that do the same; see `sharing.share`."""

    def checked(bench: Bench) -> R:
        bench.check()  # it may be trained anew by now
        return work(bench)

    return sharing.share(benches, lambda bench: bench.run.attempt(), checked, lambda bench: bench.run.folder.name, stop)


def _load(
    data: str | os.PathLike[str] | None, name: str, label_noise: float, validation: int, seed: int
) -> datasets.Dataset:
    return datasets.load(name, data, label_noise=label_noise, validation=validation, seed=seed)


def heeding(stop: Stop, progress: Progress, what: str, done: int, total: int) -> None:
    """Tell how far it is, and stop if that was asked for."""
    progress(what, done, total)
    stop.heed()


def _evaluate(bench: Bench, others: Sequence[Network], wanted: Settings, progress: Progress) -> Record:
    """Measure what is missing of one run."""
    journal = Journal(bench, wanted.statistics_batches, wanted.precision)
    try:
        measured = _points(journal, wanted, progress)
        points = {"points": checks.points_of(bench)}
        if wanted.wants_plane:
            points |= _plane(journal, Span(corners(bench, others)), wanted, progress)
        _check_statistics(journal, points, wanted, progress)
        chosen = choices.renew(journal.record, journal.predictions, wanted.chosen_on(bench))
        if chosen != journal.record.choices:
            journal.record.choices = chosen
            journal.touch()
    finally:  # also when it was stopped, or failed: what was measured is kept
        journal.write()
    strip.renew(journal, measured)
    return journal.record


def _points(journal: Journal, wanted: Settings, progress: Progress) -> bool:
    """Measure points and their ensembles, and say whether there were any to measure."""
    bench = journal.bench
    items = plan(bench.shape, grid=wanted.grid, random=wanted.random, triangle=wanted.triangle, seed=bench.recipe.seed)
    missing = journal.missing(items)
    total, left = (sum(len(item.points) for item in some) for some in (items, missing))
    tick = counted(progress, bench.run.folder.name, total - left, total)
    if missing:
        sweep(journal, missing, bench.predictor(bench.splits, wanted.statistics_batches), tick)
    return bool(missing)


def _plane(journal: Journal, span: Span, wanted: Settings, progress: Progress) -> dict[str, checks.Points]:
    """Measure a plane, and return the cells of it at which the statistics may be checked."""
    predictor = journal.bench.predictor([landscape.SPLIT], wanted.plane_statistics_batches)
    plane = landscape.planned(journal, span, wanted.cells, predictor.statistics_images)
    total = wanted.cells**2
    left = len(landscape.unmeasured(plane))
    tick = counted(progress, f"{journal.folder.name}: plane", total - left, total)
    landscape.measure(journal, plane, span, predictor, tick)
    return {plane.name: checks.cells_of(span, plane.xs, plane.ys)}


def _check_statistics(journal: Journal, points: dict[str, checks.Points], wanted: Settings, progress: Progress) -> None:
    """Repeat points and cells with other numbers of batches."""
    total = len(wanted.check_statistics) * sum(map(len, points.values()))
    if total:
        tick = counted(progress, f"{journal.folder.name}: statistics", 0, total)
        for batches in wanted.check_statistics:
            for where, some in points.items():
                checks.check(journal, where, some, batches, tick)
