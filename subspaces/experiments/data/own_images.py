"""The user's own images, in a folder for each class: decoded once to squares of one size, and kept beside them."""

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from subspaces.errors import ArgumentError
from subspaces.experiments.data import contents, decoded
from subspaces.experiments.data.dataset import DataError, Dataset, Progress, Split
from subspaces.images import decoding, listing
from subspaces.images.decoding import Pixels
from subspaces.images.listing import Flags, Listing

SIZE = 64  # unless told otherwise
SIZES = (8, 1024)
NAMED = 3  # files in a warning
LOOKED_AT = 256  # images of the cache that are compared with their sums
Sums = npt.NDArray[np.int64]  # [n, 2, 3]: of an image's values and of their squares, for each channel


class DataWarning(UserWarning):
    """Something about the user's images that they should know."""


class _Decoded(NamedTuple):
    pixels: Pixels  # [n, size, size, 3], black where a file cannot be read
    sums: Sums
    broken: dict[int, str]  # why a file cannot be read


def load(
    root: Path,
    size: int = SIZE,
    seed: int = 0,
    fingerprint: str = "",
    progress: Progress | None = None,
) -> Dataset:
    """Read the images below `root`; `seed` decides which are for the test where they have no folder of their own."""
    check_size(size)
    found = listing.find(root)
    if fingerprint:
        contents.check(found, fingerprint)
    whole = _decoded(found, size, progress)
    good = _good(found, whole.broken)
    test = found.for_test(good, seed)
    name_broken(
        found.root, len(found.entries), list(whole.broken.values()), f"subspaces data check folder --data {found.root}"
    )
    _check_parts(found, good, test)
    _name_untested(found, good & test)
    mean, std = _constants(whole.sums[good & ~test], size)
    splits = [_split(found, whole.pixels, good & part) for part in (~test, test)]
    return Dataset(f"{found.name} (folder)", splits[0], None, splits[1], found.classes, mean, std)


def check_size(size: int) -> None:
    """Refuse a side that no image is scaled to."""
    if not isinstance(size, int) or not SIZES[0] <= size <= SIZES[1]:
        raise ArgumentError(f"image_size={size!r}: expected {SIZES[0]} to {SIZES[1]} pixels")


def count(root: Path, seed: int) -> tuple[int, int]:
    """Return how many training images and classes there are, as far as the list of files says."""
    found = listing.find(root)
    test = found.for_test(np.ones(len(found.entries), bool), seed)
    return int((~test).sum()), len(found.classes)


def problems(root: Path, progress: Progress | None = None) -> list[str]:
    """Return what is wrong with the folder, with the name of every file that cannot be read."""
    found = listing.find(root)
    whole = _decoded(found, SIZE, progress)
    wrong = list(whole.broken.values())
    try:
        good = _good(found, whole.broken)
        _check_parts(found, good, found.for_test(good, 0))
    except DataError as error:
        wrong.append(str(error))
    return wrong


def described(root: Path) -> str:
    """Return in words where the images are, how they are divided and what was passed over."""
    found = listing.find(root)
    test = f"in {found.root / found.separate}" if found.separate else f"{listing.SHARE:.0%} of each class, about,"
    passed = f"; {found.ignored:,} other files passed over" if found.ignored else ""
    return f"of any size in {root}, scaled; {test} for the test{passed}; fingerprint {contents.fingerprint(found)}"


def _good(found: Listing, broken: dict[int, str]) -> Flags:
    good = np.ones(len(found.entries), bool)
    good[list(broken)] = False
    return good


def name_broken(root: Path, files: int, broken: Sequence[str], command: str = "") -> None:
    """Warn of the first files that cannot be read; a command may name all of them."""
    if broken:
        rest = f" (`{command}` names all)" if command else ""
        more = f"; …{rest}" if len(broken) > NAMED else ""
        said = f"{len(broken)} of {files} image files in {root} cannot be read and are left out"
        warnings.warn(f"{said}: {'; '.join(broken[:NAMED])}{more}", DataWarning, stacklevel=4)


def _name_untested(found: Listing, tested: Flags) -> None:
    """Warn of classes without a test image."""
    there = {entry.label for entry, one in zip(found.entries, tested, strict=True) if one}
    absent = [name for label, name in enumerate(found.classes) if label not in there]
    if absent:
        text = f"{found.root}: the test has no images of {listing.in_words(absent)}"
        warnings.warn(text, DataWarning, stacklevel=4)


