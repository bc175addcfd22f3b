"""Train runs to their end: epochs, logs, checkpoints, signals; several runs at once on one GPU."""

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subspaces import data, storage
from subspaces.batchnorm import recalibrate
from subspaces.training.config import Execution
from subspaces.training.engine import Engine, evaluation_loader, training_loader
from subspaces.training.runs import Run


class TrainingError(RuntimeError):
    """Training that cannot go on."""


class Stopped(Exception):  # noqa: N818
    """Training was asked to stop, and has written a checkpoint."""


@dataclass
class Stop:
    """Says whether a signal has asked to stop."""

    signal: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request; a second one acts at once."""
    stop = Stop()
    previous: dict[int, Any] = {}

    def request(number: int, frame: object) -> None:
        stop.signal = number
        for known, handler in previous.items():
            signal.signal(known, handler)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, request)
    except ValueError:  # not in the main thread: signals are someone else's business
        previous.clear()
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


Report = Callable[[Run, dict[str, Any]], None]


class Trainer:
    """One run in training. `steps()` queues one step at a time, so that several trainers can take turns."""

    def __init__(self, run: Run, dataset: data.Dataset, execution: Execution, report: Report) -> None:
        self.run = run
        self.dataset = dataset
        self.execution = execution
        self.report = report
        self.engine = Engine(run.recipe, dataset, execution)
        self.epoch = 0
        self.done = 0  # batches of this epoch
        self.rate = 0.0
        self.saved_at = time.monotonic()
        self.started_at = time.monotonic()
        self.pending: list[Callable[[], None]] = []
        self._resume()

    def _on_stream(self) -> Any:
        stream = self.engine.stream
        return torch.cuda.stream(stream) if stream is not None else nullcontext()

    def _resume(self) -> None:
        torch.manual_seed(self.run.recipe.seed)  # for dropout
        found = self.run.load_checkpoint()
        if found is None:
            return
        tensors, progress = found
        self.engine.load(tensors)
        if "generator" in tensors:
            torch.set_rng_state(tensors["generator"])
        self.epoch, self.done = progress["epoch"], progress["done"]

    def checkpoint(self) -> None:
        """Write the state, so that the same command continues from here."""
        with self._on_stream():
            self.flush()
            tensors = {**self.engine.state(), "generator": torch.get_rng_state()}
            self.run.save_checkpoint(tensors, {"epoch": self.epoch, "done": self.done})
        self.saved_at = time.monotonic()

    def flush(self) -> None:
        """Write the log lines that are still on their way from the device."""
        while self.pending:
            self.pending.pop(0)()

    def steps(self) -> Iterator[None]:
        """Train to the end, one step at each turn."""
        recipe = self.run.recipe
        sizes = self.engine.loader.sizes
        while self.epoch < recipe.epochs:
            self.rate = self.engine.set_epoch(self.epoch)
            if self.done == 0:
                with self._on_stream():
                    self.engine.start_epoch()
                self.started_at = time.monotonic()
            while self.done < len(sizes):
                with self._on_stream():
                    self.engine.step(sizes[self.done])
                self.done += 1
                yield
            with self._on_stream():
                self._end_epoch()
            if time.monotonic() - self.saved_at > self.execution.checkpoint_seconds:
                self.checkpoint()
        with self._on_stream():
            self._finish()

    def _end_epoch(self) -> None:
        """Queue the log line of the epoch; it is written when the device has got there."""
        self.flush()
        totals = torch.cat([self.engine.totals, self.engine.spread()])
        if totals.is_cuda:
            totals = totals.to("cpu", non_blocking=True)
        event = torch.cuda.Event() if self.engine.stream is not None else None
        if event is not None:
            event.record()
        self.epoch, self.done = self.epoch + 1, 0
        epoch, rate = self.epoch, self.rate
        every = self.execution.evaluate_every
        if every and epoch % every == 0 and epoch < self.run.recipe.epochs:
            scores = self.evaluate(self.execution.evaluate_batches)
        else:
            scores = {}
        started = self.started_at

        def write() -> None:
            if event is not None:
                event.synchronize()
            self._log(epoch, rate, totals, time.monotonic() - started, scores)

        self.pending.append(write)
        if event is None:
            self.flush()

    def _log(self, epoch: int, rate: float, totals: Tensor, seconds: float, scores: dict[str, float]) -> None:
        images = sum(self.engine.loader.sizes)
        loss, correct, l2, cos2 = totals.tolist()
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss of {self.run.folder.name} is {loss / images} in epoch {epoch}: lower --learning-rate "
                f"(now {self.run.recipe.learning_rate:g}) or check the data; the last good checkpoint is kept"
            )
        row = {
            "epoch": epoch,
            "loss": loss / images,
            "train_accuracy": correct / images,
            "learning_rate": rate,
            "l2": l2,
            "cos2": cos2,
            "images_per_second": images / max(seconds, 1e-9),
            **scores,
        }
        self.run.append_log(row)
        self.report(self.run, row)

    def evaluate(self, batches: int | None) -> dict[str, float]:
        """Return accuracy of the midpoint on held-out images; training is not disturbed: it is a copy."""
        recipe, execution = self.run.recipe, self.execution
        network = self.engine.family.midpoint()
        other = training_loader(recipe, self.dataset, execution, seed=recipe.seed + 2**33)
        with torch.autocast(self.engine.device.type, torch.bfloat16, enabled=execution.precision == "bfloat16"):
            recalibrate(network, other, batches=batches)
            network.eval()
            splits = {"validation": self.dataset.validation, "test": self.dataset.test}
            return {
                f"{name}_accuracy": accuracy(network, evaluation_loader(split, recipe, self.dataset, execution))
                for name, split in splits.items()
                if split is not None and (batches is None or name == "validation" or self.dataset.validation is None)
            }

    def _finish(self) -> None:
        self.flush()
        scores = self.evaluate(None)
        family, recipe = self.engine.family, self.run.recipe
        recalibrate(family, training_loader(recipe, self.dataset, self.execution, seed=recipe.seed + 2**33))
        storage.save(family, self.run.family_file)
        last = self.run.log()[-1]
        self.run.finish({**last, **scores})


@torch.no_grad()
def accuracy(network: torch.nn.Module, loader: data.ResidentLoader) -> float:
    """Return the share of right predictions."""
    hits = [(network(x).argmax(1) == y).sum() for x, y in loader]
    return float(torch.stack(hits).sum()) / sum(loader.sizes)


def train_runs(
    runs: Sequence[Run], dataset: data.Dataset, execution: Execution, report: Report, tick: Callable[[Run], None]
) -> None:
    """Train runs on one data set: all at once on a GPU, one after the other on a CPU."""
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.locked())
        stop = stack.enter_context(stop_on_signals())
        together = len(runs) if execution.device.startswith("cuda") else 1
        for start in range(0, len(runs), together):
            _take_turns(runs[start : start + together], dataset, execution, report, tick, stop)


def _take_turns(
    runs: Sequence[Run],
    dataset: data.Dataset,
    execution: Execution,
    report: Report,
    tick: Callable[[Run], None],
    stop: Stop,
) -> None:
    trainers = []
    for run in runs:
        run.start(execution)
        trainers.append(Trainer(run, dataset, execution, report))
    turns = {trainer: trainer.steps() for trainer in trainers}
    while turns:
        for trainer, steps in list(turns.items()):
            if next(steps, turns) is turns:  # at its end
                del turns[trainer]
            else:
                tick(trainer.run)
            if stop.signal is not None:
                for other in turns:
                    other.checkpoint()
                raise Stopped(signal.Signals(stop.signal).name)
