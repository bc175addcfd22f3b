"""Runs on a Ray cluster: each task trains one, or a stack of them, into a folder that all machines share.

A task does what one process with as many threads would do, and so makes, bit for bit, the same. Ray is imported here
alone, when it is asked for.
"""

import importlib.util
import logging
import math
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from subspaces.core.memory import keep_memory
from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.experiments import locks
from subspaces.experiments.data import loading
from subspaces.experiments.locks import Stopped, stop_on_signals
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training.display import Display, Mode
from subspaces.experiments.training.execution import Execution, started
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.scheduling import Failure, groups, stacks
from subspaces.experiments.training.trainer import TrainingError

RETRIES = 5  # times that a task begins again whose worker was lost
CONNECT, PAUSE, AGAIN = 5.0, 0.1, 2.0  # seconds for an address to answer, between looks, between requests to stop
PATIENCE = 90.0  # seconds until what another machine has written must be seen here
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
Trains = Callable[..., list[Run]]
Then = Callable[..., None] | None  # called with a run, data= and execution=


def check(execution: Execution) -> None:
    """Refuse a cluster, as far as it shows on this machine that there can be none."""
    if importlib.util.find_spec("ray") is None:
        raise MissingPackageError("training on a Ray cluster needs Ray: pip install 'subspaces[ray]'")
    if (processes := started()[1]) > 1:
        raise ArgumentError(f"ray={execution.ray!r}: this is one of {processes} processes; start it without torchrun")


def work(recipes: Sequence[Mapping[str, Any]], site: Mapping[str, Any]) -> None:
    """Train recipes in a worker; where its machine lacks something, the error names that."""
    with stop_on_signals(patient=True) as stop:  # Ray's request to stop is a signal too, and is repeated
        try:
            for path in site["sees"]:
                if not path.exists():
                    raise OSError(f"it does not see {path}: expected a file system that all machines share")
            torch.set_num_threads(site["threads"])
            keep_memory()
            sys.path += [entry for entry in site["path"] if entry not in sys.path]
            for kind in pickle.loads(site["methods"]):
                if kind.name in METHODS:
                    METHODS.remove(kind.name)
                METHODS.add(kind)
            stop.raise_if_stopped()
            for run in site["train"]([Recipe.from_dict(one) for one in recipes]):
                stop.raise_if_stopped()
                if site["then"] is not None:
                    site["then"](run)
        except (OSError, ImportError) as error:
            raise OSError(f"{socket.gethostname()}, a machine of the cluster, cannot train this: {error}") from error


def train(
    runs: Sequence[Run], train_here: Trains, execution: Execution, data: Path | None, out: Path, show: Mode, then: Then
) -> list[Failure]:
    """Train runs on a cluster, each as `train_here` would and with what comes `then`; return what went wrong."""
    for run in runs:
        if run.recipe.network.startswith("__main__:"):
            raise ArgumentError(f"network {run.recipe.network!r}: no other process can import it; move it to a module")
    out, data = out.absolute(), (data or Path(loading.ROOT)).absolute()
    mark = out / f".cluster.{os.urandom(4).hex()}.partial"  # as those are that `sweep` removes
    # The handlers of signals are put back, which Ray replaces.
    with stop_on_signals() as stop, connected(str(execution.ray)) as ray:
        stop.raise_if_stopped()
        cpus, gpus = resources(ray.nodes(), execution)
        there = replace(execution, ray=None, cpus_per_run=None, gpus_per_run=None, device="cuda" if gpus else "cpu")
        kinds = {type(run.recipe.definition) for run in runs}
        site = {
            "sees": [mark, data] if data.is_dir() else [mark],
            "threads": cpus,
            "path": [os.path.abspath(entry) for entry in sys.path],
            "methods": ray.cloudpickle.dumps([kind for kind in kinds if not kind.__module__.startswith("subspaces.")]),
            "train": partial(train_here, execution=there, data=data, out=out, show="quiet"),
            "then": partial(then, data=data, execution=there) if then else None,
        }
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES, "scheduling_strategy": "SPREAD"}
        task = ray.remote(work).options(**options)
        pieces = [piece for some in groups(runs) for piece in stacks(some, execution)]
        with locks.made(out), locks.attempt(mark, keep=False):
            return _train(ray, lambda piece: task.remote([run.recipe.to_dict() for run in piece], site), pieces, show)


