"""Finished runs as what is measured: their folders bring recipe, data and family.

On a CUDA device they predict with graphs of a batch for the statistics and of the pass over each split.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subspaces.core import checks, functional
from subspaces.core.batchnorm import tracked
from subspaces.core.ensemble import wide
from subspaces.core.family import Subspace
from subspaces.core.loading import load
from subspaces.evaluation.points import Family
from subspaces.evaluation.predictor import Outputs, Predictor
from subspaces.evaluation.rows import SMALL, small_pictures
from subspaces.evaluation.subject import Constants, Pictures, Subject
from subspaces.evaluation.tasks import Classification
from subspaces.experiments.data import Dataset, ResidentLoader
from subspaces.experiments.locks import stop_on_signals
from subspaces.experiments.opening import training_of_run
from subspaces.experiments.training import Execution
from subspaces.experiments.training.batches import evaluation_batches, load_data, statistics_batches, statistics_seed
from subspaces.experiments.training.engine import build_family
from subspaces.experiments.training.recipe import Recipe, data_of
from subspaces.experiments.training.runs import Run, RunError, free
from subspaces.experiments.training.step import captured
from subspaces.images.decoding import centre_view
from subspaces.images.splits import Files, Images, Normalise

VIEW = 256 / 224  # of files, to which the shorter side is scaled before the middle is taken, as in `StreamingLoader`
PIXELS = 2000 * 32 * 32  # of a batch on a GPU
LEAST = 250  # images in one, and on a CPU
OneRun = Run | str | os.PathLike[str]


class CapturedPredictor(Predictor):
    """Predicts from images on a CUDA device, with graphs of a training batch and of the pass over each split."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        (network,) = self._networks
        self._start = self._statistics.state_dict() if isinstance(self._statistics, ResidentLoader) else {}
        shared: dict[int, Any] = {id(value): value for value in network.parameters()}
        self._pupil = functional.copied(network, shared).train()  # the same weights, and the statistics of one batch
        for norm in tracked(self._pupil).values():
            norm.momentum = 1.0
        self._graph: tuple[torch.cuda.CUDAGraph, list[Tensor]] | None = None
        self._passes: dict[str, tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]] = {}

    def prepare(self, points: Sequence[Any]) -> list[nn.Module]:
        """Return a network at each of these points; the graph makes the statistics of the first network alone."""
        for point in points if len(points) > 1 else ():
            super().prepare([point])
        return super().prepare(points)

    def outputs(self, points: Sequence[Any], data: str | Iterable[Any], **how: Any) -> Iterable[Outputs]:
        """Return a split as one batch: the networks take turns in one, which the graphs know."""
        if not isinstance(data, str):
            return super().outputs(points, data, **how)
        return [self._taking_turns(points, data)]

    @torch.no_grad()
    def _taking_turns(self, points: Sequence[Any], split: str) -> Outputs:
        found: list[Tensor] = []
        for point in points:
            self.prepare([point])
            with self._settings():
                output, target = self._pass(split)
                found.append(output)
        return self._parts(found, target)

    def _pass(self, split: str) -> tuple[Tensor, Tensor]:
        if split not in self._passes:
            self._passes[split] = captured(lambda: self._joined(split), self.device)
        graph, (output, target) = self._passes[split]
        graph.replay()
        return output.clone(), target

    def _joined(self, split: str) -> tuple[Tensor, Tensor]:
        found = [(wide(self._forward(self._networks[0], (x, y))), y) for x, y in self.splits[split]]
        outputs, targets = zip(*found, strict=True)
        return torch.cat(outputs), torch.cat(targets)

    def _renew_statistics(self, network: nn.Module, statistics: Any) -> None:
        loader: ResidentLoader = statistics
        loader.load_state_dict(self._start)  # the same batches for every point
        loader.start_epoch()
        sizes = loader.sizes[: self._batches]
        with self._settings():
            if self._graph is None:
                sums = [torch.zeros_like(value) for value in _running(network)]
                self._graph = captured(lambda: self._add_statistics(loader, sizes[0], sums), self.device)[0], sums
                loader.position.zero_()
            graph, sums = self._graph
            torch._foreach_zero_(sums)
            for size in sizes:
                if size == sizes[0]:
                    graph.replay()
                else:
                    self._add_statistics(loader, size, sums)
        torch._foreach_copy_(_running(network), list(torch._foreach_div(sums, len(sizes))))

    def _add_statistics(self, loader: ResidentLoader, size: int, sums: list[Tensor]) -> None:
        """Run the network on a batch and add the mean and variance that its batch norms see."""
        running = _running(self._pupil)
        torch._foreach_zero_(running)  # nothing of before, also where that was infinite
        self._pupil(loader.take(size)[0])
        torch._foreach_add_(sums, running)


