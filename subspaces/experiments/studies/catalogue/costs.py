"""What plans cost before anything is done: runs, network-steps, and an estimate of the time on this device.

A few steps of standard training are timed for each network and data set, on made-up images, and every network-step is
taken to last as long: forward and backward through one network is what all methods do. A network that is only measured
costs a third of a step for each batch. What a run and a picture take beside was measured once, on two cores.
"""

import importlib.util
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from subspaces.core import memory
from subspaces.evaluation.points import plan as plan_points
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.shifted_data import Corruptions
from subspaces.experiments.data import Dataset, Size, Split, absent, size_of
from subspaces.experiments.data.folders import IMAGENET
from subspaces.experiments.studies.catalogue.exhibit import Plan
from subspaces.experiments.studies.setting import State, states
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.scheduling import STACK, stacks
from subspaces.experiments.training.stack import Stack

FORWARD = 1 / 3  # of a step
TESTED = 1 / 5  # test images for each training image, about
A_RUN, A_PICTURE = 0.3, 1.0  # seconds beside all steps, for files and the like: what counts for small networks
STEPS = 3  # that are timed, after others; one of large batches
BATCHES = 24  # of made-up images for several runs that are one program, which takes ten steps at once
FEW = 4  # images in a batch that is timed on a CPU in place of a large one
LARGE = 2**19  # numbers in a batch of images, above which it is large


@dataclass(frozen=True)
class Cost:
    """What is left to do for one plan or several, in which every run counts once."""

    runs: int
    left: int  # runs to train
    steps: float  # network-steps of training
    passes: float  # batches through networks that are measured
    seconds: float | None  # an estimate; None where the network is not there


def obstacle(recipe: Recipe, data: Path | None) -> str | None:
    """Return why a recipe cannot be trained here, with what to do about it; None if it can."""
    return " and ".join(filter(None, (lacking(recipe), absent(recipe.dataset, data)))) or None


def lacking(recipe: Recipe) -> str | None:
    """Return which library a recipe's network is of that is not installed."""
    library = recipe.network.partition(":")[0]
    if library not in ("timm", "torchvision") or importlib.util.find_spec(library) is not None:
        return None
    return f"the network {recipe.network!r} needs {library}: pip install 'subspaces[{library}]'"


