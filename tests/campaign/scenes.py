"""Small run folders, the commands that read them, and the answers that these give while nothing is damaged."""

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign import answers, warm
from campaign.answers import Answer

CACHES = ("evaluation.json", "measurements.jsonl", "ensembles.json")
PICTURE = Path(__file__).parents[2] / "results" / "demo" / "along.png"
COMMON = ("--device", "cpu", "--no-tensorboard", "--json")
RECIPE = ("--epochs", "2", "--validation", "200", "--batch", "256")
TRAIN = ("train", "digits-line", *RECIPE, *COMMON)
BRANCH = ("train", "digits-standard", *RECIPE, *COMMON, "--trunk", "1", "--branch")
EVALUATE = ("--grid", "0", "1", "0.25", "--device", "cpu", "--json")
SELECT = ("--corruption", "fog", "--statistics-batches", "2", "--device", "cpu", "--json")
COMPARE = ("compare", "digits-standard", "digits-line", "--out", "to", *RECIPE, *COMMON, "--seeds", "0", "1")
DROPPED = ("compare", "digits-standard", "--network", "campaign.networks:dropped", "--dropout", "0.2")
DROPPED = (*DROPPED, "--dropout-passes", "3", "--out", "to", *RECIPE, *COMMON)


@dataclass(frozen=True)
class Command:
    """A command line, and how its answer is read."""

    name: str
    argv: tuple[str, ...]
    read: Answer


