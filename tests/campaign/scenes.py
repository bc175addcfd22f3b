"""Small run folders, the commands that read them, and the answers that these give while nothing is damaged."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from campaign import children, judge
from campaign.children import Ended

COMMON = ("--epochs", "2", "--validation", "200", "--batch", "256", "--device", "cpu", "--json")
TRAIN = ("train", "digits-line", *COMMON)
EVALUATE = ("--grid", "0", "1", "0.25", "--device", "cpu", "--json")
SELECT = ("--corruption", "fog", "--statistics-batches", "2", "--device", "cpu", "--json")
WITHOUT = {"evaluate": ("evaluation*", "measurements*"), "select": ("evaluation*", "measurements*")}
"""Files that a command makes anew where they are missing."""
OFTEN = ("--checkpoint-seconds", "0")


@dataclass(frozen=True)
class Command:
    """A command line, and the function that reads its answer from a folder and its output."""

    argv: tuple[str, ...]
    read: Callable[[Path, str], Any]

    def difference(self, expected: list[Any], folder: Path, out: str) -> str:
        """Return where an answer differs from those that are right."""
        try:
            found = self.read(folder, out)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            return f"exit code 0, and an answer that cannot be read: {error!r}"
        if found in expected:
            return ""
        return f"another answer, with exit code 0: {judge.first_difference(expected[0], found)}"

    def finished(self, ended: Ended, expected: list[Any], folder: Path) -> str:
        """Return what is wrong with a command that should now have finished."""
        if ended.code != 0 or ended.hung:
            return judge.crashed(ended) or f"started again, it failed: {' / '.join(ended.lines)}"
        left = judge.leftovers(folder)
        return self.difference(expected, folder, ended.out) or (f"left over: {', '.join(left)}" if left else "")


@dataclass(frozen=True)
class Scene:
    """A folder with runs, and commands for it with the answers they should give."""

    name: str
    folder: Path
    commands: tuple[Command, ...]
    answers: dict[tuple[str, ...], list[Any]] = field(default_factory=dict)
    """Of each command: that of the folder as it is, and those without evaluations or measurements, made anew."""

    def copy(self, target: Path, without: str = "") -> Path:
        """Return a copy that may be damaged."""
        ignore = shutil.ignore_patterns(without) if without else None
        return Path(shutil.copytree(self.folder, target, symlinks=True, ignore=ignore))

    def files(self) -> list[str]:
        """Return the files that a command reads."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.name != ".lock")
        names = (str(path.relative_to(self.folder)) for path in found)
        return [name for name in names if not name.startswith("to/") and "tfevents" not in name]


# Answers


def of_training(folder: Path, out: str) -> Any:
    """Return results and families."""
    found = [line for line in map(json.loads, out.splitlines()) if "result" in line]
    families = [judge.tensors(folder / line["folder"] / "family.safetensors") for line in found]
    return [[line["run"], judge.stable(line["result"]), one] for line, one in zip(found, families, strict=True)]


def of_whole_training(folder: Path, out: str) -> Any:
    """Return results, families and logs."""
    return [
        [*one, judge.rows((folder / "runs" / one[0] / "log.jsonl").read_text())] for one in of_training(folder, out)
    ]


def of_output(folder: Path, out: str) -> Any:
    return judge.rows(out)


# Scenes


def run(argv: Sequence[str], folder: Path, code: int = 0, first: Callable[[], None] | None = None) -> Ended:
    """Run a command that must end as it should."""
    folder.mkdir(parents=True, exist_ok=True)
    ended = children.command(argv, folder, first=first)
    if ended.code != code:
        raise RuntimeError(f"{' '.join(argv)}: exit code {ended.code}: {ended.err}")
    return ended


def stop_training() -> None:
    """Stop the training of this process by a signal after five steps."""
    from subspaces.experiments.training.step import Step

    advance, left = Step.advance, [5]

    def counted(self: Step, *given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return advance(self, *given)

    Step.advance = counted


def prepare(base: Path) -> dict[str, Scene]:
    """Make the scenes with their answers."""
    made = {}
    for make in (_evaluated, _interrupted):
        name = make.__name__[1:]
        scene = made[name] = Scene(name, base / "scenes" / name, tuple(make(base / "scenes" / name)))
        for command in scene.commands:
            missing = ("", *WITHOUT.get(command.argv[0], ()))
            scene.answers[command.argv] = [_answer(scene, command, base, without) for without in missing]
    return made


def _answer(scene: Scene, command: Command, base: Path, without: str) -> Any:
    """Return the answer of an undamaged folder; for a run that has to go on, that of one which was never stopped."""
    folder = base / "reference"
    if scene.name != "interrupted" or command.argv[0] != "train":
        scene.copy(folder, without)
    else:
        folder.mkdir()
    found = command.read(folder, run(command.argv, folder).out)
    shutil.rmtree(folder)
    return found


def _run_in(folder: Path) -> str:
    return f"runs/{next(path.name for path in sorted((folder / 'runs').iterdir()) if path.name[0] != '.')}"


def _evaluated(folder: Path) -> list[Command]:
    run(TRAIN, folder)
    one = _run_in(folder)
    run(("evaluate", one, *EVALUATE), folder)
    return [
        Command(TRAIN, of_training),
        Command(("select", one, *SELECT), of_output),
        Command(("evaluate", one, *EVALUATE), of_output),
        Command(("evaluate", one, *EVALUATE, "--grid", "0", "1", "0.2"), of_output),
        Command(("report", one, "-o", "r.html"), lambda folder, _: (folder / "r.html").stat().st_size > 10_000),
        Command(("check", one), lambda *_: True),
    ]


def _interrupted(folder: Path) -> list[Command]:
    run(TRAIN, folder, 128 + signal.SIGTERM, first=stop_training)
    return [Command(TRAIN, of_whole_training), Command(("check", _run_in(folder)), lambda *_: True)]
