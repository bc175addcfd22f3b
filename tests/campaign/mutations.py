"""Damaged files: every file of every scene, damaged at random, under every command that reads it."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from campaign import answers, verdict, warm
from campaign.scenes import CACHES, Command, Scene
from campaign.verdict import Outcome

MINDED = {*CACHES, "environment.json"}  # measured anew; a note of each start
NUMBER = re.compile(rb"\d")
Bytes = Callable[[bytes, random.Random], bytes]


def _bit(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"\0"
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


def _digit(content: bytes, chance: random.Random) -> bytes:
    """Change a digit of a number: of a JSON file, or in the header of tensors."""
    text = content if content[:1] in b"{[" else content[8 : 8 + int.from_bytes(content[:8], "little")]
    places = [found.start() + content.find(text) for found in NUMBER.finditer(text)]
    if not places:
        return _bit(content, chance)
    at = chance.choice(places)
    others = [digit for digit in b"0123456789" if digit != content[at]]
    return content[:at] + bytes([chance.choice(others)]) + content[at + 1 :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(max(1, len(content)))]


def _longer(content: bytes, chance: random.Random) -> bytes:
    return content + chance.choice((b"\0", b"\n", b"}", content, chance.randbytes(chance.randint(1, 100))))


def _random(content: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((1, len(content), 1000)))


BYTES: dict[str, Bytes] = {
    "a flipped bit": _bit,
    "another digit": _digit,
    "cut short": _cut,
    "emptied": lambda content, chance: b"",
    "longer": _longer,
    "random bytes": _random,
}
FILES = ("removed", "of the same recipe", "of another recipe", "swapped")
WEIGHTS = {"a flipped bit": 5, "another digit": 4}


def damage(how: str, file: Path, donors: Path, chance: random.Random) -> tuple[str, list[Path]]:
    """Damage a file, and return what was done in words and which files may be named for it."""
    if how in BYTES:
        content = file.read_bytes()
        changed = BYTES[how](content, chance)
        file.write_bytes(changed)
        return f"{how} ({len(content)} -> {len(changed)} bytes)", [file]
    if how == "removed":
        file.unlink()
        return how, [file]
    if how == "swapped":
        others = [path for path in sorted(file.parent.iterdir()) if path.is_file() and path != file]
        other = chance.choice(others or [file])  # it may be the only one, whose content stays
        mine, theirs = file.read_bytes(), other.read_bytes()
        file.write_bytes(theirs)
        other.write_bytes(mine)
        return f"swapped with {other.name}", [file, other]
    return _donated(file, donors / ("other" if "another" in how else "same"), chance)


def _donated(file: Path, donors: Path, chance: random.Random) -> tuple[str, list[Path]]:
    """Put a file of another run in a file's place: of its own name or, for trunks and where there is none, its kind."""
    known = [path for path in sorted(donors.rglob("*")) if path.is_file() and path.name != ".lock"]
    same = [path for path in known if path.name == file.name]
    trunks = [path for path in known if path.parent.name == ".trunks" == file.parent.name]
    donor = chance.choice(same or trunks or [path for path in known if path.suffix == file.suffix] or known)
    shutil.copyfile(donor, file)
    return f"replaced by {donor.relative_to(donors.parent)}", [file]


