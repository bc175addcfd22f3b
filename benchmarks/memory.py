"""Host memory of an evaluation: 50,000 examples of 1,000 classes at 21 points of a line, from a loader that streams.

    python benchmarks/memory.py [--points 21] [--examples 50000] [--classes 1000]

Prints one line of JSON: the peak of the process, and what it was before the evaluation began.
"""

import argparse
import json
import platform
import resource
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import subspaces as ss

INPUTS, BATCH = 32, 250


class Examples:
    """Batches that are made when they are asked for, the same each time."""

    def __init__(self, examples: int, classes: int) -> None:
        self.batches, self.classes = examples // BATCH, classes

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.batches):
            x = torch.randn(BATCH, INPUTS, generator=generator)
            yield x, torch.randint(self.classes, (BATCH,), generator=generator)


def peak() -> float:
    """Return the most memory that the process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=21)
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    arguments = parser.parse_args()
    family = ss.Subspace(
        lambda: nn.Sequential(nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, arguments.classes)), ss.Line()
    )
    test = Examples(arguments.examples, arguments.classes)
    before, start = peak(), time.perf_counter()
    grid = [step / (arguments.points - 1) for step in range(arguments.points)]
    evaluation = ss.evaluate(family, test=test, grid=grid, progress=False)
    found = {
        **vars(arguments),
        "rows": len(evaluation.rows),
        "peak_gb": round(peak(), 3),
        "before_gb": round(before, 3),
        "seconds": round(time.perf_counter() - start, 1),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
