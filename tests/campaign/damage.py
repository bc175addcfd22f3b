"""Damaged files: every file of every scene, damaged at random or made to do harm, under every command that reads it."""

import json
import os
import pickle
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from campaign import children, judge
from campaign.children import Ended
from campaign.judge import Outcome
from campaign.scenes import Command, Scene

OPTIONAL = re.compile(r"evaluation|measurements|predictions|examples|dropout|ensembles|environment")
"""Files that are made anew where they are missing."""


def _bit(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"\0"
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


def _digit(content: bytes, chance: random.Random) -> bytes:
    """Change a digit of a number: of a JSON file, or in the header of tensors."""
    text = content if content[:1] in b"{[" else content[8 : 8 + int.from_bytes(content[:8], "little")]
    places = [found.start() + content.find(text) for found in re.finditer(rb"\d", text)]
    if not places:
        return _bit(content, chance)
    at = chance.choice(places)
    other = chance.choice([digit for digit in b"0123456789" if digit != content[at]])
    return content[:at] + bytes([other]) + content[at + 1 :]


def _longer(content: bytes, chance: random.Random) -> bytes:
    return content + chance.choice((b"\0", b"\n", b"}", content, chance.randbytes(chance.randint(1, 100))))


BYTES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "a flipped bit": _bit,
    "another digit": _digit,
    "cut short": lambda content, chance: content[: chance.randrange(max(1, len(content)))],
    "emptied": lambda content, chance: b"",
    "longer": _longer,
    "random bytes": lambda content, chance: chance.randbytes(chance.choice((1, len(content), 1000))),
}


class Payload:
    """An object whose pickle runs code when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return exec, (f"open({str(self.marker)!r}, 'w').close()",)


def _header(content: dict[str, Any], body: int = 64) -> bytes:
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)


CONTENTS: dict[str, bytes] = {
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "a long number": b'{"epoch": ' + b"9" * 10_000 + b"}",
    "null": b"null",
    "NaN": b'{"epoch": NaN, "loss": Infinity}',
    "a lone surrogate": b'{"name": "\\ud800"}',
    "a header of 2^60 bytes": struct.pack("<Q", 1 << 60) + b"{}",
    "a tensor of 2^50 numbers": _header({"a": {"dtype": "F32", "shape": [1 << 50], "data_offsets": [0, 64]}}),
    "a tensor beyond the end": _header({"a": {"dtype": "F32", "shape": [16], "data_offsets": [0, 1 << 40]}}),
}
SPECIAL: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda path: None,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
}
WAYS = ("a pickle", *SPECIAL, *CONTENTS, *BYTES)
WEIGHTS = [1] * (len(WAYS) - len(BYTES)) + [8, 6, 4, 2, 4, 4]


def damage(how: str, file: Path, chance: random.Random, marker: Path) -> None:
    """Damage a file, or put another in its place; code in it would leave the marker."""
    if how in BYTES:
        file.write_bytes(BYTES[how](file.read_bytes(), chance))
    elif how in SPECIAL:
        file.unlink()
        SPECIAL[how](file)
    else:
        file.write_bytes(CONTENTS[how] if how in CONTENTS else pickle.dumps(Payload(marker)))


class Damage:
    """The cases of damaged files."""

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        self.scenes = list(made.values())

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Damage a file of a copy, run a command, and judge its answer."""
        scene = chance.choice(self.scenes)
        name, how = chance.choice(scene.files()), chance.choices(WAYS, WEIGHTS)[0]
        command = chance.choice(scene.commands)
        case, marker = scene.copy(folder), folder.with_name(f"{folder.name}.ran")
        damage(how, case / name, chance, marker)
        before = judge.snapshot(case)
        ended = children.command(command.argv, case)
        good, bad = judged(scene, command, ended, case, case / name, before)
        if marker.exists():
            bad = "code of the file was run"
        return Outcome(f"{scene.name}: {name}: {how}; {' '.join(command.argv)}", good, bad)


def judged(
    scene: Scene, command: Command, ended: Ended, case: Path, file: Path, before: dict[str, str]
) -> tuple[str, str]:
    """Return what came of it in a word, or what is wrong in a sentence."""
    if wrong := judge.crashed(ended):
        return "", wrong
    relative = str(file.relative_to(case))
    checks = command.argv[0] == "check"
    if ended.code == 0:
        if checks:
            return ("same", "") if _harmless(file, scene.folder / relative) else ("", "checked, and not noticed")
        return "same", command.difference(scene.answers[command.argv], case, ended.out)
    names = {file.name, file.parent.name, relative} - {"runs"}
    if checks:  # its answer is a list of what is wrong
        text = f"{ended.out}{ended.err}"
        return ("refused", "" if any(name in text for name in names) else f"it does not name the file: {text}")
    if wrong := judge.unclear(ended, names, advice=True):
        return "", wrong
    after = judge.snapshot(case)
    spoilt = [name for name in {**before, **after} if before.get(name) != after.get(name) and name != relative]
    spoilt = [name for name in spoilt if not OPTIONAL.search(Path(name).name)]
    return "refused", f"refused, but changed {spoilt[0]}: {ended.lines[0]}" if spoilt else ""


def _harmless(path: Path, original: Path) -> bool:
    """Return whether a damaged file means what it meant, or is one that may be missing."""
    if not path.is_file():
        return bool(OPTIONAL.search(path.name)) or path.name in ("log.jsonl", "result.json", "state.safetensors")
    try:
        if path.suffix == ".safetensors":
            return judge.tensors(path) == judge.tensors(original)
        if path.suffix == ".jsonl":  # without a last line that was not written to its end
            found, whole = (each.read_bytes().split(b"\n")[:-1] for each in (path, original))
            return set(found) <= set(whole) if path.name == "measurements.jsonl" else found == whole
        return bool(json.loads(path.read_bytes()) == json.loads(original.read_bytes()))
    except (OSError, ValueError, SafetensorError):
        return False
