"""The catalogue of corruptions (Hendrycks & Dietterich, 2019), and how one is applied to a batch of images."""

import tomllib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.core.randomness import SEEDS
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import blur, digital, weather
from subspaces.evaluation.corruptions.matrices import Draws, rounded
from subspaces.images.splits import grey
from subspaces.text import Catalogue

Effect = Callable[[Tensor, Any, Draws], Tensor]
GROUPS = ("noise", "blur", "weather", "digital", "extra")
SEVERITIES = (1, 2, 3, 4, 5)
Sides = dict[int, tuple[Any, ...]]  # a parameter for each severity, by the side of the images that they were chosen for
CHUNK = {"cpu": 2**18, "other": 2**22}  # pixels at a time: few stay in a CPU's cache, many occupy a GPU


def _parameters() -> dict[str, Sides]:
    """Return the published parameters."""

    def fixed(value: Any) -> Any:
        return tuple(map(fixed, value)) if isinstance(value, list) else value

    found = tomllib.loads(resources.files(__package__).joinpath("parameters.toml").read_text("utf-8"))
    return {name: {int(side): fixed(five) for side, five in sides.items()} for name, sides in found.items()}


PARAMETERS = _parameters()


@dataclass(frozen=True)
class Corruption:
    """One way in which images are spoiled, in five severities.

    The effect makes bytes [n, C, H, W] of such, the parameter of a severity and random numbers.
    """

    name: str  # as in the published files
    label: str
    group: str  # one of `GROUPS`; those of "extra" are not among the fifteen that are averaged
    meaning: str
    effect: Effect
    parameters: Sides
    colour: bool = False  # whether it needs three channels; grey images then have three equal ones

    def parameter(self, severity: int, height: int, width: int) -> Any:
        """Return the parameter for images of the published size that is nearest."""
        side = min(self.parameters, key=lambda side: abs(side - max(height, width)))
        return self.parameters[side][severity - 1]

    def __call__(self, images: Tensor, severity: int, draws: Draws) -> Tensor:
        """Return bytes [n, C, H, W] spoiled."""
        parameter = self.parameter(severity, *images.shape[-2:])
        if not self.colour or images.shape[1] == 3:
            return self.effect(images, parameter, draws)
        return rounded(grey(self.effect(images.expand(-1, 3, -1, -1), parameter, draws)))


def _known(label: str, group: str, meaning: str, effect: Any, colour: bool = False) -> Corruption:
    name = effect.__name__
    return Corruption(name, label, group, meaning, effect, PARAMETERS[name], colour)


CORRUPTIONS: Catalogue[Corruption] = Catalogue(
    "corruption",
    [
        _known("Gaussian noise", "noise", "a normal number is added to each value", digital.gaussian_noise),
        _known("shot noise", "noise", "few photons are counted for each value", digital.shot_noise),
        _known("impulse noise", "noise", "some values are black or white", digital.impulse_noise),
        _known("defocus blur", "blur", "out of focus: the mean over a disk", blur.defocus_blur),
        _known("glass blur", "blur", "frosted glass: pixels are taken from near them", blur.glass_blur),
        _known("motion blur", "blur", "the camera moved along a line", blur.motion_blur),
        _known("zoom blur", "blur", "the camera moved towards its object", blur.zoom_blur),
        _known("snow", "weather", "falling flakes, and a bleached picture", weather.snow, colour=True),
        _known("frost", "weather", "ice on the window", weather.frost, colour=True),
        _known("fog", "weather", "clouds of every size", weather.fog),
        _known("brightness", "digital", "everything is lighter", digital.brightness),
        _known("contrast", "digital", "everything is nearer to the mean", digital.contrast),
        _known("elastic transform", "digital", "the image is stretched", digital.elastic_transform),
        _known("pixelate", "digital", "fewer, larger pixels", digital.pixelate),
        _known("JPEG compression", "digital", "a small file", digital.jpeg_compression, colour=True),
        _known("speckle noise", "extra", "noise in proportion to the value", digital.speckle_noise),
        _known("Gaussian blur", "extra", "the mean with weights of a Gaussian", blur.gaussian_blur),
        _known("spatter", "extra", "drops of water or mud on the lens", weather.spatter, colour=True),
        _known("saturate", "extra", "colours are paler or stronger", digital.saturate, colour=True),
    ],
)


@torch.no_grad()
def corrupt(images: Tensor, name: str, severity: int, *, seed: int = 0, first: int = 0) -> Tensor:
    """Return images uint8 [n, C, H, W] spoiled, as uint8 of the same shape on the same device.

    Random numbers of image i depend on the seed, the corruption, its severity and first + i alone. Parameters are the
    published ones for sides of 32, 64 and 224 pixels; other images get those of the nearest of these sides.

    Args:
        images: grey (C = 1) or colour (C = 3).
        name: one of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: another one gives other noise.
        first: the number of the first image in its data set.
    """
    corruption = CORRUPTIONS.find(name)
    severity = checks.whole("severity", severity, 1, 5)
    seed, first = checks.whole("seed", seed, 0, SEEDS - 1), checks.whole("first", first, 0)
    fits = isinstance(images, Tensor) and images.dtype == torch.uint8 and images.ndim == 4 and images.shape[1] in (1, 3)
    if not fits or not images.shape[-2:].numel():
        found = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else checks.shown(images)
        raise ArgumentError(f"corrupt got images of {found}: expected torch.uint8 [n, 1 or 3, height, width]")
    height, width = images.shape[-2:]
    part = (zlib.crc32(name.encode()) % 2**13) * 2**3 + severity
    step = max(CHUNK["cpu" if images.device.type == "cpu" else "other"] // (height * width), 1)
    result = torch.empty_like(images)
    for start in range(0, len(images), step):
        chunk = images[start : start + step].contiguous()
        draws = Draws(seed, part, first + start, len(chunk), images.device)
        result[start : start + step] = corruption(chunk, severity, draws)
    return result
