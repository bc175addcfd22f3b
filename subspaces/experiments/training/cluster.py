"""A Ray cluster: joined or started, looked over, and given tasks; Ray is imported here alone, when it is asked for."""

import importlib.util
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from typing import Any, NamedTuple

from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.signals import Stop, Stopped
from subspaces.experiments.training.world import LostError, started

RETRIES = 5  # times that a task begins again whose worker was lost
SECONDS = 5.0  # for an address to answer
PAUSE = 0.1  # seconds between two looks at it
AGAIN = 2.0  # seconds between two requests to stop
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # what Ray speaks, and empty settings
SETTINGS = 4  # the kind of its answer
LOCAL = "local"

Event = tuple[Any, ...]


class Needs(NamedTuple):
    """What each task takes of a machine."""

    cpus: int
    gpus: float

    def met_by(self, resources: Mapping[str, float]) -> bool:
        """Say whether a machine with these resources has enough, once it has nothing else to do."""
        return resources.get("CPU", 0) >= self.cpus and resources.get("GPU", 0) >= self.gpus

    def __str__(self) -> str:
        gpu = "" if not self.gpus else " and a GPU" if self.gpus == 1 else f" and {self.gpus:g} of a GPU"
        return f"{self.cpus} core{'s' * (self.cpus > 1)}{gpu}"


def check(execution: Execution) -> None:
    """Refuse a cluster, as far as it shows on this machine that there can be none."""
    if importlib.util.find_spec("ray") is None:
        raise MissingPackageError(
            "training on a Ray cluster needs Ray, which is not installed: pip install 'subspaces[ray]'"
        )
    _, processes = started()
    if processes > 1:
        raise ArgumentError(
            f"ray={execution.ray!r}: this is one of {processes} processes that share a run (WORLD_SIZE), and Ray would "
            "start others; start it without torchrun"
        )


@contextmanager
def joined(address: str) -> Iterator["Cluster"]:
    """Connect to a cluster, or start one on this machine, which then also ends here."""
    import ray

    if ray.is_initialized():
        ours = ray.get_runtime_context().gcs_address
        if address not in ("auto", ours):
            raise ArgumentError(f"ray={address!r}: this process is connected to the cluster at {ours}; expected auto")
        yield Cluster(ray)
        return
    try:
        _connect(ray, _found(ray) if address == "auto" else address)
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _found(ray: Any) -> str:
    """Return the address of the cluster that the environment names, or that runs on this machine, else "local"."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named not in ("", "auto"):
        return named
    address = ray._private.utils.read_ray_address()  # of the last one that was started, which may be no more
    try:
        _check_answer(address or "")
    except (ConnectionError, ValueError):
        return LOCAL
    return str(address)


def _connect(ray: Any, address: str) -> None:
    """Call `ray.init`, which would wait for minutes for a cluster that is not there, and talk."""
    local = address == LOCAL
    if not local:
        _check_answer(address)
    handler = signal.getsignal(signal.SIGTERM)
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update({name: value for name, value in QUIET.items() if before[name] is None})
    try:
        with chdir("/"):  # workers import from the current folder before all else, which may be somebody else's
            settings: dict[str, Any] = {"include_dashboard": False} if local else {}
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **settings)
    except SystemExit:  # which is what Ray makes of SIGTERM
        raise Stopped("SIGTERM") from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        what = "no Ray cluster could be started here" if local else f"the Ray cluster at {address} could not be joined"
        remedy = "" if local else "; expected one of its machines, and RAY_AUTH_MODE=token if it asks for a token"
        raise ConnectionError(f"{what}: {' '.join(str(error).split())}{remedy}") from None
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else None
        if signal.getsignal(signal.SIGTERM) is not handler:
            signal.signal(signal.SIGTERM, handler)


def _check_answer(address: str) -> None:
    """Refuse an address where nobody speaks Ray's language."""
    remedy = "start one with `ray start --head`, or leave the address out for one on this machine"
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise ArgumentError(f"no Ray cluster is called {address!r}: expected HOST:PORT, on a machine of the cluster")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as line:
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
                line.settimeout(SECONDS)
                line.sendall(HELLO)
                answer = line.recv(9)
                if len(answer) < 9 or answer[3] != SETTINGS:
                    raise ConnectionError("something else does")
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"no Ray cluster answers at {address} ({error}): {remedy}") from None


class Cluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.machines = [node for node in ray.nodes() if node["Alive"]]

    def needs(self, execution: Execution) -> Needs:
        """Return what each task takes, which one of the machines must have, or no task would ever begin."""
        gpus = 0.0 if execution.device == "cpu" else execution.gpus_per_run or 1 / (execution.at_once or 1)
        if execution.device == "auto" and execution.gpus_per_run is None and not self.total("GPU"):
            gpus = 0.0
        needs = Needs(execution.cpus_per_run or 1, math.floor(gpus * 1e4) / 1e4)  # Ray counts in ten-thousandths
        if not any(needs.met_by(node["Resources"]) for node in self.machines):
            has = ", ".join(f"{node['NodeManagerHostname']}: {_words(node['Resources'])}" for node in self.machines[:8])
            remedy = "use --device cpu, or ask for less (--gpus-per-run)" if gpus else "ask for less (--cpus-per-run)"
            raise ArgumentError(f"each run needs {needs}, and no machine of the cluster has that ({has}): {remedy}")
        return needs

    def total(self, kind: str) -> float:
        """Return how much of a resource all machines have."""
        return float(sum(node["Resources"].get(kind, 0.0) for node in self.machines))

    def __str__(self) -> str:
        count = len(self.machines)
        both = _words({kind: self.total(kind) for kind in ("CPU", "GPU")})
        return f"{count} machine{'s' * (count != 1)} with {both}"

    def everywhere(
        self, work: Callable[..., Any], needs: Needs, stop: Stop, *arguments: Any
    ) -> Iterator[tuple[str, Any]]:
        """Do something on every machine where tasks can be, and yield its name and what came of it, or an exception."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        refs = {}
        for node in self.machines:
            if needs.met_by(node["Resources"]):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = self.ray.remote(work).options(num_cpus=0, max_retries=RETRIES, scheduling_strategy=there)
                refs[node["NodeManagerHostname"], node["NodeID"]] = task.remote(*arguments)
        for (name, _), ref in refs.items():
            while not self.ray.wait([ref], timeout=PAUSE)[0]:
                stop.heed()
            yield name, self.result(ref)

    def result(self, ref: Any) -> Any:
        """Return what a task returned, or the exception that it raised, or that it was lost."""
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            return error.cause if isinstance(error.cause, Exception) else error
        except self.ray.exceptions.RayError as error:
            return LostError(" ".join(str(error).split()) or type(error).__name__)

    def tasks(self, work: Callable[..., Any], needs: Needs) -> "Tasks":
        """Return what gives machines pieces of work."""
        return Tasks(self, work, needs)


class Tasks:
    """Pieces of work on the machines of a cluster; one whose worker is lost is begun again.

    `work` is called with what `begin` is given, and a queue into which it puts lists of events.
    """

    def __init__(self, cluster: Cluster, work: Callable[..., Any], needs: Needs) -> None:
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.cluster, self.ray = cluster, cluster.ray
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_retries": RETRIES}
        self.work = self.ray.remote(work).options(**options, scheduling_strategy="SPREAD")
        here = NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=False)
        self.events = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        self.running: dict[Any, Any] = {}
        self.asked: float | None = None  # when all were asked to stop

    def __enter__(self) -> "Tasks":
        return self

    def __exit__(self, *_: object) -> None:
        """End what is still running, at once: nobody waits for it any more."""
        for ref in self.running:
            self.ray.cancel(ref, force=True)

    def begin(self, piece: Any, *arguments: Any) -> None:
        """Have a piece done, as soon as there is a place for it."""
        self.running[self.work.remote(*arguments, self.events)] = piece

    def ended(self) -> tuple[list[tuple[Any, Any]], list[Event]]:
        """Wait, and return the pieces that have ended with what came of each, and the events told until then."""
        refs = list(self.running)
        done = self.ray.wait(refs, num_returns=len(refs), timeout=PAUSE)[0] if refs else []
        results = [(self.running.pop(ref), self.cluster.result(ref)) for ref in done]
        told = self.events.get_nowait_batch(self.events.qsize())
        return results, [event for some in told for event in some]

    @property
    def stopping(self) -> bool:
        """Whether all were asked to stop."""
        return self.asked is not None

    def stop(self) -> None:
        """Ask all to stop, again and again: one that is just about to begin may not hear it."""
        if self.asked is None or time.monotonic() - self.asked > AGAIN:
            self.asked = time.monotonic()
            for ref in self.running:
                self.ray.cancel(ref)


def _words(resources: Mapping[str, float]) -> str:
    """Return the cores and GPUs of a machine as one says them."""
    cpus, gpus = (resources.get(kind, 0) for kind in ("CPU", "GPU"))
    return f"{cpus:g} cores" + (f" and {gpus:g} GPUs" if gpus else ", no GPU")
