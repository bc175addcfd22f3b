"""The answer of a command: its numbers, without times and speeds, so that two answers can be set side by side."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

Answer = Callable[[Path, str], Any]
UNSTABLE = {"seal", "checksum", "time", "images_per_second", "finished_before", "later", "folder", "signature"}
MOMENT = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d\d:\d\d|Z)?")


def stable(value: Any) -> Any:
    """Return a JSON value without what differs between two runs that are the same."""
    if isinstance(value, dict):
        return {name: stable(one) for name, one in value.items() if name not in UNSTABLE}
    return [stable(one) for one in value] if isinstance(value, list) else value


def rows(text: str) -> list[Any]:
    """Return the lines of JSON in a text."""
    return [stable(json.loads(line)) for line in text.splitlines() if line.startswith("{")]


def tensors(path: Path) -> dict[str, str]:
    """Return the digest of each tensor of a file, and its header."""
    with safe_open(path, framework="pt") as file:
        found = {name: repr(value) for name, value in (file.metadata() or {}).items() if name not in UNSTABLE}
        for name in file.keys():  # noqa: SIM118
            content = file.get_tensor(name).contiguous().view(-1).view(torch.uint8).numpy()
            found[name] = hashlib.blake2b(content.tobytes(), digest_size=8).hexdigest()
    return found


def of_training(folder: Path, out: str) -> Any:
    """Return results and families."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    found = [line for line in lines if "result" in line]
    families = [tensors(folder / line["folder"] / "family.safetensors") for line in found]
    return [[line["run"], stable(line["result"]), family] for line, family in zip(found, families, strict=True)]


def of_whole_training(folder: Path, out: str) -> Any:
    """Return results and families, and the logs."""
    found = of_training(folder, out)
    return [[*one, rows((folder / "runs" / one[0] / "log.jsonl").read_text())] for one in found]


def of_evaluation(folder: Path, out: str) -> Any:
    """Return what was printed, and the whole records."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    records = [json.loads((folder / line["folder"] / "evaluation.json").read_bytes()) for line in lines]
    return stable([lines, records])


def of_selection(folder: Path, out: str) -> Any:
    """Return what was printed."""
    return rows(out)


def of_comparison(folder: Path, out: str) -> Any:
    """Return the table."""
    return [rows(out), stable(json.loads((folder / "to" / "comparison.json").read_bytes()))]


def of_file(name: str) -> Answer:
    """Return what reads a figure or a page: all of its bytes but for moments in time."""

    def read(folder: Path, out: str) -> str:
        content = MOMENT.sub(b"", (folder / name).read_bytes())
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    return read


def of_text(folder: Path, out: str) -> Any:
    """Return all that was printed, as JSON."""
    return json.loads(out)


def of_nothing(folder: Path, out: str) -> str:
    """Return the answer of a command that only says yes or no."""
    return "yes"


def draw_data() -> None:
    """Let figures of this process be saved as their data: it is quicker, and less than a pixel is seen."""
    from matplotlib.figure import Figure

    def savefig(self: Figure, file: Any, **settings: Any) -> None:
        file.write(json.dumps([_artist(one) for one in self.findobj()]).encode())

    Figure.savefig = savefig


def _artist(artist: Any) -> list[Any]:
    """Return what an artist shows: its text, its points, its values."""
    shown: list[Any] = [type(artist).__name__]
    for name in ("get_text", "get_xydata", "get_offsets", "get_array", "get_facecolor"):
        found = getattr(artist, name, lambda: None)()
        shown.append(found if found is None or isinstance(found, str) else np.asarray(found).tolist())
    for path in getattr(artist, "get_paths", list)():
        shown.append(path.vertices.tolist())
    return shown
