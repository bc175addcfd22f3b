"""Crashes at every write: the process dies, loses power or finds the disk full, and the same command recovers."""

import random
import shutil
from pathlib import Path
from typing import Any

from campaign import answers, faults, scenes, verdict, warm
from campaign.kills import OFTEN, Situation, finished
from campaign.scenes import Command, Scene
from campaign.verdict import Outcome


def situations(made: dict[str, Scene]) -> list[Situation]:
    """Return what writes files: a run's, a trunk, an evaluation's, a table's, a figure and a page."""
    finished_, evaluated = made["finished"], made["evaluated"]
    train = Command("train", (*scenes.TRAIN, *OFTEN), answers.of_whole_training)
    branch = Command("train a branch", (*scenes.BRANCH, "1"), answers.of_whole_training)
    found = [Situation(train, None), Situation(train, made["interrupted"]), Situation(branch, None)]
    found += [Situation(one, finished_) for one in finished_.commands if one.name == "evaluate"]
    found += [Situation(one, evaluated) for one in evaluated.commands if one.name in ("plot along", "report")]
    if "compared" in made:
        found.append(Situation(made["compared"].commands[0], made["compared"], ("to",)))
    return found


class Crashes:
    """The cases of crashed commands."""

    kind = "crashes"

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        self.situations = situations(made)
        self.expected: list[Any] = []
        self.moments: list[tuple[int, int, str]] = []  # situation, which write, and what it is
        for at, situation in enumerate(self.situations):
            folder, journal = situation.begin(base / "reference"), base / "journal"
            disk = faults.Disk(folder, journal=journal)
            ended = scenes.run(situation.command.argv, folder, first=lambda disk=disk: self._prepare(disk))
            self.expected.append(situation.command.read(folder, ended.out))
            self.moments += [(at, k, text) for k, text in enumerate(journal.read_text().splitlines(), 1)]
            journal.unlink()
            shutil.rmtree(folder)
        self.cases = [(*moment, way) for moment in self.moments for way in faults.ways(moment[2].split()[0])]
        random.Random(0).shuffle(self.cases)  # as many as are asked for, and each once before one comes again

    @staticmethod
    def _prepare(disk: faults.Disk) -> None:
        answers.draw_data()
        disk.install()

    def label(self, index: int, chance: random.Random) -> str:
        """Return which command crashes, at what and how."""
        at, k, what, way = self.cases[index % len(self.cases)]
        return f"{self.situations[at].name}: {way} {k} {what}"

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Crash a command at one of its writes, let it run again, and look at what it leaves."""
        at, k, what, way = self.cases[index % len(self.cases)]
        situation = self.situations[at]
        argv, where = situation.command.argv, what.split()[1]
        disk = faults.Disk(situation.begin(folder), k, way)
        ended = warm.command(argv, folder, first=lambda: self._prepare(disk))
        bad = "" if ended.code == faults.CODE else _unclear(ended, where)
        last = warm.command(argv, folder, first=answers.draw_data)
        bad = bad or finished(last, situation.command, self.expected[at], folder)
        text = f"{' '.join(argv)}; {way} at write {k}, {what}; then once more"
        return Outcome(self.kind, index, f"{situation.command.name}: {way}", text, "recovered", bad, last.seconds)


def _unclear(ended: warm.Ended, where: str) -> str:
    """Return what is wrong with a command that found the disk full; some can do without the file."""
    if wrong := verdict.crashed(ended):
        return wrong
    path = Path(where)
    name = path.name.removeprefix(".").split(".")[0]  # of a partial file, too
    return "" if ended.code == 0 else verdict.unclear(ended, {name, str(path.parent), path.parent.name} - {"", "."})