class Estimates:
    """What plans cost with the data in a folder, on a device; runs, sizes and speeds are looked up once."""

    def __init__(self, data: Path | None, execution: Execution) -> None:
        self.data, self.execution = data, replace(execution, ray=None, cpus_per_run=None, gpus_per_run=None).resolved()
        self._states: dict[Path, State] = {}
        self._sizes: dict[str, Size] = {}
        self._seconds: dict[tuple[str, str, int], float | None] = {}

    def cost(self, plans: Sequence[Plan]) -> Cost:
        """Return what is left to do for plans."""
        recipes = {one.key: one for plan in plans for one in plan.recipes}
        known = self._states_of(plans)
        left = [recipes[key] for key, state in known.items() if state in ("to train", "to continue")]
        steps = self.training_steps(left)
        measured = [plan for plan in plans if any(known[one.key] != "evaluated" for one in plan.recipes)]
        passes = [(plan.bench.base, self.passes(plan)) for plan in measured]
        work = [*steps, *((base, FORWARD * count) for base, count in passes)]
        times = [(count, self.step_seconds(one)) for one, count in work]
        beside = A_RUN * len(left) + A_PICTURE * len(plans)
        timed = None not in (each for _, each in times)
        seconds = beside + sum(n * (each or 0.0) for n, each in times) if timed else None
        return Cost(len(recipes), len(left), sum(n for _, n in steps), sum(n for _, n in passes), seconds)

    def _states_of(self, plans: Iterable[Plan]) -> dict[str, State]:
        """Return what is left to do for every run, by its key."""
        found: dict[str, State] = {}
        for plan in plans:
            folder = plan.setting.runs
            fresh = [one for one in plan.recipes if Run.under(folder, one).folder not in self._states]
            self._states |= {run.folder: state for run, state in states(fresh, folder)}
            found |= {one.key: self._states[Run.under(folder, one).folder] for one in plan.recipes}
        return found

    def size(self, recipe: Recipe) -> Size:
        """Return the size of a recipe's training data, as published where it is not there."""
        if recipe.dataset not in self._sizes:
            found = size_of(recipe.dataset, self.data, count=absent(recipe.dataset, self.data) is None)
            known = found or Size(IMAGENET["train"], (3, 224, 224), IMAGENET["classes"])
            self._sizes[recipe.dataset] = known
        size = self._sizes[recipe.dataset]
        return size._replace(training=size.training - recipe.validation)

    def training_steps(self, recipes: Iterable[Recipe]) -> list[tuple[Recipe, float]]:
        """Return runs with their network-steps, epochs x batches in an epoch x networks in a step."""
        return [(one, one.epochs * (-(-self.size(one).training // one.batch) * one.training_cost)) for one in recipes]

    def passes(self, plan: Plan) -> float:
        """Return how many batches go through networks that are measured: statistics, test images, corrupted ones."""
        settings = Settings.of(plan.exhibit.evaluation(plan.bench))
        wanted = settings.corruptions
        shifts = len(wanted.names or ()) * len(wanted.severities) if isinstance(wanted, Corruptions) else 0
        found = [(one, _points(one, settings), shifts) for one in plan.study.recipes]
        found.append((plan.bench.base, plan.exhibit.networks(plan), 0))
        batches: list[float] = [
            networks * self.size(one).training / one.batch * (1 + TESTED * (1 + kinds))
            for one, networks, kinds in found
        ]
        return sum(batches)

    def step_seconds(self, recipe: Recipe) -> float | None:
        """Return how long a network-step lasts, as in standard training with the same network, images and batches.

        None where that cannot be tried: the library of the network is not installed, or the memory is too small.
        """
        key = recipe.dataset, recipe.network, recipe.batch
        if key not in self._seconds:
            self._seconds[key] = self._timed(recipe) if lacking(recipe) is None else None
        return self._seconds[key]

    def _timed(self, recipe: Recipe) -> float | None:
        try:
            return time_step(_plain(recipe), self.size(recipe), self.execution)
        except Exception as error:
            if not memory.ran_out(error):
                raise
            return None


def _points(recipe: Recipe, settings: Settings) -> float:
    """Return how many networks of a run are measured."""
    shape = recipe.result_shape()
    items = plan_points(shape, grid=settings.grid, random=settings.random, triangle=settings.triangle)
    return float(sum(len(item.points) for item in items))


def _plain(recipe: Recipe) -> Recipe:
    """Return standard training, as short as can be."""
    fresh: dict[str, Any] = {
        "name": "timed",
        "seed": 0,
        "keep_epoch": None,
        "start_from": "",
        "epochs": 1,
        "method": "standard",
    }
    return replace(recipe, label_noise=0.0, validation=0, dropout=0.0, label_smoothing=0.0, **fresh)


def time_step(recipe: Recipe, size: Size, execution: Execution) -> float:
    """Return how long a step of standard training takes here for each of as many runs as are one program.

    On a CPU a large batch is timed with few of its images, each of which is taken to last as long as in the whole.
    Nothing is compiled or captured for this, so that on a GPU training itself is faster.
    """
    large = execution.device == "cpu" and recipe.batch * math.prod(size.image_shape) > LARGE
    timed, steps = (replace(recipe, batch=min(recipe.batch, FEW)), 1) if large else (recipe, STEPS)
    how = replace(execution, compile=False, graph=False, resident=True)
    crew = stacks([Run(Path(), replace(timed, seed=seed)) for seed in range(STACK)], how)[0]
    with torch.random.fork_rng():
        data = _made_up(timed, size, BATCHES if len(crew) > 1 else steps + 1)
        first, *others = crew
        engines = [Engine(first.recipe, data, how)]
        engines += [Engine(run.recipe, data, how, engines[0].loader) for run in others]
        if len(engines) > 1:
            Stack(engines)
        return _clocked(engines, steps) / len(engines) * recipe.batch / timed.batch


def _made_up(recipe: Recipe, size: Size, batches: int) -> Dataset:
    """Return so many batches of noise."""
    count = recipe.batch * batches
    images = torch.randint(256, (count, *size.image_shape), dtype=torch.uint8)
    split = Split(images, torch.randint(size.classes, (count,)))
    channels, names = size.image_shape[0], tuple(map(str, range(size.classes)))
    return Dataset(recipe.dataset, split, None, split, names, (0.5,) * channels, (0.25,) * channels)


def _clocked(engines: Sequence[Engine], steps: int) -> float:
    """Return how long a step of all takes, after those that warm up."""
    first = engines[0]
    for engine in engines:
        engine.set_epoch(0)
        engine.start_epoch()
    with torch.cuda.stream(first.stream) if first.stream is not None else nullcontext():
        done = began = first.step.advance(first.loader.sizes, 0)
        _wait(first)
        start = time.perf_counter()
        while done - began < steps:
            done += first.step.advance(first.loader.sizes, done)
        _wait(first)
        return (time.perf_counter() - start) / (done - began)


def _wait(engine: Engine) -> None:
    if engine.stream is not None:
        engine.stream.synchronize()
