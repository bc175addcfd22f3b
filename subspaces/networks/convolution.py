"""A convolution that knows a faster way where there is one."""

from importlib.util import find_spec

import torch
from torch import Tensor, nn

if find_spec("triton"):  # comes with torch for CUDA
    from subspaces.networks import kernels
else:
    kernels = None  # type: ignore[assignment]


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
