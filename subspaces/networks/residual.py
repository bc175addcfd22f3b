"""Residual networks (He et al., Deep Residual Learning for Image Recognition, 2016) for small images."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from subspaces.errors import ArgumentError
from subspaces.networks.convolution import Conv2d


def _shortcut(convolution: type[nn.Conv2d], inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Return the identity, or a 1 x 1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(convolution(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut; dropout acts before the addition."""

    expansion = 1

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = _shortcut(Conv2d, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.dropout(self.norm2(self.conv2(y)))
        return F.relu(y + self.shortcut(x))


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
        self.shortcut = _shortcut(nn.Conv2d, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class _Residual(nn.Module):
    """A stem without pooling, and stages of blocks, each after the first at half the resolution.

    All convolutions start Kaiming-normal.
    """

    def __init__(
        self, stem: nn.Conv2d, block: Any, widths: Sequence[int], depths: Sequence[int], head: Any, **options: Any
    ) -> None:
        super().__init__()
        self.stem = stem
        self.norm = nn.BatchNorm2d(widths[0])
        blocks: list[nn.Module] = []
        inputs = widths[0]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            for position in range(depth):
                blocks.append(block(inputs, width, 2 if stage > 0 and position == 0 else 1, **options))
                inputs = block.expansion * width
        self.blocks = nn.Sequential(*blocks)
        self.head = head(inputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(F.relu(self.norm(self.stem(x))))
        pooled = y.mean((2, 3), keepdim=isinstance(self.head, nn.Conv2d))
        return self.head(pooled).flatten(1)  # type: ignore[no-any-return]


class CResNet(_Residual):
    """Three stages of 16, 32 and 64 channels with convolutions as shortcuts, for the 32 x 32 images of CIFAR-10.

    Args:
        depth: layers, 6n + 2 with n blocks in each stage: 8, 14, 20, 32, 56, …
        classes: outputs of the network.
        dropout: its rate, before a block's addition.
    """

    def __init__(self, depth: int = 20, classes: int = 10, dropout: float = 0.0) -> None:
        if depth < 8 or depth % 6 != 2:
            raise ArgumentError(f"depth={depth}: expected 6n + 2 layers, such as 8, 14, 20, 32 or 56")
        stem, head = Conv2d(3, 16, 3, padding=1, bias=False), partial(Conv2d, kernel_size=1, bias=False)
        depths = [(depth - 2) // 6] * 3
        super().__init__(stem, Block, (16, 32, 64), depths, partial(head, out_channels=classes), dropout=dropout)


class CResNet20(CResNet):
    """Twenty layers, the network of the paper's experiments on CIFAR-10."""

    def __init__(self, classes: int = 10, dropout: float = 0.0) -> None:
        super().__init__(20, classes, dropout)


class ResNet18(_Residual):
    """Four stages of 64 to 512 channels, two blocks each, for the 64 x 64 images of TinyImageNet."""

    block, depths = Block, (2, 2, 2, 2)

    def __init__(self, classes: int = 200) -> None:
        stem, head = nn.Conv2d(3, 64, 3, padding=1, bias=False), partial(nn.Linear, out_features=classes)
        super().__init__(stem, self.block, (64, 128, 256, 512), self.depths, head)


class ResNet50(ResNet18):
    """The same stages of 3, 4, 6 and 3 bottlenecks."""

    block, depths = Bottleneck, (3, 4, 6, 3)  # type: ignore[assignment]
