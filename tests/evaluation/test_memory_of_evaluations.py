"""What an evaluation keeps: not the outputs of the points behind it."""

import os
import subprocess
import sys

MEASURE = """
import resource, torch
import subspaces as ss

def batches(count):
    generator = torch.Generator().manual_seed(count)
    x, y = torch.randn(count, 8, generator=generator), torch.randint(2000, (count,), generator=generator)
    return list(zip(x.split(100), y.split(100), strict=True))

family = ss.Subspace(lambda: torch.nn.Linear(8, 2000), ss.Line())
for points in (3, 13):
    grid = [step / (points - 1) for step in range(points)]
    found = ss.evaluate(family, test=batches(500), validation=batches(10), grid=grid, progress=False)
    assert len([row for row in found.rows if row.kind == "point" and row.split == "test"]) == points
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
OUTPUTS = 500 * 2000 * 4 / 2**20  # MiB that one point says about the test examples


def test_memory_does_not_grow_with_the_number_of_points() -> None:
    given_back = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "65536")  # what is freed
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, env={**os.environ, **given_back}
    )
    few, many = map(int, done.stdout.split())
    assert many - few < 3 * OUTPUTS  # those of 10 more points would be 10 times that
