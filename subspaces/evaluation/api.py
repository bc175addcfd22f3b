"""Evaluate: from a family and its data, or from finished runs, to records."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from subspaces import data as datasets
from subspaces import template, values
from subspaces.data.dataset import Progress
from subspaces.ensembles import Ensemble
from subspaces.evaluation import choices, examples, measuring
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.journal import Journal, RunJournal
from subspaces.evaluation.metrics import Metric, given
from subspaces.evaluation.plane import Network, Span, at_middle, corners, unmeasured
from subspaces.evaluation.points import Place, coefficients, kind
from subspaces.evaluation.record import Record
from subspaces.evaluation.run_subject import RunSubject
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import FamilySubject, NetworksSubject, Subject, members_of
from subspaces.evaluation.tasks import Task, task_of
from subspaces.points import to_alpha
from subspaces.subspace import Subspace
from subspaces.training import sharing
from subspaces.training.config import Execution
from subspaces.training.runs import Run
from subspaces.training.sharing import Waiting
from subspaces.training.signals import Stop, stop_on_signals

OneRun = Run | str | os.PathLike[str]
Metrics = Mapping[str, Any] | Iterable[Metric] | None
R = TypeVar("R")


def evaluate_runs(
    runs: OneRun | Sequence[OneRun],
    settings: Settings,
    *,
    data: str | os.PathLike[str] | None = None,
    execution: Execution,
    trust: bool = False,
    progress: bool | Progress = True,
) -> list[Record]:
    """Measure what is missing of finished runs; see `subspaces.api.evaluate`."""
    several = values.all_of("evaluate", runs, (Run, str, os.PathLike), "a run, its folder, or several of them")
    data = None if data is None else values.folder("data", data)
    known = [one for one in several if isinstance(one, Run) or Run.begun([one])]
    if several and not known:
        raise ValueError(f"{several[0]}: holds no run that was begun; expected the folder of a finished one")
    opened = [one if isinstance(one, Run) else Run.open(values.folder("evaluate", one)) for one in known]
    open_run = run_subjects(data, execution, trust)
    subjects = list(dict.fromkeys(open_run(run) for run in opened))
    others = [named_network(name, open_run) for name in settings.through]
    for one in subjects:  # whatever is wrong is said before anything is measured
        settings.chosen_on(one)
        if settings.wants_plane:
            check_alike(one, others)
            corners(one, others)
    with stop_on_signals() as stop, bars(progress) as shown:
        told = partial(heeding, stop, shown)

        def work(one: RunSubject) -> Record:
            found = measure_all(RunJournal(one, one.task.metrics, settings), others, told)
            one.release()
            return found

        return share(subjects, work, stop)


def evaluate_networks(
    networks: nn.Module | Sequence[nn.Module],
    settings: Settings,
    *,
    loaders: Mapping[str, Iterable[Any]],
    statistics: Iterable[Any] | None,
    task: Task | str | None = None,
    metrics: Metrics = None,
    name: str | None = None,
    progress: bool | Progress = True,
) -> Record:
    """Measure a family, a network or several of them on loaders; see `subspaces.api.evaluate`."""
    chosen = task_of(task)
    measured = _measured_by(chosen, metrics)
    subject = _subject(networks, chosen, loaders, statistics, name)
    others = [
        Network(f"network {number}", module=module) if isinstance(module, nn.Module) else module
        for number, module in enumerate(settings.through, 1)
    ]
    settings.chosen_on(subject)
    with bars(progress) as shown, torch.random.fork_rng(), _as_they_were(networks):
        return measure_all(Journal(subject, measured, settings), others, shown)


def _measured_by(task: Task, more: Metrics) -> list[Metric]:
    """Return the metrics of a task and those that are asked for beside them, each under a name of its own."""
    found = [*task.metrics, *given(more)]
    names = [metric.name for metric in found]
    if not found:
        raise ValueError(f"task={values.shown(task)}: it has no metrics; give it some, or pass metrics=")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"metrics={{{twice[0]!r}: …}}: the task measures {twice[0]!r} already; expected another name")
    return found


def _subject(
    networks: nn.Module | Sequence[nn.Module],
    task: Task,
    loaders: Mapping[str, Iterable[Any]],
    statistics: Iterable[Any] | None,
    name: str | None,
) -> Subject:
    alone = template.unwrapped(networks) if isinstance(networks, nn.Module) else None
    if isinstance(alone, Subspace):
        return FamilySubject(alone, task, loaders, statistics, name=name or "family")
    if isinstance(alone, Ensemble):
        return NetworksSubject(members_of(alone), task, loaders, name or "ensemble")
    several = [networks] if isinstance(networks, nn.Module) else list(networks)
    return NetworksSubject(several, task, loaders, name or ("network" if len(several) == 1 else "ensemble"))


class _as_they_were:  # noqa: N801
    """Gives modules back in the modes in which they came."""

    def __init__(self, networks: nn.Module | Sequence[nn.Module]) -> None:
        several = [networks] if isinstance(networks, nn.Module) else networks
        self.modes = {part: part.training for network in several for part in network.modules()}
        self.trained = {value: value.requires_grad for network in several for value in network.parameters()}

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """Set the modes."""
        for part, mode in self.modes.items():
            part.training = mode
        for value, trained in self.trained.items():
            value.requires_grad_(trained)


def measure_all(journal: Journal, others: Sequence[Network], progress: Progress) -> Record:
    """Measure what is missing of one subject, choose, and return its record."""
    settings, subject, record = journal.settings, journal.subject, journal.record
    try:
        items, family = measuring.items_of(subject, settings)
        missing = journal.missing(items)
        total, left = (sum(len(item.points) for item in some) for some in (items, missing))
        tick = counted(progress, subject.name, total - left, total)
        if missing:
            measuring.measure(journal, missing, subject.predictor(subject.splits, settings.statistics_batches), tick)
        journal.answer(family)
        points = {"points": measuring.points_to_check(subject)} if settings.check_statistics else {}
        if settings.wants_plane:
            points |= _plane(journal, Span(corners(subject, others)), progress)
        _check_statistics(journal, points, progress)
        _choose(journal)
        examples.renew(journal, bool(missing))
    finally:  # also when it was stopped, or failed: what was measured is kept
        journal.write()
    return record


def _plane(journal: Journal, span: Span, progress: Progress) -> dict[str, Any]:
    """Measure a plane, and return the cells of it at which the statistics may be checked."""
    settings, subject = journal.settings, journal.subject
    predictor = subject.predictor(["test"], settings.plane_statistics_batches)
    found = measuring.planned(journal, span, settings.cells, predictor)
    total = settings.cells**2
    left = len(unmeasured(found))
    tick = counted(progress, f"{subject.name}: plane", total - left, total)
    measuring.measure_plane(journal, found, span, predictor, tick)
    return {found.name: measuring.cells_to_check(span, found)}


def _check_statistics(journal: Journal, points: Mapping[str, Any], progress: Progress) -> None:
    """Repeat points and cells with other numbers of batches."""
    wanted = journal.settings.check_statistics
    total = len(wanted) * sum(map(len, points.values()))
    if total:
        tick = counted(progress, f"{journal.subject.name}: statistics", 0, total)
        for batches in wanted:
            for where, some in points.items():
                measuring.check_statistics(journal, where, some, batches, tick)


def _choose(journal: Journal) -> None:
    names = [metric.name for metric in measuring.shown_metrics(journal)]
    splits = journal.settings.chosen_on(journal.subject)
    chosen = choices.renew(journal.record, journal.predictions, splits, names)
    if chosen != journal.record.choices:
        journal.record.choices = chosen
        journal.touch()


# Runs


def run_subjects(
    data: str | os.PathLike[str] | None, execution: Execution, trust: bool = False
) -> Callable[[Run], RunSubject]:
    """Return a function that gives each run's subject, one for each folder, with data that runs may share."""
    load = cache(partial(_load, data))
    found: dict[Path, RunSubject] = {}

    def subject(run: Run) -> RunSubject:
        folder, one = run.folder.resolve(), run.recipe
        if folder not in found:
            _until_trained(run)
            read = partial(load, one.dataset, one.label_noise, one.validation, one.data_seed)
            found[folder] = RunSubject(run, read, execution, trust)
        return found[folder]

    return subject


