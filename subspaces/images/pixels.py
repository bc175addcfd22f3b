"""From bytes to the numbers a network gets, and from colours to grey."""

from collections.abc import Sequence

import torch
from torch import Tensor

from subspaces.errors import ArgumentError

GREY = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R 601


def grey(images: Tensor) -> Tensor:
    """Return how light colours [n, 3, H, W] are, as float32 [n, 1, H, W]."""
    red, green, blue = images.float().unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]


class Normalise:
    """(x/255 − mean)/std as one multiply-add per pixel, from uint8 [n, H, W, C] to floats [n, C, H, W]."""

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if not mean or len(mean) != len(std) or min(std) <= 0:
            raise ArgumentError(f"mean={mean}, std={std}: expected one of each per channel, std above 0")
        wide_mean, wide_std = (torch.tensor(list(values), dtype=torch.float64) for values in (mean, std))
        self.scale = (1 / (255 * wide_std)).float().to(device)  # [C]
        self.shift = (-wide_mean / wide_std).float().to(device)  # [C]
        self.channels_last = channels_last
        self.dtype = dtype

    def __call__(self, images: Tensor) -> Tensor:
        """Return the normalised images, channels-last in memory on request, else contiguous."""
        x = torch.addcmul(self.shift, images, self.scale).to(self.dtype).permute(0, 3, 1, 2)
        return x if self.channels_last else x.contiguous()
