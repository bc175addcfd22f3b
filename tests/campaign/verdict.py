"""What may come of a case, and the rules by which it is judged."""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from campaign.warm import Ended

RAW = re.compile(  # what Python says of itself, to nobody's use
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


@dataclass(frozen=True)
class Outcome:
    """What came of one case: `good` is a word for the table, `bad` a sentence for the list."""

    kind: str
    index: int
    what: str  # the row of the table
    told: str  # all that a reader needs to see what was done
    good: str = ""
    bad: str = ""
    seconds: float = 0.0


def snapshot(folder: Path) -> dict[str, str]:
    """Return the digests of all files below a folder that matter."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not IDLE.search(path.name)
    }


def leftovers(folder: Path) -> list[str]:
    """Return what a finished command should not leave below a folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.name == "state.safetensors" or "part" in path.suffix)
    return [str(path.relative_to(folder)) for path in found]


def crashed(ended: Ended) -> str:
    """Return what is wrong with the way a command ended, whatever it was asked; nothing if it is a code from 0 to 2."""
    if ended.hung:
        return f"a hang: no end after {ended.seconds:.0f} s"
    if ended.strays:
        return "it left a process behind"
    if "Traceback (most recent call last)" in ended.err:
        return f"a traceback: {ended.lines[-1]}"
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}: {' / '.join(ended.lines[-2:])}"
    return ""


def raw(message: str) -> bool:
    """Say whether a message is one of Python's own; in brackets, after a sentence of ours, it may stand."""
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


def altered(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the files that were changed, removed or made, whatever is not a file of the run itself."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]
