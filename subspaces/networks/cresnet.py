"""The residual network for 32 x 32 images."""

import torch.nn.functional as F
from torch import Tensor, nn

from subspaces.networks.convolution import Conv2d


def draw_convolutions(network: nn.Module) -> None:
    """Draw every convolution of a network from the Kaiming-normal distribution, in place."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.dropout(self.norm2(self.conv2(y)))
        return F.relu(y + self.shortcut(x))


class CResNet20(nn.Module):
    """Twenty layers in three stages of 16, 32 and 64 channels, with Kaiming-normal convolutions.

    He et al., Deep Residual Learning for Image Recognition, 2016, as trained on CIFAR-10, with
    convolutions as shortcuts. `dropout` acts before a block's addition.
    """

    def __init__(self, classes: int = 10, dropout: float = 0.0) -> None:
        super().__init__()
        widths = (16, 32, 64)
        self.stem = Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        blocks: list[nn.Module] = []
        inputs = widths[0]
        for stage, width in enumerate(widths):
            for position in range(3):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(Block(inputs, width, stride, dropout))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.head = Conv2d(inputs, classes, 1, bias=False)
        draw_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(F.relu(self.norm(self.stem(x))))
        pooled = y.mean((2, 3), keepdim=True)
        return self.head(pooled).flatten(1)  # type: ignore[no-any-return]
