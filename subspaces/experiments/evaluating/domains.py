"""Images of a new domain: a run's test images corrupted, published ones, or arrays of one's own."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import CORRUPTIONS, corrupt, published
from subspaces.experiments.data.dataset import DataError, Dataset
from subspaces.images.reading import ANY, DAMAGED, map_array, read_arrays
from subspaces.images.splits import Files, Images, Split, check_label_values

ARRAYS = "an .npz file with `images` (uint8 [n, height, width] or [n, height, width, channels]) and `labels`, or a "
ARRAYS += "folder with images.npy and labels.npy"
UNPACKED = 1 << 32  # bytes of an array in a compressed .npz file; a .npy file is mapped


class Domain(NamedTuple):
    """Labelled images, and what they are called."""

    words: str
    images: Images


def domain_of(
    dataset: Dataset, corruption: str | None, severity: int, images: Path | None, device: str = "cpu"
) -> Domain:
    """Return the images of a new domain, which have to fit a data set."""
    check_domain(corruption, severity, images)
    if images is not None and corruption is None:
        return Domain(f"the images of {images.name}", _fitting(_arrays(images, len(dataset.classes)), dataset, images))
    if images is not None and corruption is not None:
        found = _fitting(published(images, corruption, severity, dataset.classes), dataset, images)
        return Domain(f"published images with {corruption}, severity {severity}", found)
    if isinstance(dataset.test, Files):
        raise ArgumentError(
            f"corruption={corruption!r}: the images of {dataset.name} are files, which are not corrupted here; "
            "expected the folder of published ones too (--images, as of ImageNet-C)"
        )
    corrupted = corrupt(dataset.test.images.to(device), str(corruption), severity).cpu()
    return Domain(f"test images with {corruption}, severity {severity}", Split(corrupted, dataset.test.labels))


def check_domain(corruption: str | None, severity: int, images: Path | None) -> None:
    """Refuse what names no domain."""
    if corruption is None and images is None:
        raise ArgumentError(
            "no new domain was named: expected a corruption of the test images (--corruption fog), a folder of "
            f"published ones with it (--images DIR), or --images with {ARRAYS}"
        )
    if corruption is not None:
        CORRUPTIONS.find(corruption)
    checks.whole("severity", severity, 1, 5)


def _arrays(path: Path, classes: int) -> Split:
    try:
        found: dict[str, Any]
        if path.is_dir():
            found = {name: map_array(path / f"{name}.npy") for name in ("images", "labels")}
        else:
            found = read_arrays(path, {"images": ANY, "labels": ANY}, UNPACKED)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no {Path(error.filename).name}: expected {ARRAYS}") from None
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(f"{path}: {error}: expected {ARRAYS}") from None
    images, labels = found["images"], found["labels"]
    wide = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or wide.ndim != 4 or not len(images):
        raise DataError(f"{path}: images are {images.dtype} {images.shape}: expected {ARRAYS}")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: labels are {labels.dtype} {labels.shape}: expected a class number for each of the "
            f"{len(images)} images"
        )
    check_label_values(labels, classes, path)
    channels_first = np.ascontiguousarray(wide.transpose(0, 3, 1, 2))
    return Split(torch.from_numpy(channels_first), torch.from_numpy(labels.astype(np.int64)))


def _fitting(images: Images, dataset: Dataset, path: Path) -> Images:
    if isinstance(images, Split) and tuple(images.images.shape[1:]) != dataset.image_shape:
        found, wanted = (" × ".join(map(str, each)) for each in (images.images.shape[1:], dataset.image_shape))
        raise DataError(f"{path}: images of {found} (channels × height × width); {dataset.name} has {wanted}")
    return images
