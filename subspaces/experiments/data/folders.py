"""TinyImageNet, decoded once into arrays of bytes beside it, and ImageNet, or any folders of its layout, as files.

TinyImageNet is train/<wnid>/images/*.JPEG (500 of each class), val/images with val_annotations.txt, wnids.txt and, if
it is there, words.txt with readable names; its test labels are secret, so val is the test. ImageNet is
train/<class>/*.JPEG and val/<class>/*.JPEG.
"""

from pathlib import Path

import numpy as np
import torch

from subspaces.errors import DataError
from subspaces.evaluation.display import Progress
from subspaces.experiments.data import decoded
from subspaces.images.decoding import Pixels, decode
from subspaces.images.listing import class_folders, labelled_files
from subspaces.images.splits import Dataset, Split

IMAGENET = {"classes": 1000, "train": 1_281_167, "val": 50_000}
TINY = {"classes": 200, "train": 100_000, "val": 10_000}


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
    array = decoded.kept(cache, (count, 64, 64, 3))
    if array is None:
        array = decoded.build(paths, cache, 64, _pixels, progress)
    return Split(torch.from_numpy(array).permute(0, 3, 1, 2), labels)


def _pixels(file: Path) -> Pixels:
    image = decode(file)
    if image.size != (64, 64):
        raise DataError(f"{file}: {image.width} × {image.height} pixels, expected 64 × 64: the file was altered")
    return np.asarray(image)
