"""scikit-learn's digits: 1,797 images of 8 × 8, bundled with it."""

import numpy as np
import torch

from subspaces.data.dataset import Dataset, Split
from subspaces.streams import permutation, stream

TRAINING = 1200
MEAN, STD = (0.3052,), (0.3757,)


def load() -> Dataset:
    """Return digits cut into 1,200 for training and 597 for the test, always the same ones."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    order = permutation(stream(0, "digits"), len(bundle.target))
    pixels = np.rint(bundle.images * (255 / 16)).astype(np.uint8)  # values 0 … 16
    images = torch.from_numpy(pixels)[order, None]
    labels = torch.from_numpy(bundle.target.astype(np.int64))[order]
    train, test = Split(images[:TRAINING], labels[:TRAINING]), Split(images[TRAINING:], labels[TRAINING:])
    return Dataset("digits", train, None, test, tuple(map(str, range(10))), MEAN, STD)
