"""The residual networks for 64 x 64 images."""

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from subspaces.networks.cresnet import Block, draw_convolutions

WIDTHS = (64, 128, 256, 512)


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1 ones, the last of which widens by 4, and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Four stages of blocks at 64, 128, 256 and 512 channels, each after the first at half the resolution.

    He et al., Deep Residual Learning for Image Recognition, 2016, as trained on TinyImageNet: the
    stem is one 3 x 3 convolution, with neither stride nor pooling. Convolutions start Kaiming-normal.

    Args:
        block: makes a block from its input channels, its width and its stride.
        expansion: output channels of a block for each of its width.
        depths: blocks in each stage.
        classes: outputs of the network.
    """

    def __init__(
        self, block: Callable[[int, int, int], nn.Module], expansion: int, depths: Sequence[int], classes: int
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        blocks: list[nn.Module] = []
        inputs = WIDTHS[0]
        for stage, (width, depth) in enumerate(zip(WIDTHS, depths, strict=True)):
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(inputs, width, stride))
                inputs = expansion * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)
        draw_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(y.mean((2, 3)))  # type: ignore[no-any-return]


def basic(inputs: int, width: int, stride: int) -> Block:
    """Return a block of two 3 x 3 convolutions, without dropout."""
    return Block(inputs, width, stride, dropout=0.0)


class ResNet18(ResNet):
    """Eighteen layers: two blocks of two convolutions in each stage."""

    def __init__(self, classes: int = 200) -> None:
        super().__init__(basic, 1, (2, 2, 2, 2), classes)


class ResNet50(ResNet):
    """Fifty layers: 3, 4, 6 and 3 bottlenecks in the four stages."""

    def __init__(self, classes: int = 200) -> None:
        super().__init__(Bottleneck, Bottleneck.expansion, (3, 4, 6, 3), classes)
