"""Kills at random moments: the same command afterwards ends where an undisturbed one does, and leaves nothing over."""

import random
import signal
import time
from pathlib import Path

from campaign import children, judge, scenes
from campaign.children import Ended
from campaign.judge import Outcome
from campaign.scenes import Command, Scene

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SEVERAL = ("train", "digits-standard", "digits-line", *scenes.COMMON, *scenes.OFTEN, "--epochs", "3")


class Kills:
    """The cases of killed commands: training, evaluating, comparing."""

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        often = Command((*scenes.TRAIN, *scenes.OFTEN), scenes.of_whole_training)
        evaluate = next(one for one in made["evaluated"].commands if one.argv[0] == "evaluate")
        self.cases: list[tuple[Command, Scene | None, str]] = [  # from which scene, without which of its files
            (Command(SEVERAL, scenes.of_whole_training), None, ""),
            (often, made["interrupted"], ""),
            (evaluate, made["evaluated"], "evaluation*"),
        ]
        self.expected = []
        for number, (command, scene, without) in enumerate(self.cases):
            folder, begin = base / f"undisturbed-{number}", time.monotonic()
            if scene is not None and scene.name != "interrupted":
                scene.copy(folder, without)
            out = scenes.run(command.argv, folder).out
            self.expected.append((command.read(folder, out), time.monotonic() - begin))

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Kill a command one to three times, let it finish, and look at what it leaves."""
        at = index % len(self.cases)
        (command, scene, without), (expected, seconds) = self.cases[at], self.expected[at]
        folder.mkdir() if scene is None else scene.copy(folder, without)
        done, bad = [], ""
        for _ in range(chance.randint(1, 3)):
            number, after = kill = chance.choice(SIGNALS), chance.uniform(0, 1.1 * seconds)
            done.append(f"{signal.Signals(number).name} after {after:.3f} s")
            bad = bad or _untidy(children.command(command.argv, folder, kill=kill), number)
        times = 1 + (chance.random() < 0.2)  # two processes finish it together
        for last in children.together([command.argv] * times, folder):
            bad = bad or command.finished(last, [expected], folder)
        return Outcome(f"{' '.join(command.argv)}; {', '.join(done)}; then {times} at once", "recovered", bad)


def _untidy(ended: Ended, number: int) -> str:
    """Return what is wrong with the way a command was stopped."""
    if ended.code in (0, -number):  # it was done already, or had not begun
        return ""
    if ended.code != 128 + number:
        return judge.crashed(ended) or f"exit code {ended.code} after signal {number}: {' / '.join(ended.lines[:2])}"
    return f"{len(ended.lines)} lines after signal {number}: {ended.err[-300:]}" if len(ended.lines) > 1 else ""
