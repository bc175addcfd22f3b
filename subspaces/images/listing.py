"""The user's own images as files: which there are, of which class, which are for the test, and what tells them apart.

DIR/train/<class>/* with DIR/test, DIR/val, DIR/valid or DIR/validation, or DIR/<class>/* alone, of which a fifth is
for the test. Folders within a class belong to it. Hidden files are passed over, and so is all that is no regular file.
"""

import hashlib
import itertools
import os
import re
import stat
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from subspaces.errors import ArgumentError, DataError
from subspaces.text import listed

SUFFIXES = (
    *(".jpeg", ".jpg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".jp2", ".avif", ".heic", ".heif"),  # which not every Pillow reads: then they are named, and not passed over
)
TRAIN, TESTS = "train", ("test", "val", "valid", "validation")  # the first that has classes is the test
SHARE = 0.2  # of the images, for the test, where there is no folder for it
Flags = npt.NDArray[np.bool_]
Identity = tuple[int, int]  # the device and the number of a folder on it


class Entry(NamedTuple):
    """One image file: where it is, and what shows that it has changed."""

    path: str  # below the root
    label: int
    test: bool
    size: int
    changed: int  # in nanoseconds

    @property
    def stamp(self) -> tuple[str, int, int]:
        """What stays while the file does."""
        return (plain(self.path), self.size, self.changed)


@dataclass(frozen=True)
class Listing:
    """All image files of a folder, those for training first, each part sorted by class and path."""

    root: Path
    classes: tuple[str, ...]
    entries: tuple[Entry, ...]
    separate: str  # the folder of the test images; "" where a part of all is taken
    ignored: int  # files that are no images by their name

    @property
    def name(self) -> str:
        """The folder's own name."""
        return plain(self.root.resolve().name) or "images"

    @property
    def stamp(self) -> str:
        """Digits that change when a file comes, goes or is written anew."""
        lines = "\n".join(f"{path}\0{size}\0{changed}" for path, size, changed in (e.stamp for e in self.entries))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    def for_test(self, good: Flags, seed: int) -> Flags:
        """Say which images are for the test: what its own folder holds, or a part of all that are good.

        An image is drawn by its path and the seed alone, so that it stays where it is when others are added. Only to
        have both parts of every class, its first in this order is for the test and its last one for training.
        """
        if self.separate:
            return np.array([entry.test for entry in self.entries])
        drawn = np.array([_drawn(entry.path, seed) for entry in self.entries])
        labels = np.array([entry.label for entry in self.entries])
        chosen: Flags = drawn < SHARE
        own = np.flatnonzero(good)
        order = own[np.lexsort((drawn[own], labels[own]))]
        firsts = np.unique(labels[order], return_index=True)[1]
        chosen[order[firsts]] = True
        chosen[order[np.append(firsts, len(order))[1:] - 1]] = False  # the last of each class
        return chosen


def parts_of(fingerprint: str) -> tuple[str, str, str]:
    """Return name, number of files and digest of a fingerprint, or refuse what is none."""
    found = re.fullmatch(r"(.+):(\d{1,12}):([0-9a-f]{12})", fingerprint, re.DOTALL | re.ASCII)
    if found is None:
        raise ArgumentError(
            f"fingerprint={fingerprint!r}: expected NAME:FILES:DIGEST, such as 'flowers:150:0123456789ab'"
        )
    return found[1], found[2], found[3]


def find(root: Path) -> Listing:
    """List the images of a folder; refuse one without two classes, and a class without images."""
    folders = {name.lower(): name for name in _folders(root)}
    train, tests = folders.get(TRAIN), [folders[name] for name in TESTS if name in folders]
    separate = next((name for name in tests if train and _folders(root / name)), "")
    base = root / train if train and (separate or len(folders) == 1) else root
    names = _folders(base)
    if not names:
        raise FileNotFoundError(
            f"folder: found no folders of images in {base}: expected {root}/<class>/* for each class, or "
            f"{root}/train/<class>/* and {root}/test/<class>/*"
        )
    classes, ignored, entries = tuple(dict.fromkeys(map(plain, names))), 0, list[Entry]()
    labels, linked = {name: label for label, name in enumerate(classes)}, set[Identity]()
    if len(classes) < 2:
        raise DataError(f"{base}: has one class, {classes[0]!r}: expected a folder for each of two or more classes")
    for part, test in ((base, False), *([(root / separate, True)] if separate else ())):
        own = _folders(part)
        for name, texts in itertools.groupby(own, plain):  # names that only bytes tell apart which are no text
            if len({unicodedata.normalize("NFC", text) for text in texts}) > 1:
                raise DataError(f"{part}: several folders are called {name!r}, which is not UTF-8: rename them")
        ignored += sum(each.is_file() and _shown(each.name) for each in part.iterdir())
        if unknown := sorted(set(map(plain, own)) - set(classes)):
            raise DataError(f"{part}: has {in_words(unknown)}, which {base} has not: rename or remove what is too much")
        for name in own:
            found, others = _images(part / name, linked)
            ignored += others
            for path, size, changed in sorted(found):
                entries.append(Entry(os.path.relpath(path, root), labels[plain(name)], test, size, changed))
    there = {entry.label for entry in entries if not entry.test}
    if lacking := [name for label, name in enumerate(classes) if label not in there]:
        raise DataError(
            f"{base}: there are no images of {in_words(lacking)}: put some there, or remove the empty folder; image "
            f"files end in {', '.join(SUFFIXES)}"
        )
    return Listing(root, classes, tuple(entries), separate, ignored)


def below(folder: Path) -> list[Path]:
    """Return all image files below a folder, whatever class they are of."""
    return [Path(path) for path, _, _ in sorted(_images(folder)[0])]


def in_words(names: Sequence[str]) -> str:
    """Return the first of some classes by name."""
    shown = listed([*map(repr, names[:5]), *([f"{len(names) - 5} more"] if len(names) > 5 else [])])
    return f"the class{'es' if len(names) > 1 else ''} {shown}"


def plain(name: str) -> str:
    """Return a name as text that can be printed, the same on every system."""
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "replace"))


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted((entry.name for entry in entries if _shown(entry.name) and os.path.isdir(entry.path)), key=plain)


