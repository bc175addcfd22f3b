"""Files that were made to do harm, in run folders: nothing in them may run, nothing may hang."""

import json
import os
import pickle
import random
import struct
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from campaign import answers, hostile, mutations, verdict, warm
from campaign.scenes import Command, Scene
from campaign.verdict import Outcome


class Payload:
    """An object whose pickle runs code when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return exec, (code(self.marker),)


def code(marker: Path) -> str:
    """Return Python that shows that it ran."""
    return f"open({str(marker)!r}, 'w').close()"


def _bytes(content: bytes) -> Callable[[Path, Path], None]:
    def put(path: Path, marker: Path) -> None:
        path.write_bytes(content)

    return put


def _pickle(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps(Payload(marker)))


def _special(make: Callable[[Path], Any]) -> Callable[[Path, Path], None]:
    def put(path: Path, marker: Path) -> None:
        path.unlink()
        make(path)

    return put


def _header(content: dict[str, Any], body: int = 64) -> bytes:
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)


CONTENTS: dict[str, Callable[[Path, Path], None]] = {
    "a pickle": _pickle,
    "deep lists": _bytes(b"[" * 100_000 + b"]" * 100_000),
    "deep objects": _bytes(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a long number": _bytes(b'{"epoch": ' + b"9" * 10_000 + b"}"),
    "{}": _bytes(b"{}"),
    "[]": _bytes(b"[]"),
    "null": _bytes(b"null"),
    "NaN": _bytes(b'{"epoch": NaN, "loss": Infinity}'),
    "a lone surrogate": _bytes(b'{"name": "\\ud800"}'),
    "null bytes": _bytes(bytes(1000)),
    "a folder": _special(Path.mkdir),
    "a pipe": _special(os.mkfifo),
    "a link to nowhere": _special(lambda path: path.symlink_to("nowhere")),
    "a link to itself": _special(lambda path: path.symlink_to(path.name)),
    "a link to /dev/zero": _special(lambda path: path.symlink_to("/dev/zero")),
}
TENSORS: dict[str, Callable[[Path, Path], None]] = {
    "a header of 2^60 bytes": _bytes(struct.pack("<Q", 1 << 60) + b"{}"),
    "a tensor of 2^50 numbers": _bytes(_header({"a": {"dtype": "F32", "shape": [1 << 50], "data_offsets": [0, 64]}})),
    "a tensor beyond the end": _bytes(_header({"a": {"dtype": "F32", "shape": [16], "data_offsets": [0, 1 << 40]}})),
    "no tensors": _bytes(_header({}, 0)),
}


def _in_turns(cases: list[hostile.Case]) -> list[hostile.Case]:
    """Return one case of each kind, then the second of each, and so on."""
    kinds: dict[str, list[hostile.Case]] = {}
    for case in cases:
        kinds.setdefault(case[0], []).append(case)
    return [case for turn in zip_longest(*kinds.values()) for case in turn if case is not None]


class Malice:
    """The cases of files made to do harm: these, and those of `hostile`."""

    kind = "malice"

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        self.cases: list[tuple[str, Callable[[Path, Path], tuple[str, str, str, warm.Ended]]]] = []
        for name in ("evaluated", "interrupted", "branches"):
            scene = made[name]
            for file in scene.files():
                known = CONTENTS | (TENSORS if file.endswith(".safetensors") else {})
                self.cases += [
                    ("a file", self._file(scene, command, file, what, make))
                    for command in scene.commands
                    for what, make in known.items()
                ]
        random.Random(0).shuffle(self.cases)
        others = _in_turns(hostile.cases(made, base))
        for at, other in enumerate(others):  # in turns with those of files, which are many
            self.cases.insert(2 * at, other)

    @staticmethod
    def _file(
        scene: Scene, command: Command, name: str, what: str, make: Callable[[Path, Path], None]
    ) -> Callable[[Path, Path], tuple[str, str, str, warm.Ended]]:
        """Return the case of one file in place of another."""

        def run(folder: Path, marker: Path) -> tuple[str, str, str, warm.Ended]:
            case = scene.copy(folder)
            make(case / name, marker)
            before = verdict.snapshot(case)
            ended = warm.command(command.argv, case, first=answers.draw_data)
            good, bad = mutations.judge(scene, command, ended, case, [case / name], before)
            return f"{scene.name}: {what} as {name}; {' '.join(command.argv)}", good, bad, ended

        return run

    def label(self, index: int, chance: random.Random) -> str:
        """Return what kind of harm it is."""
        return self.cases[index % len(self.cases)][0]

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Run one case, and see whether anything ran that should not."""
        what, case = self.cases[index % len(self.cases)]
        marker = folder.with_name(f"{folder.name}.ran")
        told, good, bad, ended = case(folder, marker)
        if marker.exists():
            bad = "code of the file was run"
            marker.unlink()
        return Outcome(self.kind, index, what, told, good, bad, ended.seconds)
