"""Kills at random moments: the same command afterwards ends where an undisturbed one does, and leaves nothing over."""

import random
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import answers, processes, scenes, verdict, warm
from campaign.mutations import difference
from campaign.scenes import Command, Scene
from campaign.verdict import Outcome

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
OFTEN = ("--checkpoint-seconds", "0")
SEVERAL = ("train", "digits-standard", "digits-line", *scenes.RECIPE, *scenes.COMMON, *OFTEN, "--epochs", "3")
REAL = 40  # one of so many kills is of a process of its own


@dataclass(frozen=True)
class Situation:
    """A command that takes a while, from a folder where it has all or nothing to do."""

    command: Command
    scene: Scene | None
    without: tuple[str, ...] = ()  # what of the scene it has to make again

    @property
    def name(self) -> str:
        """The command, and from what it starts."""
        return f"{self.command.name} {f'from {self.scene.name}' if self.scene else 'from nothing'}"

    def begin(self, folder: Path) -> Path:
        """Make the folder in which the command is started."""
        if self.scene is None:
            folder.mkdir()
            return folder
        self.scene.copy(folder)
        for path in [path for path in sorted(folder.rglob("*")) if path.name in self.without]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return folder


def situations(made: dict[str, Scene]) -> list[Situation]:
    """Return what is killed: training, evaluating, comparing."""
    finished = made["finished"]
    evaluate = next(one for one in finished.commands if one.name == "evaluate")
    often = Command("train", (*scenes.TRAIN, *OFTEN), answers.of_whole_training)
    found = [
        Situation(Command("train two", SEVERAL, answers.of_whole_training), None),
        Situation(often, made["interrupted"]),
        Situation(Command("train a branch", (*scenes.BRANCH, "1", *OFTEN), answers.of_whole_training), None),
        Situation(evaluate, finished),
    ]
    if "compared" in made:
        compare = Command("compare", scenes.COMPARE, answers.of_comparison)
        found.append(Situation(compare, made["compared"], ("to", "evaluation.json", "result.json")))
    return found


class Kills:
    """The cases of killed commands."""

    kind = "kills"

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        self.situations = situations(made)
        self.expected: list[tuple[Any, float]] = []
        for one in self.situations:
            folder = base / "reference"
            folder.mkdir() if one.scene is None or one.scene.name == "interrupted" else one.begin(folder)
            ended = scenes.run(one.command.argv, folder)
            self.expected.append((one.command.read(folder, ended.out), ended.seconds))
            shutil.rmtree(folder)

    def label(self, index: int, chance: random.Random) -> str:
        """Return which command is killed."""
        return self.situations[self._which(chance)].command.name

    def _which(self, chance: random.Random) -> int:
        return chance.choices(range(len(self.situations)), [3, 3, 2, 4, 1][: len(self.situations)])[0]

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Kill a command one to three times, let it finish, and look at what it leaves."""
        at = self._which(chance)
        situation, (expected, seconds) = self.situations[at], self.expected[at]
        argv = situation.command.argv
        situation.begin(folder)
        real = index % REAL == REAL - 1 and "--json" in argv and argv[0] == "train"
        told, bad = [], ""
        for _ in range(chance.randint(1, 3)):
            kill = warm.Kill(chance.choice(SIGNALS), chance.uniform(0, 1.1 * seconds))
            told.append(f"{signal.Signals(kill.number).name} after {kill.after:.3f} s")
            if real:
                ended = processes.process(argv, folder, kill)
            else:
                ended = warm.command(argv, folder, first=answers.draw_data, kill=kill)
            bad = bad or _untidy(ended, kill.number)
        company = chance.random() < 0.2  # two processes finish it together
        for last in warm.together([argv] * (1 + company), folder, answers.draw_data):
            bad = bad or finished(last, situation.command, expected, folder)
        where = f"{situation.command.name}{' in its own process' if real else ', then two at once' if company else ''}"
        text = f"{' '.join(argv)}; {', '.join(told)}; then {'twice at once' if company else 'once more'}"
        return Outcome(self.kind, index, where, text, "recovered", bad, last.seconds)


def _untidy(ended: warm.Ended, number: int) -> str:
    """Return what is wrong with the way a command let itself be stopped."""
    if ended.code in (0, -number):  # it was done already, or had not begun
        return ""
    if ended.code != 128 + number:
        return verdict.crashed(ended) or f"exit code {ended.code} after signal {number}: {' / '.join(ended.lines[:2])}"
    return f"{len(ended.lines)} lines after signal {number}: {ended.err[-300:]}" if len(ended.lines) > 1 else ""


def finished(ended: warm.Ended, command: Command, expected: Any, folder: Path) -> str:
    """Return what is wrong with a command that should now have finished."""
    if ended.code != 0 or ended.hung:
        return verdict.crashed(ended) or f"started again, it failed: {' / '.join(ended.lines)}"
    if (wrong := difference([expected], command, folder, ended.out)) is not None:
        return wrong
    left = verdict.leftovers(folder)
    return f"left over: {', '.join(left)}" if left else ""