@dataclass(frozen=True)
class Scene:
    """A folder with runs, and commands for it with the answers they should give."""

    name: str
    folder: Path
    commands: tuple[Command, ...]
    weight: int
    answers: dict[str, list[Any]] = field(default_factory=dict)
    """Of each command: that of the folder as it is and, where it may measure anew, that of one without caches."""

    def copy(self, target: Path) -> Path:
        """Return a copy that may be damaged."""
        return Path(shutil.copytree(self.folder, target, symlinks=True))

    def files(self) -> list[str]:
        """Return the files that somebody reads."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.name != ".lock")
        made = ("to/comparison", "to/report")  # which nobody reads
        names = (str(path.relative_to(self.folder)) for path in found)
        return [name for name in names if not name.startswith(made) and "tfevents" not in name]


class Unprepared(RuntimeError):
    """Undamaged folders that a command refused."""


def run(
    argv: Sequence[str],
    folder: Path,
    code: int = 0,
    first: Callable[[], None] = answers.draw_data,
    home: Path | None = None,
) -> warm.Ended:
    """Run a command that must end as it should."""
    folder.mkdir(parents=True, exist_ok=True)
    ended = warm.command(argv, folder, first=first, home=home)
    if ended.code != code:
        raise Unprepared(f"{' '.join(argv)}: exit code {ended.code}: {ended.err}")
    return ended


def stop_after(steps: int) -> Callable[[], None]:
    """Return what stops a training by a signal after so many steps."""

    def install() -> None:
        from subspaces.experiments.training.engine import Engine

        advance, left = Engine.advance, [steps]

        def counted(self: Engine, *given: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            return advance(self, *given)

        Engine.advance = counted

    return install


def has_check() -> bool:
    """Say whether the package has `subspaces check`."""
    from subspaces import cli

    return "check" in getattr(cli.app, "commands", {})


def prepare(base: Path, quick: bool = False) -> dict[str, Scene]:
    """Make the scenes with their answers, those that take long only if there is time; `donors` gets files of others."""
    made = {}
    for name, (make, weight) in MAKERS.items():
        if not (quick and name in SLOW):
            folder = base / "scenes" / name
            commands = make(folder)
            made[name] = Scene(name, folder, tuple(commands), weight)
    _donors(base / "donors", made)
    for scene in made.values():
        for command in scene.commands:
            anew = scene.name == "evaluated" and command.name.startswith("evaluate ")
            scene.answers[command.name] = [
                _reference(scene, command, base, *caches) for caches in [(), CACHES][: 1 + anew]
            ]
    return made


def _reference(scene: Scene, command: Command, base: Path, *without: str) -> Any:
    """Return the answer of an undamaged folder; for a run that has to go on, that of one which was never stopped."""
    folder = base / "reference"
    if scene.name == "interrupted" and command.name == "train":
        folder.mkdir()
    else:
        scene.copy(folder)
    for path in [path for path in folder.rglob("*") if path.name in without]:
        path.unlink()
    try:
        return command.read(folder, run(command.argv, folder).out)
    finally:
        shutil.rmtree(folder)


def _runs(folder: Path) -> list[str]:
    return [f"runs/{path.name}" for path in sorted((folder / "runs").iterdir()) if path.name != ".trunks"]


def _check(folder: Path) -> list[Command]:
    return [Command("check", ("check", *_runs(folder)), answers.of_nothing)] if has_check() else []


def _finished(folder: Path) -> list[Command]:
    run(TRAIN, folder)
    (one,) = _runs(folder)
    return [
        Command("train", TRAIN, answers.of_training),
        Command("evaluate", ("evaluate", one, *EVALUATE), answers.of_evaluation),
        Command("plot training", ("plot", "training", one, "-o", "f.png"), answers.of_file("f.png")),
    ]


def _evaluated(folder: Path) -> list[Command]:
    run(TRAIN, folder)
    (one,) = _runs(folder)
    run(("evaluate", one, *EVALUATE), folder)
    run(("select", one, *SELECT), folder)
    return [
        Command("train", TRAIN, answers.of_training),
        Command("select", ("select", one, *SELECT), answers.of_selection),
        Command("evaluate", ("evaluate", one, *EVALUATE), answers.of_evaluation),
        Command("evaluate more", ("evaluate", one, *EVALUATE, "--grid", "0", "1", "0.2"), answers.of_evaluation),
        Command(
            "evaluate --choose-on test", ("evaluate", one, *EVALUATE, "--choose-on", "test"), answers.of_evaluation
        ),
        Command("plot along", ("plot", "along", one, "-o", "f.png"), answers.of_file("f.png")),
        Command("plot training", ("plot", "training", one, "-o", "f.png"), answers.of_file("f.png")),
        Command("plot reliability", ("plot", "reliability", one, "-o", "f.png"), answers.of_file("f.png")),
        Command("report", ("report", one, "-o", "r.html"), answers.of_file("r.html")),
        *_check(folder),
    ]


def _interrupted(folder: Path) -> list[Command]:
    run(TRAIN, folder, 128 + signal.SIGTERM, first=stop_after(5))
    return [Command("train", TRAIN, answers.of_whole_training), *_check(folder)]


def _branches(folder: Path) -> list[Command]:
    run((*BRANCH, "1"), folder)
    return [Command("train another branch", (*BRANCH, "2"), answers.of_whole_training)]


def _compared(folder: Path) -> list[Command]:
    run(COMPARE, folder)
    return [Command("compare", COMPARE, answers.of_comparison)]


def _dropped(folder: Path) -> list[Command]:
    run(DROPPED, folder)
    return [Command("compare with dropout", DROPPED, answers.of_comparison)]


def _exported(folder: Path) -> list[Command]:
    """Exports whose files alone are damaged: the run is gone, and what they look at lies elsewhere."""
    run(TRAIN, folder)
    (one,) = _runs(folder)
    models = ("one.pt2", "one.safetensors", "two.onnx")
    for name in models:
        point = ("--point", "ensemble") if name.startswith("two") else ()
        run(("export", one, "--out", name, "--quiet", *point), folder)
    shutil.rmtree(folder / "runs")
    looked_at = ("--format", "json", "--quiet", "--trust")
    return [Command(f"predict {name}", ("predict", name, str(PICTURE), *looked_at), answers.of_text) for name in models]


MAKERS: dict[str, tuple[Callable[[Path], list[Command]], int]] = {
    "finished": (_finished, 3),
    "evaluated": (_evaluated, 8),
    "interrupted": (_interrupted, 4),
    "branches": (_branches, 2),
    "compared": (_compared, 2),
    "dropped": (_dropped, 1),
    "exported": (_exported, 1),
}


SLOW = ("compared", "dropped", "exported")


def _donors(folder: Path, made: dict[str, Scene]) -> None:
    """Make runs of the same recipe with another seed, and of another recipe, whose files will lie in wrong places."""
    changed = {"same": ("--seed", "1"), "other": ("--method", "simplex")}
    for name, changes in changed.items():
        here = folder / name
        run((*TRAIN, *changes), here)
        (one,) = _runs(here)
        run(("evaluate", one, *EVALUATE, "--triangle", "1"), here)
        if "interrupted" in made:
            run((*TRAIN, *changes), here / "stopped", 128 + signal.SIGTERM, first=stop_after(5))
        if "branches" in made:
            run((*BRANCH, "1", "--seed", "1") if name == "same" else (*BRANCH, "1", "--label-noise", "0"), here)
