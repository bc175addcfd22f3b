"""One run from its start to its end: build, epochs, evaluations, checkpoints, result."""

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, distributed, memory, randomness, storage
from subspaces.core.batchnorm import Module, StatisticsError, recalibrate
from subspaces.core.family import Subspace
from subspaces.errors import UserError
from subspaces.evaluation.subject import spread
from subspaces.experiments import data
from subspaces.experiments.training.batches import Stream, evaluation_batches, statistics_batches, statistics_seed
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.execution import ALONE, EVERY, Execution, World
from subspaces.experiments.training.runs import STATE, Run, RunError

Report = Callable[[Run, dict[str, Any]], None]
DIVERGED = "lower --learning-rate (now {:g}), or check the data; the last good checkpoint is kept"


class TrainingError(UserError, RuntimeError):
    """Training that cannot go on."""


class Clock:
    """Measures time where the work is done: on the device's stream, or here."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.events = [] if stream is None else [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.times: list[float] = []
        self.record()

    def record(self) -> None:
        """Start, and the second time stop when the work that is queued so far is done."""
        self.times.append(time.perf_counter())
        if self.events:
            self.events[len(self.times) - 1].record()

    def ready(self) -> bool:
        """Return whether the device has come to the stop."""
        return not self.events or bool(self.events[1].query())

    def seconds(self) -> float:
        """Return the time between start and stop; wait for the stop."""
        if not self.events:
            return self.times[1] - self.times[0]
        self.events[1].synchronize()
        return float(self.events[0].elapsed_time(self.events[1])) / 1000


class Trainer:
    """One run in training, between whose steps others may have their turn (`steps`).

    `images` is the loader of another, whose images it may share. Of several processes, which each have a trainer of the
    run and make the same calls, the first writes.
    """

    def __init__(
        self,
        run: Run,
        dataset: data.Dataset,
        execution: Execution,
        report: Report,
        images: data.ResidentLoader | Stream | None = None,
        world: World = ALONE,
    ) -> None:
        self.run, self.dataset, self.execution, self.report, self.world = run, dataset, execution, report, world
        self.engine = Engine(run.recipe, dataset, execution, images, world)
        self.hooks = self.engine.hooks
        self.splits = [name for name in ("validation", "test") if getattr(dataset, name) is not None]
        self.epoch, self.done = 0, 0  # which have ended, and batches of this one
        self.rate = 0.0
        self.stacked: bool | None = None  # whether it is part of a `Stack`; None: it has not begun
        self.saved_at = time.monotonic()
        self.others: dict[str, Any] = {}  # loaders for evaluation
        self.pending: list[tuple[Clock, Callable[[], None]]] = []  # log lines whose numbers are still on the device
        self._resume()

    def on_stream(self) -> Any:
        """Work on the stream of this run, if it has one."""
        stream = self.engine.stream
        return torch.cuda.stream(stream) if stream is not None else nullcontext()

    # Checkpoints

    def _resume(self) -> None:
        """Continue from the newest checkpoint, or start from another run's, where there is one."""
        seed = self.run.recipe.seed
        torch.manual_seed(seed if self.world.first else randomness.number(seed, "processes", self.world.rank))
        found = self.run.load_checkpoint()
        self.world.on_first(lambda: self.run.reset_log(found and found[1]))  # which no other process reads
        if found is None:
            return
        tensors, progress = found
        starts = "started" in progress  # from another run's checkpoint
        try:
            with self.on_stream():
                self.engine.load(tensors, own_numbers=starts)
            self.epoch = int(progress["epoch"])
            if starts:
                return
            if (own := self._own_row(tensors, "generator")) is not None:
                torch.set_rng_state(own)
            if (own := self._own_row(tensors, "cuda_generator")) is not None and self.engine.stream is not None:
                torch.cuda.set_rng_state(own, self.engine.device)
            self.done = int(progress["done"])
            self.stacked = bool(progress.get("stacked"))  # it goes on as it began, and so to the same end
        except (KeyError, IndexError, ValueError, TypeError, RuntimeError) as error:
            if memory.ran_out(error):
                raise
            what = f"start_from={self.run.recipe.start_from!r}" if starts else str(self.run.folder / STATE)
            remedy = "" if starts else f": remove the folder {self.run.folder} to train anew"
            raise RunError(f"{what} does not fit this run ({error}){remedy}") from None

    def _own_row(self, tensors: dict[str, Tensor], name: str) -> Tensor | None:
        """Return this process's part of what each of several has left; None for one that was not there."""
        rows = tensors[name].view(-1, tensors[name].shape[-1]) if name in tensors else torch.empty(0)
        # A copy: torch reads the numbers from where the whole begins.
        return rows[self.world.rank].clone() if self.world.rank < len(rows) else None

    def checkpoint(self) -> None:
        """Write the state, so that the same command continues from here."""
        with self.on_stream():
            self.flush()
            self._check_loss(float(self.world.total(self.engine.totals)[0]), self.epoch + 1)
            progress = {"epoch": self.epoch, "done": self.done, "stacked": self.engine.step.moved.several}
            self._save(partial(self.run.save_checkpoint, progress=progress))
        self.saved_at = time.monotonic()

    def _save(self, write: Callable[[dict[str, Tensor]], None]) -> None:
        """Write what it takes to continue, of all processes."""
        self.flush()
        self._check_weights()
        state = {**self.engine.state(), "generator": self.world.every(torch.get_rng_state())}
        if self.engine.stream is not None:
            state["cuda_generator"] = self.world.every(torch.cuda.get_rng_state(self.engine.device))
        self.world.on_first(lambda: write(state))

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint, by the clock of any process."""
        asked = self.world.alone or self.done % EVERY == 0
        return asked and bool(self.world.largest(time.monotonic() - self.saved_at > self.execution.checkpoint_seconds))

    # Epochs

    def steps(self) -> Generator[None]:
        """Train to the end; wherever this yields, the next steps are due.

        Whoever drives it makes them, for this run alone or for several at once, and counts them in `done`. Where it
        ends, or is closed, so do the processes that read images.
        """
        try:
            yield from self._epochs()
            with self.on_stream():
                self._finish()
        finally:
            for loader in (self.engine.loader, *self.others.values()):
                if isinstance(loader, Stream):
                    loader.close()

    def _epochs(self) -> Iterator[None]:
        sizes = self.engine.loader.sizes
        while self.epoch < self.run.recipe.epochs:
            with self.on_stream():
                self.rate = self.engine.set_epoch(self.epoch)
                if self.done == 0:
                    if self.epoch == self.run.recipe.keep_epoch:
                        self._save(self.run.keep_checkpoint)
                    self.engine.start_epoch()
                clock = Clock(self.engine.stream)
            timed = sum(sizes[self.done :])
            while self.done < len(sizes):
                yield
                if self.pending and self.pending[-1][0].ready():
                    self.flush()
            with self.on_stream():
                self._end_epoch(clock, timed)

    def _end_epoch(self, clock: Clock, timed: int) -> None:
        """Queue the log line of the epoch: it is written when the device is there, so that nobody waits for it."""
        self.flush()
        numbers = torch.cat([self.world.total(self.engine.totals), spread(self.engine.family)])
        totals = numbers.to("cpu", non_blocking=True)
        clock.record()
        self.epoch, self.done = self.epoch + 1, 0
        epoch, rate, every = self.epoch, self.rate, self.execution.evaluate_every
        scores: dict[str, float] = {}
        if self.hooks.watch is not None:
            scores = self.evaluate(self.hooks.watch, every_split=True)
        elif every and epoch % every == 0 and epoch < self.run.recipe.epochs:
            scores = self.evaluate(self.execution.evaluate_batches)
        self.hooks.after_epoch(epoch, scores)

        def write() -> None:
            speed = timed / max(clock.seconds(), 1e-9)  # waits until the device is there, and so for the totals
            self._log(epoch, rate, totals, speed, scores)

        self.pending.append((clock, write))
        if self.engine.stream is None:
            self.flush()

    def flush(self) -> None:
        """Write the log lines that are still on their way from the device."""
        while self.pending:
            self.pending.pop(0)[1]()

    def _log(self, epoch: int, rate: float, totals: Tensor, speed: float, scores: dict[str, float]) -> None:
        loss, correct, l2, cos2 = totals.tolist()
        self._check_loss(loss, epoch)
        images = sum(self.engine.loader.sizes)
        row = {"epoch": epoch, "loss": loss / images, "train_accuracy": correct / images, "learning_rate": rate}
        row |= {"l2": l2, "cos2": cos2, "images_per_second": speed, **scores}
        if self.world.first:
            self.run.append_log(row)
            self.report(self.run, row)

    def _check_loss(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            self._diverged(f"the loss of {self.run.folder.name} is {loss} in epoch {epoch}")

    def _check_weights(self) -> None:
        """Refuse what a last step has ruined: its loss was computed before it."""
        own = (distributed.local(omega) for omega in self.engine.family.parameters())
        if self.world.largest(not all(bool(omega.isfinite().all()) for omega in own)):
            self._diverged(f"the weights of {self.run.folder.name} are not finite")

    def _diverged(self, what: str) -> NoReturn:
        raise TrainingError(f"{what}: {DIVERGED.format(self.run.recipe.learning_rate)}")

    # Evaluation

    def evaluate(self, batches: int, every_split: bool = False) -> dict[str, float]:
        """Return the accuracy of a copy of the midpoint on held-out images, with statistics of so many batches.

        While there are validation images, the test set is left alone until the end, unless every split is asked for.
        """
        with self.engine.tracking_statistics():
            network = self.hooks.current_family().midpoint()
        with self._autocast(), self._own_random_numbers():
            recalibrate(network, self._statistics(batches), finite=False)  # the loss will tell
            self._share_statistics(network)
        return self._accuracies(network, self.splits if every_split else self.splits[:1])

    def _accuracies(self, network: nn.Module, splits: Iterable[str]) -> dict[str, float]:
        network.eval()
        with self._autocast():
            return {f"{name}_accuracy": self._accuracy(network, self._split(name)) for name in splits}

    @torch.no_grad()
    def _accuracy(self, network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
        """Return the share of right predictions, over the batches of all processes."""
        hits, images = [], 0
        for x, y in batches:
            hits.append((network(x).argmax(1) == y).sum())
            images += len(y)  # counted here: a number made on the device would be waited for
        right = torch.stack(hits).sum()
        if self.world.alone:
            return int(right) / images
        found = self.world.total(torch.stack([right, torch.tensor(images, device=right.device)]))
        return int(found[0]) / int(found[1])

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.engine.device.type, torch.bfloat16, enabled=self.execution.precision == "bfloat16")

    def _own_random_numbers(self) -> Any:
        """Give back the random numbers that dropout takes while statistics are made."""
        return torch.random.fork_rng([self.engine.device] if self.engine.stream is not None else [])

    def _statistics(self, most: int | None = None) -> Any:
        """Return this process's batches for batch-norm statistics, `most` of them for all together."""
        recipe, loader, share = self.run.recipe, self.engine.loader, self.world.share(whole=True, most=most)
        if isinstance(loader, data.ResidentLoader):
            return loader.sibling(statistics_seed(recipe), share=share)
        return statistics_batches(recipe, self.dataset, self.execution, share)

    def _share_statistics(self, module: nn.Module) -> None:
        """Give the statistics of all processes to a network of which each has a copy."""
        distributed.average_statistics(batchnorm.tracked(module).values(), self.world.mesh, counting=True)

    def _split(self, name: str) -> Any:
        """Return this process's share of a split, from its beginning however often it was used."""
        if name not in self.others:
            images, share = getattr(self.dataset, name), self.world.share()
            self.others[name] = evaluation_batches(images, self.run.recipe, self.dataset, self.execution, share)
        return self.others[name]

    # The end

    def _finish(self) -> None:
        self.flush()
        self._check_weights()
        with self.engine.tracking_statistics() as trained, self._autocast(), self._own_random_numbers():
            family = self._recalibrated(self.hooks.result())
            if self.run.recipe.answers[0] == "midpoint":
                network: nn.Module = family.midpoint()  # the statistics are those of the family
            else:
                network = self._recalibrated(family.ensemble(torch.eye(family.shape.vertices)))
        families = {}
        if family is not trained and trained.shape.vertices > 1:
            families[self.run.trained_file.name] = self._write(trained, self.run.trained_file)
        families[self.run.family_file.name] = self._write(family, self.run.family_file)
        found: dict[str, Any] = dict(zip(("l2", "cos2"), spread(family).tolist(), strict=True))
        found |= self._accuracies(network, self.splits) | self.hooks.summary()
        self.world.on_first(lambda: self.run.finish({**self.run.log()[self.hooks.epoch - 1], **found}, families))

    def _write(self, family: Subspace, path: Path) -> str:
        """Write a family, of which each process has its columns, or a copy."""
        if family.mesh is not None:
            return storage.save(family, path)
        return self.world.on_first(lambda: storage.save(family, path))

    def _recalibrated(self, module: Module) -> Module:
        """Return it with statistics of all training images, which a run that went wrong may not have."""
        try:
            made = recalibrate(module, self._statistics())
        except StatisticsError as error:
            self._diverged(f"{self.run.folder.name} has no statistics ({error})")
        if not (isinstance(module, Subspace) and module.mesh is not None):  # which shares them by itself
            self._share_statistics(module)
        return made
