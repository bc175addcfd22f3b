"""Folders of images: ImageNet's layout as files; TinyImageNet and the user's own images decoded once into arrays.

ImageNet is train/<class>/*.JPEG and val/<class>/*.JPEG, of any classes. TinyImageNet is train/<wnid>/images/*.JPEG (500
of each class), val/images with val_annotations.txt, wnids.txt and, if it is there, words.txt with readable names; its
test labels are secret, so val is the test. The user's own images are DIR/train/<class>/* with DIR/test, DIR/val,
DIR/valid or DIR/validation, or DIR/<class>/* alone, of which a fifth is for the test. Folders within a class belong to
it.
"""

import hashlib
import json
import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from subspaces.core import storage
from subspaces.errors import ArgumentError, DataError
from subspaces.evaluation.display import Progress
from subspaces.images import decoding, splits
from subspaces.images.decoding import Pixels
from subspaces.images.splits import Dataset, Split, class_folders, labelled_files

TINY = {"train": 100_000, "val": 10_000}
SIZE, SIZES = 64, (8, 1024)  # of the user's own images unless told otherwise, and which are allowed
TRAIN, TESTS = "train", ("test", "val", "valid", "validation")  # the first that has classes is the test
SHARE = 0.2  # of the images, for the test, where there is no folder for it
NAMED = 3  # files in a warning
LOOKED_AT = 64  # files whose contents are in the fingerprint, or a few less
AT_ONCE = 1000  # images that are decoded before one is asked whether any could not be
Flags = npt.NDArray[np.bool_]
T = TypeVar("T")
View = Callable[[Path], Pixels]  # an image file as [size, size, 3]


class DataWarning(UserWarning):
    """Something about the user's images that they should know, and of several files what is wrong with each."""

    def __init__(self, text: str, *reasons: str) -> None:
        super().__init__(text)
        self.reasons = reasons or (text,)


# ImageNet and TinyImageNet


def find_imagenet(root: Path) -> None:
    """Refuse a folder without train and val; nothing is listed."""
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise FileNotFoundError(
                f"imagenet: found no folder {part} in {root}: expected {root / part}/<class>/*.JPEG; "
                "`subspaces data get imagenet --data DIR` says where to register for the images"
            )


