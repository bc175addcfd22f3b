"""scikit-learn's digits: 1,797 images of 8 × 8, bundled with it."""

import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from subspaces.core.randomness import new_state, permutation
from subspaces.experiments.data.dataset import Dataset, Split

TRAINING = 1200
SPLIT = 2**56  # the seed of the order that is cut into training and test images
MEAN, STD = (0.3052,), (0.3757,)


def load() -> Dataset:
    """Return digits cut into 1,200 for training and 597 for the test, always the same ones."""
    values, target = _read()
    order = permutation(new_state(SPLIT), len(target))
    pixels = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)  # values 0 … 16
    images = torch.from_numpy(pixels)[order, None]
    labels = torch.from_numpy(target.astype(np.int64))[order]
    train, test = Split(images[:TRAINING], labels[:TRAINING]), Split(images[TRAINING:], labels[TRAINING:])
    return Dataset("digits", train, None, test, tuple(map(str, range(10))), MEAN, STD)


@cache
def _read() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return pixels [n, 64] and labels [n], once read from the file itself: to import scikit-learn takes a second."""
    found = find_spec("sklearn")
    file = Path(found.origin if found is not None and found.origin else "").parent / "datasets/data/digits.csv.gz"
    if file.is_file():
        with gzip.open(file, "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
        return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits  # which says what is missing

    bundle = load_digits()
    return bundle.data, bundle.target
