"""Networks for small images: MLP, LeNet, and the residual networks of He et al., Deep Residual Learning, 2016."""

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subspaces.errors import ArgumentError

if find_spec("triton"):  # comes with torch for CUDA
    from subspaces.networks import kernels
else:
    kernels = None  # type: ignore[assignment]

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


class Conv2d(nn.Conv2d):
    """`torch.nn.Conv2d`, which in a compiled step on a GPU takes this package's kernels where they fit.

    They fit bfloat16 images of few channels. Everywhere else, this is torch's convolution.
    """

    def forward(self, input: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and kernels is not None and self._simple():
            dtype = input.dtype
            if torch.is_autocast_enabled(input.device.type):
                dtype = torch.get_autocast_dtype(input.device.type)
            x, weight = input.to(dtype), self.weight.to(dtype)
            if kernels.fits(x, weight, self.stride[0]):
                return kernels.convolve(x, weight, self.stride[0])  # type: ignore[no-any-return]
        return super().forward(input)

    def _simple(self) -> bool:
        """Whether this is a convolution without bias, groups or dilation that keeps the size but for its stride."""
        size = self.kernel_size[0]
        return (
            self.bias is None
            and self.groups == 1
            and self.kernel_size == (size, size)
            and self.padding == (size // 2, size // 2)
            and self.padding_mode == "zeros"
            and self.dilation == (1, 1)
            and self.stride[0] == self.stride[1]
        )


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