def load_imagenet(root: Path, progress: Progress | None = None) -> Dataset:
    """List the images of ROOT/train and ROOT/val; classes are the folders of train in sorted order."""
    find_imagenet(root)
    classes = class_folders(root / "train")
    train, val = (labelled_files(root / part, classes) for part in ("train", "val"))
    return Dataset("imagenet", train, None, val, classes, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def find_tiny(root: Path) -> Path:
    """Return the folder that holds train, val and wnids.txt."""
    needed = ("wnids.txt", "val/val_annotations.txt")
    for folder in (root / "tiny-imagenet-200", root):
        if all((folder / name).is_file() for name in needed):
            return folder
    remedy = f"get them with `subspaces data get tiny-imagenet --data {root}`"
    raise FileNotFoundError(f"tiny-imagenet: found no folder with {', '.join(needed)} in {root}: {remedy}")


def load_tiny(root: Path, progress: Progress | None = None) -> Dataset:
    """Read TinyImageNet from `root` or `root`/tiny-imagenet-200; the first time takes a minute or two."""
    folder = find_tiny(root)
    wnids = sorted({*_lines(folder / "wnids.txt")})
    files = labelled_files(folder / "train", wnids)
    train = _tiny_split([files.path(index) for index in range(len(files))], files.labels, folder, "train", progress)
    source = folder / "val" / "val_annotations.txt"
    rows = [line.split("\t") for line in _lines(source)]
    if unknown := next((row for row in rows if len(row) < 2 or row[1] not in wnids), None):
        raise DataError(f"{source}: the line {unknown} has no label of wnids.txt: the file was altered, get it again")
    paths = [folder / "val" / "images" / Path(row[0]).name for row in rows]
    test = _tiny_split(paths, torch.tensor([wnids.index(row[1]) for row in rows]), folder, "val", progress)
    words = _lines(folder / "words.txt") if (folder / "words.txt").is_file() else []
    readable = dict(line.split("\t", 1) for line in words if "\t" in line)
    classes = tuple(readable.get(wnid) or wnid for wnid in wnids)
    return Dataset("tiny-imagenet", train, None, test, classes, (0.480, 0.448, 0.397), (0.276, 0.269, 0.282))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8", "replace").splitlines() if line]


def _tiny_split(paths: list[Path], labels: Tensor, folder: Path, part: str, progress: Progress | None) -> Split:
    if len(paths) != TINY[part]:
        raise DataError(f"{folder}: expected {TINY[part]:,} images in {part}, found {len(paths):,}: unpack it again")
    cache = folder / f"subspaces-{part}.npy"
    array = _kept(cache, (len(paths), 64, 64, 3))
    array = _build(paths, cache, 64, _tiny_pixels, progress) if array is None else array
    return Split(torch.from_numpy(array).permute(0, 3, 1, 2), labels)


def _tiny_pixels(file: Path) -> Pixels:
    image = decoding.decode(file)
    if image.size != (64, 64):
        raise DataError(f"{file}: {image.width} × {image.height} pixels, expected 64 × 64: the file was altered")
    return np.asarray(image)


# The user's own images


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
        return splits.plain(self.root.resolve().name) or "images"

    @property
    def fingerprint(self) -> str:
        """The folder's name, how many image files it has, and a digest of names, sizes and what is in some of them."""
        digest = hashlib.sha256("\n".join(f"{path}\0{size}" for path, size, _ in self.stats).encode())
        for path in self.paths[:: len(self.paths) // LOOKED_AT + 1]:
            with suppress(OSError):  # of a file that cannot be read there are name and size alone
                if (self.root / path).is_file():
                    with open(self.root / path, "rb") as file:
                        digest.update(file.read(1 << 20))
        return f"{self.name}:{len(self.paths)}:{digest.hexdigest()[:12]}"

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


def find_own(root: Path) -> Listing:
    """List the images of a folder; refuse one without two classes, and a class without images."""
    there = {name.lower(): name for name in class_folders(root)}
    train, tests = there.get(TRAIN), [there[name] for name in TESTS if name in there]
    test = next((name for name in tests if train and splits.folders_in(root / name)), None)
    base = root / train if train and (test or len(there) == 1) else root
    classes = class_folders(base)
    if len(classes) < 2:
        raise DataError(f"{base}: has one class, {classes[0]!r}: expected a folder for each of two or more classes")
    parts = [labelled_files(each, classes) for each in (base, *([root / test] if test else []))]
    paths = [os.path.relpath(part.path(index), root) for part in parts for index in range(len(part))]
    separate = np.arange(len(paths)) >= len(parts[0]) if test else None
    labels = np.concatenate([part.labels.numpy() for part in parts])
    return Listing(root, classes, paths, labels, separate, [_stat(root, path) for path in paths])


def load_own(
    root: Path, size: int = SIZE, seed: int = 0, fingerprint: str = "", progress: Progress | None = None
) -> Dataset:
    """Read the images below `root`; `seed` decides which are for the test where they have no folder of their own."""
    found = find_own(root)
    if fingerprint and parts_of(fingerprint)[2] != parts_of(found.fingerprint)[2]:  # the folder may be renamed
        raise DataError(
            f"fingerprint={fingerprint!r}: {root} has other image files ({found.fingerprint}): pass the folder "
            f"{parts_of(fingerprint)[0]!r} as it was (--data)"
        )
    pixels, broken = _own_pixels(found, size, progress)
    good = ~np.isin(np.arange(len(pixels)), [*broken])
    test = good & found.for_test(good, seed)
    train = good & ~test
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
    images = [_own_split(pixels, found.labels, np.flatnonzero(part)) for part in (train, test)]
    return Dataset(f"{found.name} (folder)", images[0], None, images[1], found.classes, *_constants(images[0].images))


def parts_of(fingerprint: str) -> list[str]:
    """Return name, number of files and digest of a fingerprint, or refuse what is none."""
    if re.fullmatch(r".+:\d{1,12}:[0-9a-f]{12}", fingerprint, re.DOTALL | re.ASCII) is None:
        raise ArgumentError(f"fingerprint={fingerprint!r}: expected NAME:FILES:DIGEST, as in 'roses:150:0123456789ab'")
    return fingerprint.rsplit(":", 2)


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _stat(root: Path, path: str) -> tuple[str, int, int]:
    state = os.stat(root / path, follow_symlinks=os.path.exists(root / path))  # a link to nothing has a state too
    return splits.plain(path), state.st_size, state.st_mtime_ns


def _own_split(pixels: Pixels, labels: npt.NDArray[np.int64], places: npt.NDArray[np.intp]) -> Split:
    """Return the images at these places: a part of the mapped array where they lie together, else a copy of them."""
    together = places[-1] - places[0] == len(places) - 1
    own = pixels[places[0] : places[-1] + 1] if together else pixels[places]
    return Split(torch.from_numpy(own).permute(0, 3, 1, 2), torch.from_numpy(labels[places]))


def _constants(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of bytes [n, 3, H, W], scaled to [0, 1]."""
    sums = torch.zeros(2, 3, dtype=torch.int64)
    for some in images.split(8):
        wide = some.long()
        sums += torch.stack([wide.sum((0, 2, 3)), (wide**2).sum((0, 2, 3))])
    first, second = sums.double() / images[:, 0].numel()
    std = (second - first**2).clamp(min=1).sqrt()  # of images that are all alike, one step of 255
    return tuple((first / 255).tolist()), tuple((std / 255).tolist())


def _own_pixels(found: Listing, size: int, progress: Progress | None) -> tuple[Pixels, dict[int, str]]:
    """Return all images at one size, from the cache or, where a file has changed since, decoded anew.

    They are [n, size, size, 3], black where a file cannot be read; with them comes why files cannot be read.
    """
    stamp = _digest([f"{path}\0{length}\0{changed}" for path, length, changed in found.stats])[:16]
    folder, name = found.root, f".subspaces-{size}-{stamp}"
    if not os.access(folder, os.W_OK):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "subspaces" / found.name
        with suppress(OSError):  # where nothing can be written either, they are decoded into memory
            folder.mkdir(parents=True, exist_ok=True)
    cache, notes = folder / f"{name}.npy", folder / f"{name}.json"
    if (pixels := _kept(cache, (len(found.paths), size, size, 3))) is not None:
        with suppress(OSError, ValueError, AttributeError, RecursionError):  # else decoded again
            return pixels, {int(index): str(why) for index, why in json.loads(notes.read_bytes()).items()}
    reasons: dict[Path, str] = {}
    paths = [found.root / path for path in found.paths]
    pixels = _build(paths, cache, size, partial(_square, size=size, reasons=reasons), progress)
    broken = {
        index: splits.plain(reasons[path].replace(f"{found.root}{os.sep}", ""))  # the root may be another one when read
        for index, path in enumerate(paths)
        if path in reasons
    }
    if os.access(folder, os.W_OK):
        storage.write(notes, json.dumps(broken).encode())
        for other in set(folder.glob(f".subspaces-{size}-*.*")) - {cache, notes}:
            other.unlink(missing_ok=True)
    return pixels, broken


def broken_files(paths: Sequence[Path], progress: Progress | None = None) -> list[str]:
    """Return why image files cannot be read by `StreamingLoader`, of those that cannot."""

    def reason(path: Path) -> str:
        try:
            decoding.centre_view(path, 256, 224)
        except DataError as error:
            return str(error)
        return ""

    return [each for each in _each(paths, reason, progress) if each]


def _square(path: Path, size: int, reasons: dict[Path, str]) -> Pixels:
    """Return the square of an image file; of one that cannot be read a black one, and note why."""
    try:
        return decoding.square(path, size)
    except DataError as error:
        reasons[path] = str(error)
        return np.zeros((size, size, 3), np.uint8)


# The cache of decoded images


def _kept(cache: Path, shape: tuple[int, ...]) -> Pixels | None:
    """Return the array of that shape, mapped from its file; None if there is none or it is not whole."""
    try:
        array = decoding.map_array(cache)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 and array.flags.c_contiguous else None


def _build(paths: Sequence[Path], cache: Path, size: int, view: View, progress: Progress | None) -> Pixels:
    """Decode all files into the cache, [n, size, size, 3]; where it cannot be written, into memory."""
    shape = (len(paths), size, size, 3)
    if not os.access(cache.parent, os.W_OK):
        return np.fromiter(_each(paths, view, progress), np.dtype((np.uint8, shape[1:])), len(paths))
    unfinished = cache.with_name(f".{cache.name}.{secrets.token_hex(4)}.partial")
    storage.sweep(cache.parent, cache.name)  # what a killed process left
    try:
        with storage.naming(cache), storage.writing(unfinished):
            with open(unfinished, "wb") as file:
                np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
                file.writelines(pixels.tobytes() for pixels in _each(paths, view, progress))
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, cache)
    finally:
        unfinished.unlink(missing_ok=True)
    return decoding.map_array(cache)


def _each(paths: Sequence[Path], view: Callable[[Path], T], progress: Progress | None) -> Iterator[T]:
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside Python's lock
        warnings.simplefilter("ignore")  # Pillow's, of odd metadata and many pixels, which are refused
        for start in range(0, len(paths), AT_ONCE):
            yield from pool.map(view, paths[start : start + AT_ONCE])
            if progress is not None:
                progress("decoding images", min(start + AT_ONCE, len(paths)), len(paths))
