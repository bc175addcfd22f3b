"""Small networks for small images."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Two hidden layers with batch norm, on flattened images."""

    def __init__(self, inputs: int = 64, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]