def _check_parts(found: Listing, good: Flags, test: Flags) -> None:
    """Refuse a class without training images, and a test without images."""
    labels = np.array([entry.label for entry in found.entries])
    there = set(labels[good & ~test].tolist())
    for label, name in enumerate(found.classes):
        if label not in there:
            raise DataError(f"{found.root}: of the class {name!r} no image is left to train on: put some there")
    if not (good & test).any():
        what = f"{found.root / found.separate} has no images" if found.separate else "every class has one image only"
        raise DataError(f"{found.root}: no image is left for the test, as {what}: add some")


def _split(found: Listing, pixels: Pixels, chosen: Flags) -> Split:
    """Return the chosen images: a part of the mapped array where they lie together, else a copy of them."""
    places = np.flatnonzero(chosen)
    first, last = int(places[0]), int(places[-1]) + 1
    own = pixels[first:last] if last - first == len(places) else pixels[places]
    labels = torch.tensor([found.entries[place].label for place in places], dtype=torch.int64)
    return Split(torch.from_numpy(own).permute(0, 3, 1, 2), labels)


def _constants(sums: Sums, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, of pixels scaled to [0, 1]."""
    first, second = sums.astype(np.float64).sum(0) / (len(sums) * size * size)
    std = np.sqrt(np.maximum(second - first**2, 1.0))  # of images that are all alike, one step of 255
    return tuple((first / 255).tolist()), tuple((std / 255).tolist())


# The cache


def _decoded(found: Listing, size: int, progress: Progress | None) -> _Decoded:
    """Return all images at one size, from the cache or, where a file has changed since, decoded anew."""
    folder = contents.place(found.root)
    name = f".subspaces-{size}-{found.stamp}"
    known = None if folder is None else _kept(folder / name, len(found.entries), size)
    if known is not None:
        return known
    broken: dict[Path, str] = {}
    view = partial(view_or_why, size=size, broken=broken)
    paths = [found.root / entry.path for entry in found.entries]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of odd metadata and many pixels, which are refused
        pixels = decoded.build(paths, None if folder is None else folder / f"{name}.npy", size, view, progress)
    above = f"{found.root}{os.sep}"  # which may be another one when this is read from the cache
    places = {
        index: listing.plain(broken[path].replace(above, "")) for index, path in enumerate(paths) if path in broken
    }
    result = _Decoded(pixels, _sums(pixels), places)
    if folder is not None:
        _keep(folder / f"{name}.npz", result)
        _remove_others(folder, name)
    return result


def view_or_why(path: Path, size: int, broken: dict[Path, str]) -> Pixels:
    """Return the square of an image file; of one that cannot be read a black one, and note why."""
    try:
        return decoding.square(path, size)
    except FileNotFoundError:
        broken[path] = f"{path}: a link to a file that is not there"
    except DataError as error:
        broken[path] = str(error)
    return np.zeros((size, size, 3), np.uint8)


def _sums(pixels: Pixels) -> Sums:
    found = np.empty((len(pixels), 2, 3), np.int64)
    for index, image in enumerate(pixels):
        wide = image.reshape(-1, 3).astype(np.int64)
        found[index] = wide.sum(0), (wide**2).sum(0)
    return found


def _kept(cache: Path, number: int, size: int) -> _Decoded | None:
    """Return what is kept; None if it is not there, not whole or not what was written."""
    pixels = decoded.kept(cache.with_name(f"{cache.name}.npy"), (number, size, size, 3))
    notes = contents.read_notes(cache.with_name(f"{cache.name}.npz"), sums="i", broken="i", why="u")
    if pixels is None or notes is None or notes["sums"].shape != (number, 2, 3):
        return None
    broken = notes["broken"].reshape(-1).tolist()
    why = contents.unpacked(notes["why"], len(broken))
    if why is None or not all(0 <= index < number for index in broken):
        return None
    some = np.unique(np.linspace(0, number - 1, min(number, LOOKED_AT)).astype(int))
    if not np.array_equal(_sums(pixels[some]), notes["sums"][some]):
        return None
    return _Decoded(pixels, notes["sums"], dict(zip(broken, why, strict=True)))


def _keep(path: Path, result: _Decoded) -> None:
    arrays = {"sums": result.sums, "broken": np.array([*result.broken], np.int64)}
    decoded.write_arrays(path, **arrays, why=contents.packed([*result.broken.values()]))


def _remove_others(folder: Path, name: str) -> None:
    size = name.split("-")[1]
    for other in folder.glob(f".subspaces-{size}-*.np[yz]"):
        if other.stem != name:
            with suppress(OSError):
                other.unlink()
