"""The wall-clock time of whole commands, each a process of its own.

What stands after `--` is what one would write after `subspaces`. Each is called in an empty folder, so that
nothing is there already; `{here}` becomes the current one. With --cold the first one compiles everything anew, in a
cache of its own, and those after it find what it has compiled; without, all find the usual cache.

    python benchmarks/commands.py [--repeat 3] [--cold] [--json FILE] -- train cifar10-line --data {here}/data
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from timing import CACHES, Record

COMMAND = [sys.executable, "-m", "subspaces"]
ABOUT = """
import json
from dataclasses import asdict
from subspaces.evaluation.files import environment
from subspaces.experiments.training.execution import Execution
print(json.dumps(environment(asdict(Execution().resolved()))))
"""


def about() -> Any:
    """Return versions and hardware as another process sees them: this one must not occupy a GPU."""
    return json.loads(subprocess.run([sys.executable, "-c", ABOUT], capture_output=True, check=True).stdout)


def call(arguments: Sequence[str], caches: dict[str, str]) -> float:
    """Run a command once and return its seconds; what it prints is dropped, unless it fails."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("{here}", str(Path.cwd())) for word in arguments]
        start = time.perf_counter()
        done = subprocess.run(
            [*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **caches}
        )
        wall = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nsubspaces ended with {done.returncode}: try the command alone first")
    return wall


def measure(arguments: Sequence[str], repeat: int, cold: bool, record: Record) -> None:
    """Run a command so many times, and print the time of each."""
    calls: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        caches = {name: f"{folder}/{name}" for name in CACHES} if cold else {}
        for index in range(repeat):
            one = {"cold": cold and index == 0, "wall_s": call(arguments, caches)}
            calls.append(one)
            record.add(f"{'cold' if one['cold'] else 'warm'}: {one['wall_s']:.2f} s", calls, "calls")
    warm = [one["wall_s"] for one in calls if not one["cold"]]
    if warm:
        record.add(f"median of {len(warm)} warm: {median(warm):.2f} s", median(warm), "warm_s")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="an empty cache of the compiler for the first one")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="after --: train digits-line")
    options = parser.parse_args(arguments)
    environment = about()
    record = Record(options.json, commit=environment["commit"], environment=environment, called=options.words)
    measure(options.words, options.repeat, options.cold, record)


if __name__ == "__main__":
    main()
