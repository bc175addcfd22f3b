"""Images of a new domain: a run's test images spoiled, published ones, or arrays of one's own."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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
        return Domain(f"the images of {images.name}", _arrays(images, dataset))
    if images is not None and corruption is not None:
        found = published(images, corruption, severity, dataset.classes)
        _check(found, dataset, images)
        return Domain(f"published images with {corruption}, severity {severity}", found)
    if isinstance(dataset.test, Files):
        raise ArgumentError(
            f"corruption={corruption!r}: the images of {dataset.name} are files, which are not spoiled here; expected "
            "the folder of published ones too (--images, as of ImageNet-C)"
        )
    spoiled = corrupt(dataset.test.images.to(device), str(corruption), severity).cpu()
    return Domain(f"test images with {corruption}, severity {severity}", Split(spoiled, dataset.test.labels))


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


def _arrays(path: Path, dataset: Dataset) -> Split:
    """Read labelled images from arrays."""
    try:
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
    images, labels = _channels_first(found["images"], path), found["labels"]
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: labels are {labels.dtype} {labels.shape}: expected a class number for each of the "
            f"{len(images)} images"
        )
    check_label_values(labels, len(dataset.classes), path)
    split = Split(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))
    _check(split, dataset, path)
    return split


def _channels_first(images: npt.NDArray[Any], path: Path) -> npt.NDArray[np.uint8]:
    wide = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or wide.ndim != 4 or not len(images):
        raise DataError(f"{path}: images are {images.dtype} {images.shape}: expected {ARRAYS}")
    return np.ascontiguousarray(wide.transpose(0, 3, 1, 2))


def _check(images: Images, dataset: Dataset, path: Path) -> None:
    """Refuse images of another size than those that the network was trained on."""
    if isinstance(images, Split) and tuple(images.images.shape[1:]) != dataset.image_shape:
        found = " × ".join(map(str, images.images.shape[1:]))
        wanted = " × ".join(map(str, dataset.image_shape))
        raise DataError(f"{path}: images of {found} (channels × height × width); {dataset.name} has {wanted}")
