"""What may come of a case, and the rules by which it is judged."""

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from campaign.children import Ended

RAW = re.compile(  # messages of Python that mean nothing to a user
    r"object has no attribute|has no attribute '|unsupported operand|not subscriptable|positional argument"
    r"|unexpected keyword argument|object is not (callable|iterable)|has no len\(\)|not supported between"
    r"|cannot unpack|must be (str|real number|an integer)|object cannot be interpreted|not JSON serializable"
    r"|argument of type|string indices|list index out of range|math domain error|unhashable type"
    r"|could not convert string|invalid literal for|required argument|expected str, bytes or os.PathLike"
    r"|too many values to unpack|not enough values|can't convert|only integer tensors|name '\w+' is not defined"
    r"|incompatible function arguments|DefaultCPUAllocator|bad operand|concatenate str|NoneType"
)
ADVICE = re.compile(
    r"\b(remove|train|evaluate|use|choose|run|copy|get|expected|upgrade|make|check|pass|wait|delete|lower|give|set|see"
    r"|install|free|begin|start|try|raise|write|trust|compare|restore|add|leave|did you mean|needs?)\b|--\w"
)
IDLE = re.compile(r"^\.lock$|tfevents")
UNSTABLE = {"sha256", "checksum", "time", "images_per_second", "finished_before", "later", "folder"}


@dataclass(frozen=True)
class Outcome:
    """What came of one case: `good` is a word for the table, `bad` a sentence."""

    done: str  # all that a reader needs to see what was done
    good: str = ""
    bad: str = ""


def crashed(ended: Ended) -> str:
    """Return what is wrong with the way a command ended; nothing if it is a code from 0 to 2."""
    if ended.hung:
        return "a hang"
    if ended.strays:
        return "it left a process behind"
    if "Traceback (most recent call last)" in ended.err:
        return f"a traceback: {ended.lines[-1]}"
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}: {' / '.join(ended.lines[-2:])}"
    return ""


def raw(message: str) -> bool:
    """Return whether a message is one of Python's own; in brackets, after a sentence of ours, it may stand."""
    return bool(RAW.search(re.sub(r"\([^()]*\)", "", message)))


def unclear(ended: Ended, names: Collection[str] = (), advice: bool = False) -> str:
    """Return what is wrong with the error of a command that failed."""
    if len(ended.lines) != 1:
        return f"exit code {ended.code} and {len(ended.lines)} lines of error: {' / '.join(ended.lines[:3])}"
    line = ended.lines[0]
    if raw(line):
        return f"a raw message of Python: {line}"
    if names and not any(name in line for name in names):
        return f"an error that names neither {' nor '.join(sorted(names))}: {line}"
    if advice and not ADVICE.search(line):
        return f"an error that does not say what to do: {line}"
    return ""


def snapshot(folder: Path) -> dict[str, str]:
    """Return the digests of all files below a folder that matter."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and not IDLE.search(path.name)
    }


def leftovers(folder: Path) -> list[str]:
    """Return what a finished command should not leave below a folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.name == "state.safetensors" or "part" in path.suffix)
    return [str(path.relative_to(folder)) for path in found]


# Answers, without times and speeds, so that two can be compared


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
    with safe_open(path, framework="np") as file:
        found = {name: value for name, value in (file.metadata() or {}).items() if name not in UNSTABLE}
        for name in file.keys():  # noqa: SIM118
            found[name] = hashlib.blake2b(file.get_tensor(name).tobytes(), digest_size=8).hexdigest()
    return found


def first_difference(expected: Any, found: Any, where: str = "") -> str:
    """Return where two answers differ."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        parts = [(f"{where}.{key}", expected[key], found[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        parts = [(f"{where}[{at}]", one, other) for at, (one, other) in enumerate(zip(expected, found, strict=True))]
    else:
        return f"{where or 'all'} was {str(expected)[:60]!r} and is {str(found)[:60]!r}"
    return next(first_difference(one, other, at) for at, one, other in parts if one != other)
