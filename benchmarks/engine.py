"""The time of a whole training step: batch, augmentation, forward, penalty, backward, optimiser.

By default cResNet20 on images of CIFAR-10's size, batch 128. A variant and what it is compared with take turns in one
process; its time is the median over the rounds, its ratio the median of the rounds' ratios. The engine's methods, the
same step as plain PyTorch and as a loop with a DataLoader are compared with the engine's standard step; several
runs as one program (--stacks) with a single one of their method, per network; several at once on one GPU are timed
alone (--at-once). Each result is printed, and the file written, as soon as it is there.

    python benchmarks/engine.py [--device cuda] [--rounds 20] [--steps 30] [--data DIR] [--stacks 1 2 4] [--json FILE]
"""

import argparse
import gc
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from plain import Loop
from timing import CACHES, CLOCKS, Pace, Record, Run, compared

from subspaces.core.memory import keep_memory
from subspaces.evaluation.files import commit, environment
from subspaces.experiments import data
from subspaces.experiments.data.loading import SOURCES
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import RECIPES, Recipe
from subspaces.experiments.training.stack import Stack
from subspaces.experiments.training.step import GRAPH_STEPS, many_compiled

METHODS: dict[str, dict[str, Any]] = {
    "standard": {},
    "line": {"method": "line"},
    "curve": {"method": "curve"},
    "simplex 3": {"method": "simplex", "vertices": 3},
    "simplex 3, layerwise": {"method": "simplex", "vertices": 3, "layerwise": True},
    "simplex 6": {"method": "simplex", "vertices": 6},
    "standard again": {},
}
USUAL = [name for name in METHODS if name != "simplex 3, layerwise"]
STACKED = ["standard", "line", "simplex 3, layerwise"]
PLAIN: dict[str, dict[str, Any]] = {  # what a loop is called, and what it is
    "eager": {"compiled": False, "workers": False},
    "compiled": {"compiled": True, "workers": False},
    "plain loop": {"compiled": False, "workers": True},
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = {name: source.fits for name, source in SOURCES.items() if source.fits is not None}
SEEDS = "a single engine has the seed 0, each of k at once or in a stack one of 0 to k - 1"


class Bench(NamedTuple):
    """What is measured, how, and where it is told."""

    base: Recipe
    dataset: data.Dataset
    execution: Execution
    pace: Pace
    record: Record

    def engines(self, method: str, count: int = 1) -> list[Engine]:
        """Return engines that differ in their seeds, and share their images."""
        recipes = [replace(self.base, seed=seed, **METHODS[method]) for seed in range(count)]
        first = Engine(recipes[0], self.dataset, self.execution)
        return [first, *(Engine(one, self.dataset, self.execution, first.loader) for one in recipes[1:])]


def engine_run(engines: Sequence[Engine]) -> Run:
    """Return steps of an engine, or of several that are one program, epoch after epoch."""
    first = engines[0]
    sizes = first.loader.sizes
    position, epoch = len(sizes), -1

    def run(steps: int) -> int:
        nonlocal position, epoch
        taken = 0
        with torch.cuda.stream(first.stream):
            while taken < steps:
                if position >= len(sizes):
                    position, epoch = 0, (epoch + 1) % first.recipe.epochs
                    for engine in engines:
                        engine.set_epoch(epoch)
                        engine.start_epoch()
                done = first.step.advance(sizes, position)
                position, taken = position + done, taken + done
        return taken

    return run


def load(name: str, folder: str | None) -> data.Dataset:
    """Return a data set, or random images of its size where its folder is not given; digits need none."""
    if folder or name == "digits":
        return data.load(name, folder)
    size = SIZES[name]
    generator = torch.Generator().manual_seed(0)

    def split(n: int) -> data.Split:
        images = torch.randint(0, 256, (n, *size.image_shape), dtype=torch.uint8, generator=generator)
        return data.Split(images, torch.randint(size.classes, (n,), generator=generator))

    classes, channels = tuple(map(str, range(size.classes))), size.image_shape[0]
    return data.Dataset("random", split(size.training), None, split(1000), classes, MEAN[:channels], STD[:channels])


def time_variants(bench: Bench, methods: Sequence[str], plain: Sequence[str]) -> None:
    """Time methods and plain loops, each in turn with the engine's standard step."""
    standard, first = _begun(bench.pace, partial(_engine_alone, bench, "standard"))
    (alone,) = bench.pace.in_turns(standard)
    variants: dict[str, Callable[[], Run]] = {
        name: partial(_engine_alone, bench, name) for name in methods if name != "standard"
    }
    for kind, settings in ((kind, PLAIN[kind]) for kind in plain):
        for method, called in (("standard", "standard"), ("line", "line layer by layer")):
            variants[f"{kind}, {called}"] = partial(_loop, bench, method, settings)
    _tell_variant(bench, "standard", compared(alone, alone) | first)
    for name, make in variants.items():
        run, first = _begun(bench.pace, make)
        _tell_variant(bench, name, compared(*bench.pace.in_turns(run, standard)) | first)
        del run
        _memory(bench)


def _engine_alone(bench: Bench, method: str) -> Run:
    return engine_run(bench.engines(method))


def _loop(bench: Bench, method: str, settings: dict[str, Any]) -> Run:
    return Loop(replace(bench.base, method=method), bench.dataset, bench.execution, **settings).run


def _engine_stack(bench: Bench, method: str, count: int) -> Run:
    return engine_run(Stack(bench.engines(method, count)).engines)


def _begun(pace: Pace, make: Callable[[], Run]) -> tuple[Run, dict[str, float]]:
    """Make something to run; return it, and the seconds of making it and of its first step: compiling, capturing."""
    made: list[Run] = []
    building = pace.seconds(lambda: made.append(make()))
    return made[0], {"building_s": building, "first_step_s": pace.seconds(lambda: made[0](1))}


def _tell_variant(bench: Bench, name: str, row: dict[str, Any]) -> None:
    low, high = row["quartiles"]
    line = f"{name:32} {row['ms']:9.3f} ms   {row['ratio']:7.3f} of standard   [{low:.3f}, {high:.3f}]"
    bench.record.add(line, row, "rows", name)


def time_stacks(bench: Bench, methods: Sequence[str], counts: Sequence[int]) -> None:
    """Time runs as one program, per network, each in turn with the steps of a single engine of their method."""
    for method in methods:
        single, alone = _begun(bench.pace, partial(_engine_alone, bench, method))
        for count in counts:
            before = _memory(bench)
            run, first = _begun(bench.pace, partial(_engine_stack, bench, method, count))
            times, others = bench.pace.in_turns(run, single)
            row = compared([each / count for each in times], others) | first
            row |= {"single_ms": median(others), "single_first_step_s": alone["first_step_s"]}
            if before is not None:
                row["peak_gb"] = (torch.cuda.max_memory_allocated() - before) / 1e9
            _tell_stack(bench, method, count, row)
            del run


def _memory(bench: Bench) -> int | None:
    """Give back what is not used, and return how many bytes of a GPU are; its peak is counted from here on."""
    if bench.pace.device != "cuda":
        return None
    bench.pace.wait()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _tell_stack(bench: Bench, method: str, count: int, row: dict[str, Any]) -> None:
    (low, high), peak = row["quartiles"], f", {row['peak_gb']:.2f} GB" if "peak_gb" in row else ""
    line = f"{method}, {count} as one: {row['ms']:.3f} ms a network-step, {row['ratio']:.3f} [{low:.3f}, {high:.3f}]"
    line += f" of a single one's, first step after {row['first_step_s']:.1f} s{peak}"
    bench.record.add(line, row, "stacks", method, str(count))


def time_at_once(bench: Bench, counts: Sequence[int]) -> None:
    """Time several lines trained at once, each on its own stream, per network-step."""
    engines = bench.engines("line", max(counts))
    runs = [engine_run([engine]) for engine in engines]
    for count in counts:

        def turns(steps: int, runs: list[Run] = runs[:count]) -> int:
            return sum(run(GRAPH_STEPS) for _ in range(max(1, steps // GRAPH_STEPS)) for run in runs)

        milliseconds = median(*bench.pace.in_turns(turns))
        bench.record.add(
            f"{count} lines at once: {milliseconds:.3f} ms per network-step", milliseconds, "at_once", str(count)
        )


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar10", choices=list(SIZES))
    parser.add_argument("--network", help="by default that of the data set's recipes")
    parser.add_argument("--batch", type=int, help="by default that of the data set's recipes")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS), help="processor: where others work too")
    parser.add_argument("--steps", type=int, default=30, help="steps of each variant in a round")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=USUAL, help="none: no table of them")
    parser.add_argument("--no-plain", action="store_true", help="leave out the plain loops")
    parser.add_argument("--plain", nargs="+", choices=list(PLAIN), default=list(PLAIN), help="which of them")
    parser.add_argument("--stacks", type=int, nargs="*", default=[], help="numbers of runs to train as one program")
    parser.add_argument("--stack-methods", nargs="+", choices=list(METHODS), default=STACKED)
    parser.add_argument("--at-once", type=int, nargs="*", default=[], help="numbers of runs to train at once (GPU)")
    parser.add_argument("--cold", action="store_true", help="compile everything anew, in a cache of its own")
    parser.add_argument("--data", help="folder of the data set; random images otherwise")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    base = next(recipe for recipe in RECIPES.values() if recipe.dataset == options.dataset)
    given = {name: getattr(options, name) for name in ("network", "batch") if getattr(options, name) is not None}
    dataset = load(options.dataset, options.data)
    execution = Execution(device=options.device).resolved()
    known = {"commit": commit(), "environment": environment(asdict(execution)), "data": dataset.name, "seeds": SEEDS}
    record = Record(options.json, **known)
    keep_memory()
    pace = Pace(options.rounds, options.steps, options.device, CLOCKS[options.clock])
    bench = Bench(replace(base, **given), dataset, execution, pace, record)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, many_compiled():
        if options.cold:
            os.environ |= {name: f"{folder}/{name}" for name in CACHES}
        if options.methods or not options.no_plain:
            time_variants(bench, options.methods, [] if options.no_plain else options.plain)
        if options.stacks:
            time_stacks(bench, options.stack_methods, options.stacks)
        if options.at_once:
            time_at_once(bench, options.at_once)


if __name__ == "__main__":
    main()
