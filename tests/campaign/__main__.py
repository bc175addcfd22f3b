"""`python -m campaign`: run cases of every kind, print a table and every bad one; exit code 1 if there is any.

With --plants, exit code 2 says that a planted defect was not found.

The same seed gives the same cases, whatever their number and that of the processes.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from campaign import plants, pool, table, warm
from campaign.kinds import KINDS, make

ROOT = Path(__file__).parents[2]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("campaign", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-n", type=int, default=200, help="cases of damaged files; a quarter of it of the other kinds")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, metavar="N", help=f"cases of {kind}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", action="append", default=[], metavar="KIND[:CASE]", help="these cases alone")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="make the folders of all cases here, and keep them")
    parser.add_argument("--plant", choices=tuple(plants.PLANTS), help="plant this defect: the campaign should find it")
    parser.add_argument("--plants", action="store_true", help="then plant one defect after the other, and find all")
    parser.add_argument("--quick", action="store_true", help="without the runs that take long to prepare")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
    return parser.parse_args()


def tasks_of(given: argparse.Namespace) -> list[pool.Task]:
    """Return the cases that are asked for."""
    counts = {kind: getattr(given, kind) for kind in KINDS}
    share = {"mutations": given.n}
    counts = {kind: share.get(kind, given.n // 4) if count is None else count for kind, count in counts.items()}
    chosen = [(kind, index) for kind in KINDS for index in range(counts[kind])]
    if not given.only:
        return chosen
    exact = [(kind, int(index)) for kind, colon, index in (one.partition(":") for one in given.only) if colon]
    return exact + [task for task in chosen if task[0] in given.only]


def commit() -> str:
    """Return the commit of the source tree, with a plus sign where it was changed since."""
    words = ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def main() -> int:
    """Run the campaign and return its exit code."""
    given, begin = options(), time.monotonic()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        base = (given.keep or Path(folder)).resolve()
        warm.warm_up(base / "home")
        tasks = tasks_of(given)
        kinds = make(base, {kind for kind, _ in tasks} if not given.plants else KINDS, given.quick)
        if given.plants:  # which are looked for with cases that are good without them
            tasks = sorted({*tasks, *chain(*plants.cases_of_all(kinds, given.seed).values())})
        if given.plant:
            plants.install(given.plant)
        outcomes = pool.run(kinds, tasks, seed=given.seed, jobs=given.jobs, base=base, keep=given.keep is not None)
        missed = plants.find_all(kinds, outcomes, given.seed, given.jobs, base) if given.plants else 0
    words = shlex.join(["python", "-m", "campaign", *sys.argv[1:]])
    campaign = table.Campaign(words, given.seed, commit(), time.monotonic() - begin, given.jobs)
    for text in table.bad_ones(outcomes, campaign):
        print(text)
    print(table.as_text(outcomes))
    bad = sum(bool(outcome.bad) for outcome in outcomes)
    rate = len(outcomes) / max(sum(outcome.seconds for outcome in outcomes), 1e-9)
    print(f"{bad} bad cases of {len(outcomes)} in {campaign.seconds:.0f} s; {rate:.1f} commands a second and process")
    if given.markdown is not None:
        given.markdown.write_text(table.as_markdown(outcomes, campaign))
    return 2 if missed else int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
