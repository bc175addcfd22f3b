"""TinyImageNet, decoded once into arrays of bytes beside it, and ImageNet, or any folders of its layout, as files.

TinyImageNet is train/<wnid>/images/*.JPEG (500 of each class), val/images with val_annotations.txt, wnids.txt and, if
it is there, words.txt with readable names; its test labels are secret, so val is the test. ImageNet is
train/<class>/*.JPEG and val/<class>/*.JPEG.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from subspaces.core import storage
from subspaces.errors import DataError
from subspaces.evaluation.display import Progress
from subspaces.images.decoding import Pixels, decode, map_array
from subspaces.images.listing import class_folders, labelled_files
from subspaces.images.splits import Dataset, Split

TINY = {"classes": 200, "train": 100_000, "val": 10_000}
AT_ONCE = 1000  # so that an error does not wait for all the others
View = Callable[[Path], Pixels]  # an image file as [size, size, 3]


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
    paths, labels = [files.path(index) for index in range(len(files))], files.labels
    train = _split(paths, labels, folder / "subspaces-train.npy", TINY["train"], progress)
    source = folder / "val" / "val_annotations.txt"
    rows = [line.split("\t") for line in _lines(source)]
    if unknown := next((row for row in rows if len(row) < 2 or row[1] not in wnids), None):
        raise DataError(f"{source}: the line {unknown} has no label of wnids.txt: the file was altered, get it again")
    paths = [folder / "val" / "images" / Path(row[0]).name for row in rows]
    labels = torch.tensor([wnids.index(row[1]) for row in rows])
    test = _split(paths, labels, folder / "subspaces-val.npy", TINY["val"], progress)
    words = _lines(folder / "words.txt") if (folder / "words.txt").is_file() else []
    readable = dict(line.split("\t", 1) for line in words if "\t" in line)
    classes = tuple(readable.get(wnid) or wnid for wnid in wnids)
    return Dataset("tiny-imagenet", train, None, test, classes, (0.480, 0.448, 0.397), (0.276, 0.269, 0.282))


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text("utf-8").splitlines() if line]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not text in UTF-8 ({error}): the file was altered, get it again") from None


def _split(paths: list[Path], labels: torch.Tensor, cache: Path, count: int, progress: Progress | None) -> Split:
    """Return the images, mapped from the cache, which is made where it is missing or not whole."""
    if len(paths) != count:
        raise DataError(f"{cache.parent}: expected {count:,} images, found {len(paths):,}: get and unpack it again")
    array = kept(cache, (count, 64, 64, 3))
    if array is None:
        array = build(paths, cache, 64, _pixels, progress)
    return Split(torch.from_numpy(array).permute(0, 3, 1, 2), labels)


def _pixels(file: Path) -> Pixels:
    image = decode(file)
    if image.size != (64, 64):
        raise DataError(f"{file}: {image.width} × {image.height} pixels, expected 64 × 64: the file was altered")
    return np.asarray(image)


def kept(cache: Path, shape: tuple[int, ...]) -> Pixels | None:
    """Return the array of that shape, mapped from its file; None if there is none or it is not whole."""
    try:
        array = map_array(cache)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 and array.flags.c_contiguous else None


def build(paths: Sequence[Path], cache: Path, size: int, view: View, progress: Progress | None) -> Pixels:
    """Decode all files into the cache, [n, size, size, 3]; where it cannot be written, into memory."""
    shape = (len(paths), size, size, 3)
    if not os.access(cache.parent, os.W_OK):
        return np.fromiter(_decode(paths, view, progress), np.dtype((np.uint8, shape[1:])), len(paths))
    partial = cache.with_name(f".{cache.name}.{secrets.token_hex(4)}.partial")
    storage.sweep(cache.parent, cache.name)  # what a killed process left
    try:
        with storage.writing(partial), open(partial, "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for pixels in _decode(paths, view, progress):
                file.write(pixels.tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, cache)
    finally:
        partial.unlink(missing_ok=True)
    return map_array(cache)


def _decode(paths: Sequence[Path], view: View, progress: Progress | None) -> Iterator[Pixels]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside the interpreter's lock
        for start in range(0, len(paths), AT_ONCE):
            yield from pool.map(view, paths[start : start + AT_ONCE])
            if progress is not None:
                progress("decoding images", min(start + AT_ONCE, len(paths)), len(paths))
