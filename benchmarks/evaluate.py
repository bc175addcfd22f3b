"""The time it takes to evaluate a run: 21 points with their ensembles, a plane, and corrupted test images.

Each point has batch-norm statistics of one whole pass over the augmented training images. The run is
copied first, so that nothing that was measured before is skipped and nothing of it is changed.

    python benchmarks/evaluate.py RUN [--data DIR] [--device cuda] [--plane] [--corruptions] [--json FILE]
"""

import argparse
import json
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

import subspaces as ss
from subspaces.evaluation.files import environment
from subspaces.evaluation.measuring import Data, Metrics, measure, members_of
from subspaces.evaluation.points import plan
from subspaces.experiments import data
from subspaces.experiments.evaluating.run_subject import RunSubject
from subspaces.experiments.training import Execution, Run

KEPT = ("config.json", "environment.json", "family.safetensors", "log.jsonl", "result.json")


class Clock:
    """Seconds of what was done in the meantime, on the device too."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.lap()

    def lap(self) -> float:
        """Return the seconds since the last call."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        spent, self.begin = now - getattr(self, "begin", now), now
        return spent


def parts(run: Run, dataset: data.Dataset, execution: Execution) -> dict[str, float]:
    """Return the seconds of each part of an evaluation."""
    clock = Clock(execution.device)
    subject = RunSubject(run, lambda: dataset, execution, False)
    predictor = subject.predictor(["test"], None)
    result = {"family and images to the device": clock.lap()}
    items = plan(subject.shape, grid=(0.0, 0.1, 0.2, 0.3), random=6, triangle=0, seed=0)
    pairs = [item for item in items if len(item.points) == 2]
    list(predictor.outputs(pairs[0].points[:1], "test"))
    result["first point"] = clock.lap()
    points, wholes = [], []
    for item in pairs:
        clock.lap()
        list(predictor.outputs(item.points, "test"))
        points.append(clock.lap() / len(item.points))
        places, asked = members_of([item], subject.task.averages)
        wanted = [Metrics(about, members, subject.task.metrics, subject.task) for about, members in asked]
        measure(predictor, places, Data("test"), wanted)
        wholes.append(clock.lap())
    rows = [whole - len(item.points) * point for whole, point, item in zip(wholes, points, pairs, strict=True)]
    return result | {"a point": median(points), "the rows of a pair": median(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished line or curve")
    parser.add_argument("--data", help="folder with the data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--plane", action="store_true", help="also the plane through three vertices (of a curve)")
    parser.add_argument("--corruptions", action="store_true", help="also all corruptions of the test images")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    execution = Execution(device=options.device).resolved()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / options.run.name
        copy.mkdir()
        for name in KEPT:
            shutil.copy(options.run / name, copy)
        run = Run.open(copy)
        one = run.recipe
        clock = Clock(execution.device)
        dataset = data.load(
            one.dataset, options.data, label_noise=one.label_noise, validation=one.validation, seed=one.data_seed
        )
        seconds: dict[str, Any] = {"reading the data": clock.lap()}
        seconds |= parts(run, dataset, execution)
        clock.lap()
        ss.evaluate(run, data=options.data, device=execution.device, progress=False)
        seconds["evaluate: 21 points and 11 ensembles, with reading the data"] = clock.lap()
        if options.plane:
            ss.evaluate(run, data=options.data, device=execution.device, plane=True, progress=False)
            seconds["a plane of 21 x 21 cells, with reading the data"] = clock.lap()
        if options.corruptions:
            clock.lap()
            found = ss.evaluate(run, data=options.data, device=execution.device, corruptions="extra", progress=False)
            sets = [(row.data, row.severity) for row in found.rows if row.group and row.kind == "point"]
            about = f"{len(set(sets))} corrupted sets at {sets.count(sets[0])} points, with reading the data"
            seconds[about] = clock.lap()
    for what, spent in seconds.items():
        print(f"{spent:9.3f} s  {what}")
    if options.json:
        record = {"run": options.run.name, "environment": environment(asdict(execution)), "seconds": seconds}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
