"""What a machine of a cluster does: it trains what it is told to, as one process would, and says how far it is.

It has the same runs as one program, the same images and as many threads as cores. So it makes of each run, bit for bit,
what a process with these threads would make of it elsewhere, in the same folder, which all machines see.
"""

import importlib
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training import feasible
from subspaces.experiments.training.cluster import Event
from subspaces.experiments.training.display import Display
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.groups import read_group, train_group
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.signals import stop_on_signals
from subspaces.version import __version__

PAUSE = 0.2  # seconds between two messages
Then = Callable[[Run, Path, Execution], None]
VERSIONS = {"subspaces": __version__, "torch": torch.__version__}


@dataclass(frozen=True)
class Site:
    """What all tasks need to know: how to train, where, and from where to import what others have added."""

    execution: Execution
    threads: int
    tensorboard: bool
    then: Then | None  # what is done with each run that is trained
    out: Path
    mark: str  # a file of `out`
    signed: str  # what it holds
    data: Path
    has_data: bool  # whether there is such a folder
    path: tuple[str, ...]  # that Python searches
    modules: tuple[str, ...]
    methods: bytes
    versions: Mapping[str, str] = field(default_factory=lambda: dict(VERSIONS))


@dataclass(frozen=True)
class Outcome:
    """What came of a task: who holds which runs, and the error that ended it, with where that was raised."""

    held: Mapping[str, str]
    error: Exception | None = None


def look(site: Site, recipes: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what keeps this machine from training recipes; None if nothing does."""
    different = [name for name, version in VERSIONS.items() if site.versions[name] != version]
    if different:
        name = different[0]
        return f"it has {name} {VERSIONS[name]}, and {site.versions[name]} is asked for: install the same version"
    try:
        _settle(site)
        wanted = [Recipe.from_dict(one) for one in recipes]
        _check_networks({one.network for one in wanted})
        feasible.check(wanted, site.data)
        if site.execution.device == "cpu":  # of a GPU, none is given to who looks
            site.execution.resolved()
    except Exception as error:
        return f"{error}"
    return None


def work(site: Site, recipes: Sequence[Mapping[str, Any]], events: Any) -> Outcome:
    """Train recipes as one program, and put what happens into a queue of Ray's."""
    held: dict[str, str] = {}
    try:
        with stop_on_signals(patient=True) as stop:  # Ray's request to stop is a signal too
            _settle(site)
            execution = site.execution.resolved()
            runs = [Run.under(site.out, Recipe.from_dict(one)) for one in recipes]
            dataset = read_group(runs, site.data, "quiet")
            stop.heed()
            watch = partial(telling, events, site.tensorboard)
            train_group(runs, dataset, execution, watch, lambda run, holder: held.update({run.folder.name: holder}))
            for run in runs:
                stop.heed()
                if site.then is not None and run.folder.name not in held:
                    site.then(run, site.data, site.execution)
    except Exception as error:
        return Outcome(held, _sendable(error))
    return Outcome(held)


def _settle(site: Site) -> None:
    """Import what this machine needs, and refuse it if it does not see the folders."""
    sys.path += [entry for entry in site.path if entry not in sys.path]
    torch.set_num_threads(site.threads)
    remedy = "expected a file system that all machines of the cluster share"
    try:
        found = (site.out / site.mark).read_text()
    except OSError as error:
        raise OSError(f"it does not see {site.out} ({error.strerror}): {remedy}") from None
    if found != site.signed:
        raise OSError(f"it has another folder {site.out}: {remedy}")
    if site.has_data and not site.data.is_dir():
        raise OSError(f"it has no folder {site.data}: {remedy}, or a copy of the data")
    for name in site.modules:
        importlib.import_module(name)
    for kind in pickle.loads(site.methods):
        if METHODS.get(kind.name) is not kind:
            if kind.name in METHODS:
                METHODS.remove(kind.name)
            METHODS.add(kind)


def _check_networks(names: Iterable[str]) -> None:
    """Refuse networks of modules that are not on this machine."""
    for name in names:
        module, colon, _ = name.partition(":")
        if module == "__main__":
            raise ArgumentError(f"network {name!r}: no other process can import it; move it to a module of its own")
        try:
            importlib.import_module(module) if colon else None
        except ImportError as error:
            raise MissingPackageError(f"network {name!r}: {error}; install it there, or see --code") from None


def _sendable(error: Exception) -> Exception:
    """Return an error with where it was raised; one that cannot be sent becomes one that can."""
    trace = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(trace)
    return error


class Telling(Display):
    """Puts what a display is told into a queue, some of it at once."""

    def __init__(self, queue: Any, tensorboard: bool, stack: ExitStack) -> None:
        super().__init__("quiet", tensorboard, stack, None)
        self.queue = queue
        self.events: list[Event] = []
        self.sent: Any = None
        self.sent_at = 0.0

    def begin(self, run: Run, epoch: int, done: int, batches: int) -> None:
        super().begin(run, epoch, done, batches)
        self._tell("begin", run, epoch, done, batches)

    def tick(self, run: Run, steps: int) -> None:
        super().tick(run, steps)
        self._tell("tick", run, steps)

    def report(self, run: Run, row: dict[str, Any]) -> None:
        super().report(run, row)
        self._tell("report", run, row)

    def _tell(self, what: str, run: Run, *rest: Any) -> None:
        self.events.append((what, run.folder.name, *rest))
        if time.monotonic() - self.sent_at > PAUSE:
            self.send()

    def send(self) -> None:
        """Send what is new, once what was sent before has arrived: Ray does not keep the order."""
        self.arrive()
        self.sent, self.sent_at, self.events = self.queue.actor.put_nowait.remote(self.events), time.monotonic(), []

    def arrive(self) -> None:
        """Wait until what was sent has arrived."""
        import ray

        with suppress(ray.exceptions.RayError):  # nobody is there to hear it
            ray.get(self.sent) if self.sent is not None else None


@contextmanager
def telling(queue: Any, tensorboard: bool) -> Iterator[Telling]:
    """Yield what puts all that happens to runs into a queue; all of it has arrived at the end."""
    with ExitStack() as stack:
        shown = Telling(queue, tensorboard, stack)
        try:
            yield shown
        finally:
            shown.send()
            shown.arrive()