def _load(
    data: str | os.PathLike[str] | None, name: str, label_noise: float, validation: int, seed: int
) -> datasets.Dataset:
    return datasets.load(name, data, label_noise=label_noise, validation=validation, seed=seed)


def _until_trained(run: Run) -> None:
    """Wait for a run that is not finished if another process is at it."""
    wait = Waiting("training")
    with stop_on_signals() as stop:
        while not run.finished and (holder := run.holder()) is not None:
            wait({run.folder.name: holder}, stop)
        stop.heed()


def share(subjects: Sequence[RunSubject], work: Callable[[RunSubject], R], stop: Stop) -> list[R]:
    """Do what is to be done with each run, together with other processes that do the same; see `sharing.share`."""

    def checked(one: RunSubject) -> R:
        one.check()  # it may be trained anew by now
        return work(one)

    return sharing.share(subjects, lambda one: one.run.attempt(), checked, lambda one: one.run.folder.name, stop)


def heeding(stop: Stop, progress: Progress, what: str, done: int, total: int) -> None:
    """Tell how far it is, and stop if that was asked for."""
    progress(what, done, total)
    stop.heed()


def parse_network(name: str | os.PathLike[str]) -> tuple[Path, Place | None]:
    """Return the folder of a run and the point that is named with it, `runs/a:0.3`; None for the midpoint."""
    path = Path(name)
    folder, colon, numbers = str(name).rpartition(":")
    if path.is_dir() or not colon:
        return path, None
    try:
        found = [float(number) for number in numbers.split(",")]
    except ValueError:
        raise ValueError(
            f"{str(name)!r}: expected a run folder, or one with a point such as {folder}:0.5 or {folder}:0.2,0.3,0.5"
        ) from None
    return Path(folder), found[0] if len(found) == 1 else tuple(found)


def named_network(name: Any, open_run: Callable[[Run], RunSubject]) -> Network:
    """Return a network of another run."""
    if isinstance(name, nn.Module):
        return Network("network", module=name)
    folder, place = parse_network(name)
    subject = open_run(Run.open(folder))
    shape, label = subject.shape, subject.label
    if place is None:
        return at_middle(subject, label if kind(shape) == "single" else f"{label} midpoint")
    checked = to_alpha(place, shape, shape.midpoint(), outside=True)
    if checked.shape != shape.point:
        raise ValueError(f"{str(name)!r}: expected one point of {shape}, {shape.domain}")
    return Network(f"{label} at {str(name).rpartition(':')[2]}", subject, tuple(coefficients(shape, place)))


def check_alike(first: RunSubject, others: Sequence[Network]) -> None:
    """Refuse networks of runs with other data sets or networks for one plane."""
    for other in others:
        if not isinstance(other.subject, RunSubject):
            continue
        for name, what in (("dataset", "data set"), ("network", "network")):
            ours, theirs = getattr(first.recipe, name), getattr(other.subject.recipe, name)
            if ours != theirs:
                raise ValueError(
                    f"{first.run.folder} has the {what} {ours!r} and {other.subject.run.folder} {theirs!r}: "
                    f"a plane goes through networks of one {what}"
                )
