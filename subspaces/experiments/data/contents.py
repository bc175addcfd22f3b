"""What tells the user's own images from others: their names and every byte of them.

Bytes are read once: a digest of each file is kept beside the images, and used again while its size and time stay.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspaces.experiments.data import decoded
from subspaces.experiments.data.dataset import DataError
from subspaces.images import decoding, reading
from subspaces.images.listing import Entry, Listing, parts_of, plain

FILE = ".subspaces-files.npz"
UNREADABLE = b"-" * 32
Kept = dict[tuple[str, int, int], bytes]


def place(root: Path) -> Path | None:
    """Return where what was found out about images is kept: beside them, else in the user's own cache, else nowhere."""
    if os.access(root, os.W_OK):
        return root
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    own = configured if configured.is_absolute() else Path(os.path.expanduser("~")) / ".cache"
    folder = own / "subspaces" / hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK) else None


def fingerprint(found: Listing) -> str:
    """Return the folder's name, how many image files it has, and a digest of their names and contents."""
    digests = _digests(found)
    lines = sorted(f"{plain(entry.path)}\0{digest.hex()}" for entry, digest in zip(found.entries, digests, strict=True))
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{found.name}:{len(lines)}:{digest[:12]}"


def check(found: Listing, expected: str) -> None:
    """Refuse images that are not those of a fingerprint; the folder itself may have another name by now."""
    name, count, digest = parts_of(expected)
    here = fingerprint(found)
    if parts_of(here)[2] != digest:
        files = "as many image files, with other names or contents"
        if int(count) != len(found.entries):
            files = f"{len(found.entries)} image files, and not {count}"
        raise DataError(
            f"fingerprint={expected!r}: {found.root} has {files} ({here}): pass the folder {name!r} as it was (--data)"
        )


def read_notes(path: Path, **kinds: str) -> dict[str, npt.NDArray[Any]] | None:
    """Return arrays of what was noted, of these kinds (of dtype); None where they are not there or damaged."""
    try:
        return reading.read_arrays(path, kinds)
    except Exception:  # whatever the damage: they are made again
        return None


def packed(texts: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return texts as bytes, which one long text among them does not make longer."""
    return np.frombuffer("\0".join(text.replace("\0", " ") for text in texts).encode(), np.uint8)


def unpacked(content: npt.NDArray[np.uint8], count: int) -> list[str] | None:
    """Return the texts in bytes; None if there are not as many."""
    texts = content.tobytes().decode("utf-8", "replace").split("\0") if count else []
    return texts if len(texts) == count else None


def _digests(found: Listing) -> list[bytes]:
    """Return a digest of each file's content, of which only what is new or has changed is read."""
    folder = place(found.root)
    known = {} if folder is None else _known(folder)
    missing = [entry for entry in found.entries if entry.stamp not in known]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashes are computed outside the interpreter's lock
        read = pool.map(_digest, [found.root / entry.path for entry in missing])
        known |= dict(zip((entry.stamp for entry in missing), read, strict=True))
    if missing and folder is not None:
        _keep(folder, found.entries, known)
    return [known[entry.stamp] for entry in found.entries]


def _digest(path: Path) -> bytes:
    try:
        with decoding.open_file(path) as file:
            return hashlib.file_digest(file, "sha256").digest()
    except (OSError, DataError):  # which is said when it is decoded
        return UNREADABLE


def _known(folder: Path) -> Kept:
    notes = read_notes(folder / FILE, paths="u", numbers="i", digests="u")
    if notes is None:
        return {}
    count = len(notes["numbers"])
    paths = unpacked(notes["paths"], count)
    if paths is None or notes["numbers"].shape != (count, 2) or notes["digests"].shape != (count, 32):
        return {}
    rows = zip(paths, notes["numbers"].tolist(), notes["digests"], strict=True)
    return {(path, size, changed): digest.tobytes() for path, (size, changed), digest in rows}


def _keep(folder: Path, entries: Sequence[Entry], known: Mapping[tuple[str, int, int], bytes]) -> None:
    digests = np.frombuffer(b"".join(known[entry.stamp] for entry in entries), np.uint8).reshape(-1, 32)
    numbers = np.array([entry.stamp[1:] for entry in entries], np.int64)
    paths = packed([entry.stamp[0] for entry in entries])
    decoded.write_arrays(folder / FILE, paths=paths, numbers=numbers, digests=digests)
