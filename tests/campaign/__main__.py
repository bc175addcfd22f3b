"""`python -m campaign`: run cases of every kind, print how they ended and every bad one; exit code 1 if there is any.

A case is good if the answer is bit for bit that of an undamaged and undisturbed run (same, recovered), or if the
command is refused with one line that names the file and says what to do, and nothing else is changed (refused).
The same seed gives the same cases, whatever their number.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign import children, scenes
from campaign.crashes import Crashes, Kills
from campaign.damage import Damage
from campaign.judge import Outcome
from campaign.nonsense import Commands

KINDS: dict[str, Any] = {"damage": Damage, "kills": Kills, "crashes": Crashes, "commands": Commands}


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("campaign", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-n", type=int, default=200, help="cases of damaged files; a quarter of it of the other kinds")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, metavar="N", help=f"cases of {kind}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], metavar="KIND:CASE", help="these cases alone")
    return parser.parse_args(arguments)


def case(kind: Any, name: str, index: int, seed: int, folder: Path, **options: Any) -> Outcome:
    """Run one case; its random numbers are those of its kind and number."""
    return kind.run(index, random.Random(f"{seed} {name} {index}"), folder, **options)


def main(arguments: list[str], then: Callable[[dict[str, Any], Path], None] | None = None) -> int:
    """Run the campaign, and `then` something else with its kinds and folder; return its exit code."""
    given, begin = parsed(arguments), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-") as temporary:
        base = Path(temporary).resolve()
        children.warm_up(base / "home")
        made = scenes.prepare(base)
        tasks = [(name, int(index)) for name, _, index in (one.partition(":") for one in given.only)]
        for name in [] if given.only else KINDS:
            wanted = getattr(given, name)
            count = (given.n if name == "damage" else given.n // 4) if wanted is None else wanted
            tasks += [(name, at) for at in range(count)]
        kinds = {name: KINDS[name](made, base) for name in {name for name, _ in tasks}}
        counts: dict[str, Counter[str]] = {name: Counter() for name, _ in tasks}
        (base / "cases").mkdir(exist_ok=True)
        for name, index in tasks:
            folder = base / "cases" / f"{name}-{index}"
            found = case(kinds[name], name, index, given.seed, folder)
            counts[name]["bad" if found.bad else found.good] += 1
            if found.bad:
                again = f"--seed {given.seed} --only {name}:{index}"
                print(f"{name}:{index}  {found.bad}\n    {found.done}\n    {again}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
        if then is not None:
            then(kinds, base)
    for name, count in counts.items():
        print(f"{name:10} {'  '.join(f'{word}: {number}' for word, number in sorted(count.items()))}")
    bad = sum(count["bad"] for count in counts.values())
    print(f"{bad} bad cases of {len(tasks)} in {time.monotonic() - begin:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