def _shown(name: str) -> bool:
    return not name.startswith(".") and name != "__MACOSX"


def _images(folder: Path, linked: set[Identity] | None = None) -> tuple[list[tuple[str, int, int]], int]:
    """Return the image files below a folder, with sizes and times, and how many other files there are.

    A link to nothing counts as a file, so that it is named when it is read.
    """
    found, others = [], 0
    for path, state in walk(folder, linked):
        usable = stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)
        if usable and path.lower().endswith(SUFFIXES):
            found.append((path, state.st_size, state.st_mtime_ns))
        else:
            others += 1
    return found, others


def walk(folder: str | os.PathLike[str], linked: set[Identity] | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path of everything below a folder but folders and what is hidden, with the state of what it links to.

    Each folder is walked once, however many links lead to it, and none that holds this one. `linked` are folders that
    links have led other walks to: they are yielded, not walked again, and new ones are added.
    """
    linked = set() if linked is None else linked
    seen = {_identity(os.stat(each)) for each in Path(os.path.realpath(folder)).parents}
    own, through_links = [os.fspath(folder)], deque[str]()  # a folder's own place counts before links to it
    while own or through_links:
        through = not own
        current = through_links.popleft() if through else own.pop()
        state = os.stat(current)
        if (key := _identity(state)) in seen:
            continue
        seen.add(key)
        if through and key in linked:
            yield current, state
            continue
        linked.update([key] if through else [])
        with os.scandir(current) as entries:
            shown = sorted((entry for entry in entries if _shown(entry.name)), key=lambda entry: entry.name)
        for entry in shown:
            state = _state(entry)
            if not stat.S_ISDIR(state.st_mode):
                yield entry.path, state
            else:
                (through_links if through or entry.is_symlink() else own).append(entry.path)


def _identity(state: os.stat_result) -> Identity:
    return state.st_dev, state.st_ino


def _state(entry: "os.DirEntry[str]") -> os.stat_result:
    """Return the state of what an entry links to, and that of a link to nothing, or to itself."""
    try:
        return os.stat(entry.path)
    except OSError:
        return os.stat(entry.path, follow_symlinks=False)


def _drawn(path: str, seed: int) -> float:
    """Return a number of [0, 1) that path and seed decide."""
    digest = hashlib.sha256(f"{seed} {plain(path)}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