def _running(network: nn.Module) -> list[Tensor]:
    pairs = ((norm.running_mean, norm.running_var) for norm in tracked(network).values())
    return [value for pair in pairs for value in pair if value is not None]


class RunSubject(Subject):
    """A finished run, its data and its family on the device; with `trust` its network is built whoever trained it."""

    def __init__(
        self,
        run: Run,
        data: Callable[[], Dataset],
        execution: Execution,
        trust: bool,
    ) -> None:
        run.check_trusted(trust is True)
        self.run, self.recipe, self.execution, self._data = run, run.recipe, execution, data
        self.check()
        recipe, shape, definition = run.recipe, run.recipe.result_shape(), run.recipe.definition
        splits = ["test", "validation"] if recipe.validation else ["test"]
        super().__init__(
            run.folder.name,
            shape,
            Classification(),
            dict.fromkeys(splits, ()),  # which `predictor` makes
            dataclasses.asdict(execution),
            seed=recipe.seed,
            label=f"{recipe.name} seed {recipe.seed}",
            answers=tuple(recipe.answers),
            terms=Family(shape, middle=definition.middle(), vertices=definition.members),
            extra={"batch": recipe.batch},
            common={"data set": recipe.dataset, "fingerprint": recipe.fingerprint, "network": recipe.network},
            checksum=run.family_checksum,
            folder=run.folder,
        )

    def check(self) -> None:
        """Refuse a run that is not finished."""
        if not self.run.finished:
            lacking = "no trained family" if not self.run.family_file.is_file() else "no result"
            raise RunError(f"{self.run.folder} is not finished, it has {lacking}: train it to the end first")
        self.checksum = self.run.family_checksum  # it may be trained anew by now

    def trained(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Return the recipe, and how the run was trained."""
        return {"recipe": self.recipe.to_dict(), "training": training_of_run(self.run, statistics)}

    @cached_property
    def images_of(self) -> Dataset:
        """The data of the run, with its label noise and its held-out images."""
        return self._data()

    @property
    def dataset(self) -> dict[str, Any]:
        """Name, classes and sizes of the run's data."""
        sizes = {split: len(getattr(self.images_of, split)) for split in self.splits}
        return {"name": self.images_of.name, "classes": list(self.images_of.classes), "splits": sizes}

    @cached_property
    def family(self) -> Subspace:  # type: ignore[override]
        """The trained family."""
        self.run.check_family(self.run.family_file)
        network = build_family(self.recipe, self.images_of, self.execution).midpoint()
        return load(self.run.family_file, network, self.shape).to(self.execution.device)

    def predictor(
        self, splits: Sequence[str], statistics: int | None, weights: Callable[[Any], Any] | None = None
    ) -> Predictor:
        """Return what predicts with any weights of the network, as fast as the device allows."""
        about = (self.recipe, self.images_of, self.execution)
        training = statistics_batches(*about)
        loaders = {name: evaluation_batches(getattr(self.images_of, name), *about) for name in splits}
        resident = all(isinstance(loader, ResidentLoader) for loader in (training, *loaders.values()))
        kind = CapturedPredictor if self.execution.graph and resident else Predictor
        return kind(
            self.family.midpoint(),
            self.task,
            loaders,
            training,
            weights=weights or self.weights,
            batches=min(len(training.sizes), statistics or len(training.sizes)),
            dtype=torch.bfloat16 if self.execution.precision == "bfloat16" else None,
            seed=statistics_seed(self.recipe),
        )

    def release(self) -> None:
        """Free the family; it is read again when it is needed."""
        self.__dict__.pop("family", None)

    def _batch(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        data, how = self.images_of, self.execution
        dtype = torch.bfloat16 if how.precision == "bfloat16" else torch.float32
        normalise = Normalise(data.mean, data.std, how.device, how.channels_last, dtype)
        return normalise(images.permute(0, 2, 3, 1)), labels

    def _in_batches(self, images: Images, resize: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images as bytes [n, C, H, W] and their labels, in their order, on the device.

        Those in memory stay as they are. Of files the shorter side is scaled to `resize` and the middle is taken, by
        threads, by default one per core.
        """
        side, device = max(self.images_of.image_shape[1:]), torch.device(self.execution.device)
        pixels = side * side if isinstance(images, Files) else max(images.images.shape[-2:].numel(), side * side)
        size = max(LEAST, PIXELS // pixels) if device.type == "cuda" else LEAST
        at_once = min(os.cpu_count() or 1, 16) if self.execution.workers is None else self.execution.workers
        for first in range(0, len(images), size):
            part = slice(first, first + size)
            if isinstance(images, Files):
                paths = [images.path(index) for index in range(first, min(first + size, len(images)))]
                with ThreadPoolExecutor(max(1, at_once)) as pool:  # Pillow decodes outside the interpreter's lock
                    views = np.stack(list(pool.map(lambda path: centre_view(path, resize, side), paths)))
                x = torch.from_numpy(views).permute(0, 3, 1, 2).contiguous()
            else:
                x = images.images[part]
            yield x.to(device), images.labels[part].to(device)

    def pictures(self, mean: Constants = None, std: Constants = None) -> Iterator[Pictures]:
        """Yield the test images in large batches."""
        side = self.images_of.image_shape[-1]
        for images, labels in self._in_batches(self.images_of.test, round(side * VIEW)):
            yield Pictures(images, partial(self._batch, labels=labels))

    def images(self, split: str, indices: Sequence[int], labels: Tensor) -> Tensor | None:
        """Return images of a split that is in memory, no larger than a page holds them."""
        images = getattr(getattr(self.images_of, split), "images", None)
        if not isinstance(images, Tensor):
            return None
        sides = images.shape[2:]
        share = min(1.0, math.isqrt(SMALL) / max(sides))
        smaller = [max(1, int(share * side)) for side in sides]
        shown = images[list(indices)]
        if share < 1:
            resized = F.interpolate(shown.float(), smaller, mode="bilinear", antialias=True)
            shown = resized.round().clamp(0, 255).to(torch.uint8)
        return small_pictures(shown)


def run_subjects(
    data: str | os.PathLike[str] | None, execution: Execution, trust: bool = False
) -> Callable[[Run], RunSubject]:
    """Return a function that gives each run's subject, one for each folder, with data that runs may share."""
    data, execution = None if data is None else checks.folder("data", data), execution.resolved()
    read: dict[tuple[Any, ...], Dataset] = {}

    def load(recipe: Recipe) -> Dataset:
        if data_of(recipe) not in read:
            read[data_of(recipe)] = load_data(recipe, data)
        return read[data_of(recipe)]

    found = dict[Path, RunSubject]()

    def subject(run: Run) -> RunSubject:
        folder = run.folder.resolve()
        if folder not in found:
            with stop_on_signals() as stop:  # a run that another process trains is waited for
                free([run], set(), stop)
            found[folder] = RunSubject(run, partial(load, run.recipe), execution, trust)
        return found[folder]

    return subject
