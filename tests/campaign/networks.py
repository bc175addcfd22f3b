"""A network of one's own, with dropout: the package has none for small grey images."""

from torch import nn


def dropped(classes: int, image_shape: tuple[int, int, int], dropout: float = 0.0) -> nn.Module:
    """Return a small network that drops."""
    channels, height, width = image_shape
    pixels = channels * height * width
    return nn.Sequential(
        nn.Flatten(), nn.Linear(pixels, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, classes)
    )
