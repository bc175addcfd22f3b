"""Small networks for small images."""

from torch import Tensor, nn

from subspaces.errors import ArgumentError

ImageShape = tuple[int, int, int]
"""Channels, height and width of an image."""


class MLP(nn.Module):
    """Two hidden layers with batch norm, on flattened images."""

    def __init__(self, inputs: int = 64, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for size in (inputs, width):
            layers += [nn.Linear(size, width), nn.BatchNorm1d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class LeNet(nn.Module):
    """Two 5 x 5 convolutions with pooling, then layers of 120 and 84.

    LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998, with ReLU and max
    pooling. Where images have less than 28 pixels a side the second convolution is padded as the
    first one is, or it would leave nothing of the 8 x 8 digits.
    """

    def __init__(self, image_shape: ImageShape = (1, 28, 28), classes: int = 10) -> None:
        super().__init__()
        channels, height, width = image_shape
        if min(height, width) < 4:
            raise ArgumentError(f"image_shape={image_shape}: expected sides of 4 or more")
        padding = 0 if min(height, width) >= 28 else 2
        border = 4 - 2 * padding  # what the second convolution takes off each side's length
        size = 16 * ((height // 2 - border) // 2) * ((width // 2 - border) // 2)
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(size, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        )
        self.head = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]
