"""The user's own images, in a folder for each class: decoded once to squares of one size, and kept beside them.

DIR/train/<class>/* with DIR/test, DIR/val, DIR/valid or DIR/validation, or DIR/<class>/* alone, of which a fifth is
for the test. Folders within a class belong to it.
"""

import hashlib
import json
import os
import re
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from subspaces.core import storage
from subspaces.errors import ArgumentError, DataError
from subspaces.evaluation.display import Progress
from subspaces.experiments.data import folders
from subspaces.images import decoding, listing
from subspaces.images.decoding import Pixels
from subspaces.images.splits import Dataset, Split

SIZE = 64  # unless told otherwise
SIZES = (8, 1024)
TRAIN, TESTS = "train", ("test", "val", "valid", "validation")  # the first that has classes is the test
SHARE = 0.2  # of the images, for the test, where there is no folder for it
NAMED = 3  # files in a warning
LOOKED_AT = 64  # files whose contents are in the fingerprint, or a few less
Flags = npt.NDArray[np.bool_]


class DataWarning(UserWarning):
    """Something about the user's images that they should know, and of several files what is wrong with each."""

    def __init__(self, text: str, *reasons: str) -> None:
        super().__init__(text)
        self.reasons = reasons or (text,)


class Listing(NamedTuple):
    """All image files of a folder, those for training first, each part sorted by class and path."""

    root: Path
    classes: tuple[str, ...]
    paths: list[str]  # below the root
    labels: npt.NDArray[np.int64]
    separate: Flags | None  # which are in a folder for the test, if there is one
    stats: list[tuple[str, int, int]]  # of each file: printable path, bytes, and when it was changed

    @property
    def name(self) -> str:
        """The folder's own name."""
        return listing.plain(self.root.resolve().name) or "images"

    @property
    def fingerprint(self) -> str:
        """The folder's name, how many image files it has, and a digest of names, sizes and what is in some of them."""
        digest = hashlib.sha256("\n".join(f"{path}\0{size}" for path, size, _ in self.stats).encode())
        for path in self.paths[:: len(self.paths) // LOOKED_AT + 1]:
            if (self.root / path).is_file():
                with open(self.root / path, "rb") as file:
                    digest.update(file.read(1 << 20))
        return f"{self.name}:{len(self.paths)}:{digest.hexdigest()[:12]}"

    @property
    def stamp(self) -> str:
        """Digits that change when a file comes, goes or is written anew."""
        return _digest([f"{path}\0{size}\0{changed}" for path, size, changed in self.stats])[:16]

    def for_test(self, good: Flags, seed: int) -> Flags:
        """Return which images are for the test: those of its own folder, or a part of all that are good.

        An image is drawn by its path and the seed alone, so that it stays where it is when others are added. Only to
        have both parts of every class, its first in this order is for the test and its last one for training.
        """
        if self.separate is not None:
            return self.separate
        drawn = np.array([int(_digest([f"{seed} {path}"])[:12], 16) / 2**48 for path, _, _ in self.stats])
        chosen: Flags = drawn < SHARE
        own = np.flatnonzero(good)
        order = own[np.lexsort((drawn[own], self.labels[own]))]
        firsts = np.unique(self.labels[order], return_index=True)[1]
        chosen[order[firsts]] = True
        chosen[order[np.append(firsts, len(order))[1:] - 1]] = False  # the last of each class
        return chosen


def load(
    root: Path, size: int = SIZE, seed: int = 0, fingerprint: str = "", progress: Progress | None = None
) -> Dataset:
    """Read the images below `root`; `seed` decides which are for the test where they have no folder of their own."""
    found = find(root)
    if fingerprint and parts_of(fingerprint)[2] != parts_of(found.fingerprint)[2]:  # the folder may be renamed
        raise DataError(
            f"fingerprint={fingerprint!r}: {root} has other image files ({found.fingerprint}): pass the folder "
            f"{parts_of(fingerprint)[0]!r} as it was (--data)"
        )
    pixels, sums, broken = _decoded(found, size, progress)
    good = ~np.isin(np.arange(len(pixels)), [*broken])
    test = good & found.for_test(good, seed)
    train = good & ~found.for_test(good, seed)
    if broken:
        some = "; ".join([*broken.values()][:NAMED])
        more = f"; … (`subspaces data check folder --data {root}` names all)" if len(broken) > NAMED else ""
        text = f"{len(broken)} of {len(good)} image files in {root} cannot be read and are left out: {some}{more}"
        warnings.warn(DataWarning(text, *broken.values()), stacklevel=3)
    untrained, untested = (
        [name for label, name in enumerate(found.classes) if label not in found.labels[part]] for part in (train, test)
    )
    if untrained or not test.any():
        what = f"to train on of the class {untrained[0]!r}" if untrained else "for the test"
        raise DataError(f"{root}: no image is left {what}: add some")
    if untested:
        text = f"{root}: the test has no images of {len(untested)} of the classes: {', '.join(untested[:5])}"
        warnings.warn(DataWarning(text), stacklevel=3)
    first, second = sums[train].astype(np.float64).sum(0) / (int(train.sum()) * size * size)
    std = np.sqrt(np.maximum(second - first**2, 1.0))  # of images that are all alike, one step of 255
    constants = tuple((first / 255).tolist()), tuple((std / 255).tolist())
    splits = [_split(pixels, found.labels, np.flatnonzero(part)) for part in (train, test)]
    return Dataset(f"{found.name} (folder)", splits[0], None, splits[1], found.classes, *constants)


def find(root: Path) -> Listing:
    """List the images of a folder; refuse one without two classes, and a class without images."""
    there = {name.lower(): name for name in listing.class_folders(root)}
    train, tests = there.get(TRAIN), [there[name] for name in TESTS if name in there]
    test = next((name for name in tests if train and listing.folders_in(root / name)), None)
    base = root / train if train and (test or len(there) == 1) else root
    classes = listing.class_folders(base)
    if len(classes) < 2:
        raise DataError(f"{base}: has one class, {classes[0]!r}: expected a folder for each of two or more classes")
    parts = [listing.labelled_files(each, classes) for each in (base, *([root / test] if test else []))]
    paths = [os.path.relpath(part.path(index), root) for part in parts for index in range(len(part))]
    separate = np.arange(len(paths)) >= len(parts[0]) if test else None
    labels = np.concatenate([part.labels.numpy() for part in parts])
    return Listing(root, classes, paths, labels, separate, [_stat(root, path) for path in paths])


def parts_of(fingerprint: str) -> tuple[str, str, str]:
    """Return name, number of files and digest of a fingerprint, or refuse what is none."""
    if re.fullmatch(r".+:\d{1,12}:[0-9a-f]{12}", fingerprint, re.DOTALL | re.ASCII) is None:
        raise ArgumentError(f"fingerprint={fingerprint!r}: expected NAME:FILES:DIGEST, as in 'roses:150:0123456789ab'")
    name, count, digest = fingerprint.rsplit(":", 2)
    return name, count, digest


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _stat(root: Path, path: str) -> tuple[str, int, int]:
    state = os.stat(root / path, follow_symlinks=os.path.exists(root / path))  # a link to nothing has a state too
    return listing.plain(path), state.st_size, state.st_mtime_ns


def _split(pixels: Pixels, labels: npt.NDArray[np.int64], places: npt.NDArray[np.intp]) -> Split:
    """Return the images at these places: a part of the mapped array where they lie together, else a copy of them."""
    together = places[-1] - places[0] == len(places) - 1
    own = pixels[places[0] : places[-1] + 1] if together else pixels[places]
    return Split(torch.from_numpy(own).permute(0, 3, 1, 2), torch.from_numpy(labels[places]))


def _decoded(
    found: Listing, size: int, progress: Progress | None
) -> tuple[Pixels, npt.NDArray[np.int64], dict[int, str]]:
    """Return all images at one size, from the cache or, where a file has changed since, decoded anew.

    They are [n, size, size, 3], black where a file cannot be read; with them come the sums of an image's values and of
    their squares, [n, 2, 3], and why files cannot be read.
    """
    folder, name = found.root, f".subspaces-{size}-{found.stamp}"
    if not os.access(folder, os.W_OK):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "subspaces" / found.name
        with suppress(OSError):  # where nothing can be written either, they are decoded into memory
            folder.mkdir(parents=True, exist_ok=True)
    cache, notes = folder / f"{name}.npy", folder / f"{name}.json"
    pixels = folders.kept(cache, (len(found.paths), size, size, 3))
    if pixels is not None:
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):  # else decoded again
            known = json.loads(notes.read_bytes())
            sums = np.array(known["sums"], np.int64).reshape(len(pixels), 2, 3)
            return pixels, sums, {int(index): str(why) for index, why in known["broken"].items()}
    why: dict[Path, str] = {}
    paths = [found.root / path for path in found.paths]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of odd metadata and many pixels, which are refused
        pixels = folders.build(paths, cache, size, partial(_square, size=size, why=why), progress)
    sums = np.array([_sums(image) for image in pixels])
    broken = {
        index: listing.plain(why[path].replace(f"{found.root}{os.sep}", ""))  # the root may be another one when read
        for index, path in enumerate(paths)
        if path in why
    }
    if os.access(folder, os.W_OK):
        storage.write(notes, json.dumps({"broken": broken, "sums": sums.tolist()}).encode())
        for other in set(folder.glob(f".subspaces-{size}-*.*")) - {cache, notes}:
            other.unlink(missing_ok=True)
    return pixels, sums, broken


def _square(path: Path, size: int, why: dict[Path, str]) -> Pixels:
    """Return the square of an image file; of one that cannot be read a black one, and note why."""
    try:
        return decoding.square(path, size)
    except OSError as error:
        why[path] = f"{path}: {error.strerror}"
    except DataError as error:
        why[path] = str(error)
    return np.zeros((size, size, 3), np.uint8)


def _sums(image: Pixels) -> npt.NDArray[np.int64]:
    wide = image.astype(np.int64)
    return np.stack([wide.sum((0, 1)), (wide**2).sum((0, 1))])
