"""Many runs on a cluster: cut into tasks, given away, shown here, and stopped from here."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.experiments import locks
from subspaces.experiments.data import loading
from subspaces.experiments.training import trunks
from subspaces.experiments.training.afar import Outcome, Site, Then, look, work
from subspaces.experiments.training.cluster import PAUSE, RETRIES, Needs, Tasks, joined
from subspaces.experiments.training.display import Mode, display
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.groups import groups
from subspaces.experiments.training.loop import Held, crews
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.signals import Stopped, stop_on_signals
from subspaces.experiments.training.trainer import LastTrainingError, TrainingError
from subspaces.experiments.training.turns import Failure
from subspaces.experiments.training.world import LostError

PATIENCE = 90.0  # seconds until what another machine has written must be seen here


@contextmanager
def training(
    recipes: Sequence[Recipe],
    execution: Execution,
    *,
    data: Path | None,
    out: Path,
    show: Mode,
    tensorboard: bool,
    then: Then | None,
) -> Iterator[Callable[[Sequence[Run], Held], list[Failure]]]:
    """Join a cluster, and yield what trains runs of these recipes on it and returns what went wrong with some."""
    with ExitStack() as stack:
        with stop_on_signals() as stop:
            cluster = stack.enter_context(joined(str(execution.ray)))
            stack.enter_context(locks.made(out))
            mark = stack.enter_context(_mark(out.absolute()))
            needs = cluster.needs(execution)
            site = _site(recipes, execution, needs, data, mark, tensorboard=tensorboard, then=then)
            _check_machines(cluster.everywhere(look, needs, stop, site, _kinds(recipes)))
            stop.heed()
        if show == "bar":
            sys.stderr.write(f"training on {cluster}, with {needs} for each run or stack of runs\n")
        yield lambda runs, held: _Sweep(cluster.tasks(work, needs), site, runs, held).carry_out(show)


def _kinds(recipes: Sequence[Recipe]) -> list[dict[str, Any]]:
    """Return the fields of one recipe of each kind: seeds make no difference to what a machine must have."""
    return list({replace(one, seed=0).key: one.to_dict() for one in recipes}.values())


def _site(
    recipes: Sequence[Recipe], execution: Execution, needs: Needs, data: Path | None, mark: Path, **more: Any
) -> Site:
    """Return what all tasks need to know."""
    folder = (data or Path(loading.ROOT)).absolute()
    device = "cuda" if needs.gpus else "cpu"
    points = entry_points(group="subspaces")
    return Site(
        execution=replace(execution.off_cluster(), device=device),
        threads=needs.cpus,
        out=mark.parent,
        mark=mark.name,
        signed=mark.read_text(),
        data=folder,
        has_data=folder.is_dir(),
        path=tuple(os.path.abspath(entry) for entry in sys.path),
        modules=tuple(point.module for point in points if point.module in sys.modules),
        methods=_methods(recipes),
        **more,
    )


@contextmanager
def _mark(out: Path) -> Iterator[Path]:
    """Yield a file by which others know the folder; what a killed process leaves of it is swept with all else."""
    path = out / f".cluster.{os.urandom(4).hex()}.partial"
    with locks.attempt(path, keep=False):
        yield path


def _methods(recipes: Sequence[Recipe]) -> bytes:
    """Return the methods that others have added, as far as recipes name them, in a form that can be sent."""
    from ray import cloudpickle

    found = {type(one.definition) for one in recipes}
    added = [kind for kind in found if not kind.__module__.startswith("subspaces.")]
    try:
        return bytes(cloudpickle.dumps(added))
    except Exception as error:
        names = ", ".join(kind.name for kind in added)
        raise ArgumentError(
            f"method={names!r}: it cannot be sent to a cluster ({error}): define it in a module that workers can import"
        ) from None


def _check_machines(looked: Iterable[tuple[str, Any]]) -> None:
    """Refuse a cluster with a machine that cannot train the recipes, given what each has seen."""
    for name, found in looked:
        if isinstance(found, Exception):  # it has not even come to look
            *_, last = str(found).splitlines() or [type(found).__name__]
            raise OSError(f"{name}, a machine of the cluster, cannot run subspaces: {last}; install it there as here")
        if found is not None:
            raise OSError(f"{name}, a machine of the cluster, cannot train this: {found}")


class _Sweep:
    """Runs that are given to a cluster until all are trained, or one asks to stop."""

    def __init__(self, tasks: Tasks, site: Site, runs: Sequence[Run], held: Held) -> None:
        self.tasks, self.site, self.held = tasks, site, held
        self.names = {run.folder.name: run for run in runs}
        self.waiting = [crew for some in groups(runs) for crew in crews(sorted(some, key=_trunk), site.execution)]
        self.failures: list[Failure] = []
        self.error: Exception | None = None

    def carry_out(self, show: Mode) -> list[Failure]:
        """Have all trained, and return what went wrong with some of them."""
        with stop_on_signals() as stop, display(show, tensorboard=False) as shown, self.tasks:
            while self.waiting or self.tasks.running:
                if stop.signal is not None or self.error is not None:
                    self.waiting.clear()
                    self.tasks.stop()
                self._begin()
                ended, events = self.tasks.ended()
                for what, name, *rest in events:
                    getattr(shown, what)(self.names[name], *rest)
                for crew, outcome in ended:
                    self._end(crew, outcome)
            if isinstance(self.error, LastTrainingError):
                raise self.error
            stop.heed()
        if self.error is not None:
            raise self.error
        return self.failures

    def _begin(self) -> None:
        """Give the cluster all that need not wait for a trunk that another leaves."""
        ahead = [run for crew in self.tasks.running.values() for run in crew if run.recipe.trunk]
        for crew in list(self.waiting):
            if not any(_leads(one, run) for one in ahead for run in crew):
                self.waiting.remove(crew)
                self.tasks.begin(crew, self.site, [run.recipe.to_dict() for run in crew])
            ahead += [run for run in crew if run.recipe.trunk]

    def _end(self, crew: list[Run], outcome: Any) -> None:
        """Note what came of a crew."""
        held = outcome.held if isinstance(outcome, Outcome) else {}
        error = outcome.error if isinstance(outcome, Outcome) else outcome
        for name, holder in held.items():
            self.held(self.names[name], holder)
        if error is None:
            error = _awaited([run for run in crew if run.folder.name not in held])
        if error is None or (isinstance(error, (Stopped, LostError)) and self.tasks.stopping):
            return
        if isinstance(error, Stopped):  # by its machine, which is taken away: it continues elsewhere
            self.waiting.append(crew)
        elif isinstance(error, LostError):
            names = ", ".join(run.folder.name for run in crew)
            times = f"{RETRIES + 1} time{'s' * (RETRIES > 0)}"
            self.failures.append(TrainingError(f"{names}: lost with its worker, {times}: {error}"))
        elif isinstance(error, Failure) and not isinstance(error, LastTrainingError):
            self.failures.append(error)
        else:
            self.error = self.error or error


def _trunk(run: Run) -> int:
    return run.recipe.trunk


def _leads(first: Run, run: Run) -> bool:
    """Say whether a run is about to leave a trunk for another."""
    if not 0 < first.recipe.trunk <= run.recipe.trunk or trunks.stem(first.recipe) != trunks.stem(run.recipe):
        return False
    return not trunks.path(first, first.recipe.trunk).is_file()


def _awaited(runs: Sequence[Run]) -> OSError | None:
    """Wait until runs that another machine has finished are seen here: a file system may be late, but not for ever."""
    end = time.monotonic() + PATIENCE
    for run in runs:
        while not run.finished:
            if time.monotonic() > end:
                return OSError(f"{run.folder}: a machine of the cluster has trained it, and it is not seen here")
            time.sleep(PAUSE)
            with suppress(OSError):
                os.listdir(run.folder)  # which makes a network's file system look again
    return None