def _train(ray: Any, begin: Callable[..., Any], pieces: Sequence[list[Run]], show: Mode) -> list[Failure]:
    """Have all pieces trained, and return what went wrong with some of their runs; any other error stops all."""
    failures, fatal, asked = list[Failure](), list[Exception](), 0.0
    with stop_on_signals() as stop, Display(show) as shown:
        pending = {begin(piece): piece for piece in pieces}
        try:
            while pending:
                shown.progress("runs on the cluster", len(pieces) - len(pending), len(pieces))
                stopping = stop.signal is not None or fatal
                if stopping and time.monotonic() - asked > AGAIN:
                    asked = time.monotonic()
                    for ref in reversed(pending):  # first those that would take the places of others
                        ray.cancel(ref)
                for ref in ray.wait(list(pending), timeout=PAUSE)[0]:
                    piece = pending.pop(ref)
                    error = _outcome(ray, ref, piece)
                    if isinstance(error, Failure):
                        failures.append(error)
                    elif isinstance(error, Exception) and not isinstance(error, Stopped):
                        fatal.append(error)
                    elif error is not None and not stopping:  # its machine is taken away: it continues elsewhere
                        pending[begin(piece)] = piece
                    for run in piece if show == "json" and error is None else ():
                        for row in run.log():
                            shown.report(run, row)
        finally:
            for ref in pending:
                ray.cancel(ref, force=True)
        if fatal:
            raise fatal[0]
        stop.raise_if_stopped()
    return failures


def _outcome(ray: Any, ref: Any, runs: Sequence[Run]) -> Exception | None:
    """Return the error that a task ended with; None if its runs are trained."""
    try:
        ray.get(ref)
    except ray.exceptions.TaskCancelledError:
        return Stopped("cancelled")
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        if "failed to import" in str(cause):
            last = str(cause).splitlines()[-1]
            return OSError(f"a machine of the cluster cannot run subspaces: {last}; install it there as here")
        cause.add_note(str(error))  # where it was raised
        return cause
    except ray.exceptions.RayError as error:
        names = ", ".join(run.folder.name for run in runs)
        return TrainingError(f"{names}: lost with its worker, {RETRIES + 1} times: {' '.join(str(error).split())}")
    end = time.monotonic() + PATIENCE
    while unseen := [run.folder for run in runs if not run.finished]:  # a file system may be late, but not for ever
        if time.monotonic() > end:
            return OSError(f"{unseen[0]}: a machine of the cluster has trained it, and it is not seen here")
        time.sleep(PAUSE)
    return None


def resources(machines: Sequence[Mapping[str, Any]], execution: Execution) -> tuple[int, float]:
    """Return the cores and GPUs that each task takes, which one of the machines must have, or none would ever begin."""
    has = [one["Resources"] for one in machines if one["Alive"]]
    cpus, gpus = execution.cpus_per_run or 1, execution.gpus_per_run or 1 / (execution.at_once or 1)
    optional = execution.device == "auto" and execution.gpus_per_run is None
    if execution.device == "cpu" or (optional and not any(one.get("GPU") for one in has)):
        gpus = 0.0
    if not any(one.get("CPU", 0) >= cpus and one.get("GPU", 0) >= gpus for one in has):
        listed = ", ".join(f"{one.get('CPU', 0):g} and {one.get('GPU', 0):g}" for one in has)
        asked = f"each run needs {cpus} cores and {gpus:g} GPUs, and no machine of the cluster has that ({listed})"
        raise ArgumentError(f"{asked}: use --device cpu, or ask for less (--cpus-per-run, --gpus-per-run)")
    return cpus, math.floor(gpus * 1e4) / 1e4  # Ray counts in ten-thousandths


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine, which then also ends here, and yield Ray."""
    import ray

    if ray.is_initialized():  # by the caller, whose cluster it is
        yield ray
        return
    found, new = address_of(ray, address), QUIET.keys() - os.environ.keys()
    os.environ.update({name: QUIET[name] for name in new})
    options = {"include_dashboard": False if found == "local" else None, "logging_level": logging.CRITICAL}
    try:
        with chdir("/"):  # workers import from the current folder before all else
            ray.init(found, log_to_driver=False, **options)
    except (RuntimeError, ValueError, ConnectionError) as error:  # other versions, or no token
        raise ConnectionError(f"ray={found!r}: {' '.join(str(error).split())}") from None
    finally:
        for name in new:
            del os.environ[name]
    try:
        yield ray
    finally:
        ray.shutdown()


def address_of(ray: Any, address: str) -> str:
    """Return HOST:PORT of a cluster that answers, or "local"; "auto" is what the environment or this machine notes."""
    named = (os.environ.get("RAY_ADDRESS") or "auto") if address == "auto" else address
    found = ray._private.utils.read_ray_address() or "local" if named == "auto" else named
    if found == "local":
        return found
    host, _, port = found.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()  # Ray would wait for minutes
    except (OSError, OverflowError, ValueError) as error:
        if named == "auto":
            return "local"  # that cluster is no more
        remedy = "expected HOST:PORT; start one with `ray start --head`, or leave the address out for one here"
        raise ConnectionError(f"no Ray cluster answers at {found} ({error}): {remedy}") from None
    return found