class Mutations:
    """The cases of damaged files."""

    kind = "mutations"

    def __init__(self, scenes: dict[str, Scene], base: Path) -> None:
        self.scenes = list(scenes.values())
        self.files = {scene.name: scene.files() for scene in self.scenes}
        self.donors = base / "donors"

    def _plan(self, chance: random.Random) -> tuple[Scene, str, str, Command]:
        """Choose a scene, a file, what is done to it, and a command."""
        scene = chance.choices(self.scenes, [scene.weight for scene in self.scenes])[0]
        name = chance.choice(self.files[scene.name])
        ways = (*BYTES, *FILES)
        how = chance.choices(ways, [WEIGHTS.get(way, 2) for way in ways])[0]
        return scene, name, how, chance.choice(scene.commands)

    def label(self, index: int, chance: random.Random) -> str:
        """Return what will be damaged, and under which command."""
        scene, name, how, command = self._plan(chance)
        return f"{scene.name} {Path(name).name}: {how}; {command.name}"

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Damage a file of a copy, run a command, and judge its answer."""
        scene, name, how, command = self._plan(chance)
        case = scene.copy(folder)
        told, named = damage(how, case / name, self.donors, chance)
        before = verdict.snapshot(case)
        ended = warm.command(command.argv, case, first=answers.draw_data)
        good, bad = judge(scene, command, ended, case, named, before)
        where = Path(name).name if ".trunks" not in name else ".trunks/*"
        text = f"{scene.name}: {name} {told}; {' '.join(command.argv)}"
        return Outcome(self.kind, index, where, text, good, bad, ended.seconds)


def judge(
    scene: Scene, command: Command, ended: warm.Ended, case: Path, named: list[Path], before: dict[str, str]
) -> tuple[str, str]:
    """Return what came of it in a word, or what is wrong in a sentence."""
    if wrong := verdict.crashed(ended):
        return "", wrong
    if ended.code == 0:
        if command.name == "check":
            blind = [path for path in named if not _harmless(path, scene.folder / path.relative_to(case))]
            return ("", f"checked and not noticed: {blind[0].relative_to(case)}") if blind else ("same", "")
        if (wrong := difference(scene.answers[command.name], command, case, ended.out)) is not None:
            return "", wrong
        now = verdict.snapshot(case)
        again = any(now.get(name) != before.get(name) for name in (str(path.relative_to(case)) for path in named))
        return ("same, made anew" if again else "same"), ""
    names = {name for path in named for name in (path.name, path.parent.name, str(path.relative_to(case)))}
    names = names - {"runs", "to"} | {"to/"}
    if command.name == "check":  # its answer is a list of what is wrong
        text = f"{ended.out}{ended.err}"
        return ("refused", "") if any(name in text for name in names) else ("", f"it names no damaged file: {text}")
    if wrong := verdict.unclear(ended, names, advice=True):
        return "", wrong
    damaged = {str(path.relative_to(case)) for path in named}
    changed = (name for name in verdict.altered(before, verdict.snapshot(case)) if name not in damaged)
    spoilt = [name for name in changed if Path(name).name not in MINDED]
    return ("", f"refused, but changed {spoilt[0]}: {ended.lines[0]}") if spoilt else ("refused", "")


def difference(expected: list[Any], command: Command, case: Path, out: str) -> str | None:
    """Return in words where an answer differs from those that are right; None if it does not."""
    try:
        found = command.read(case, out)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        return f"exit code 0, and an answer that cannot be read: {error!r}"
    return None if found in expected else f"another answer, with exit code 0: {first_difference(expected[0], found)}"


def first_difference(expected: Any, found: Any, where: str = "") -> str:
    """Return where two answers part."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        parts = [(f"{where}.{key}", expected[key], found[key]) for key in expected]
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        parts = [(f"{where}[{at}]", one, other) for at, (one, other) in enumerate(zip(expected, found, strict=True))]
    else:
        return f"{where or 'all'} was {str(expected)[:60]!r} and is {str(found)[:60]!r}"
    return next(first_difference(one, other, at) for at, one, other in parts if one != other)


def _harmless(path: Path, original: Path) -> bool:
    """Say whether a damaged file means what it meant, or is one that may be missing."""
    if not path.is_file():
        return path.name in {*CACHES, "environment.json", "log.jsonl", "result.json", "state.safetensors"}
    try:
        if path.suffix == ".safetensors":
            return answers.tensors(path) == answers.tensors(original)
        if path.suffix == ".jsonl":
            return answers.rows(path.read_text()) == answers.rows(original.read_text())
        return bool(json.loads(path.read_bytes()) == json.loads(original.read_bytes()))
    except (OSError, ValueError, SafetensorError):
        return False
