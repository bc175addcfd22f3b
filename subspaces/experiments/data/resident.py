"""Batches from a data set that lives on the device, made by a few batched operations there.

An epoch is drawn at once, as a plan: for each place in the order, which image, its label, the pixel
where its crop begins, and in which direction rows are read. A batch is then a slice of the plan and
one gather of pixels. Nothing waits for the host and all shapes are fixed, so that a CUDA graph can capture `take`.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.core.randomness import permutation, stream, uniform
from subspaces.images.splits import Normalise, Split
from subspaces.text import Catalogue

Batch = tuple[Tensor, Tensor]
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of a view: its share of the area, and its width by its height
_IMAGE, _LABEL, _START, _STEP = range(4)  # the rows of a plan


@dataclass(frozen=True)
class Share:
    """What process `rank` of `ranks` takes: every `ranks`-th image of each batch, or, with `whole`, such batches.

    Batch-norm statistics depend on what is in a batch, so they need whole ones. `most` limits the batches of an epoch.
    """

    rank: int = 0
    ranks: int = 1
    whole: bool = False
    most: int | None = None

    def batches(self, count: int) -> range:
        """Return which of an epoch's batches are taken; where there are fewer than processes, each takes all."""
        count = count if self.most is None else min(self.most, count)
        return range(self.rank, count, self.ranks) if self.whole and count >= self.ranks else range(count)

    def images(self, size: int) -> slice:
        """Return which images of a batch are taken."""
        return slice(None) if self.whole or self.ranks == 1 else slice(self.rank, size, self.ranks)

    def weight(self, size: int) -> float:
        """Return what the mean over these images counts in the mean over all processes: 1, or nearly."""
        if self.whole or self.ranks == 1:
            return 1.0
        return len(range(self.rank, size, self.ranks)) * self.ranks / size


ALL = Share()


class Augmentation(NamedTuple):
    """A way to change training images beside shifted crops and flips."""

    name: str
    meaning: str


PLAIN, RESIZED = "plain", "resized-crop"
AUGMENTATIONS = Catalogue(
    "augmentation",
    [
        Augmentation(PLAIN, "nothing beside pad and flip, but for ImageNet, whose files are always seen in such views"),
        Augmentation(RESIZED, "views of 8–100 % of an image, scaled to its size; in place of pad"),
    ],
)


class ResidentLoader:
    """Shuffled, cropped, flipped and normalised batches (x, y) of a split, made on the device.

    The images are held as uint8, with a border of `pad` black pixels, and a crop takes the original size at a random
    place; a flip mirrors it with probability ½. Two loaders with the same seed give the same batches on every device
    (up to the rounding of the last bit). The state is three tensors that are only ever changed in place: `order` int64
    [n], `position` int64 [], `rng` int64 [2].

    Args:
        split: the images, in memory or mapped.
        batch: images in a batch; the last one of an epoch may be smaller.
        mean, std: the data set's constants, per channel.
        pad: width of the border for random crops, 0 for none.
        flip: mirror at random.
        resized_crop: views of 8–100 % of an image (`boxes`), in place of `pad`.
        shuffle: draw a new order each epoch.
        seed: of order, crops and flips.
        channels_last: batches with channels last in memory.
        dtype: of the images in a batch.
        share: which part of the batches this process takes, of several that train together.
    """

    def __init__(
        self,
        split: Split,
        *,
        batch: int,
        mean: Sequence[float],
        std: Sequence[float],
        pad: int = 0,
        flip: bool = False,
        resized_crop: bool = False,
        shuffle: bool = True,
        seed: int = 0,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        dtype: torch.dtype = torch.float32,
        share: Share = ALL,
    ) -> None:
        self.device = torch.device(device)
        self.batch, self.pad, self.flip, self.resized_crop, self.shuffle = batch, pad, flip, resized_crop, shuffle
        self.share, self.weight = share, 1.0
        self.images = _padded(split.images, pad, self.device)  # [n, H + 2 pad, W + 2 pad, C]
        self.labels = split.labels.to(self.device)
        self.normalise = Normalise(mean, std, self.device, channels_last, dtype)
        n, _, height, width = split.images.shape
        # A captured graph reads the tensors it was captured with: all of them are attributes.
        self._range = torch.arange(max(n, height, width), device=self.device)
        self._rows = torch.arange(height, device=self.device) * (width + 2 * pad)  # where each begins
        self._pixels = self.images.view(-1, self.images.shape[-1])
        self._size = (n, height, width)
        self._new_state(seed)

    def _new_state(self, seed: int) -> None:
        n = self._size[0]
        self.rng = stream(seed, "batches").to(self.device)
        self._epoch_rng = self.rng.clone()  # where the current epoch's numbers began
        self.position = torch.zeros((), dtype=torch.int64, device=self.device)
        self.plan = torch.zeros(4, n, dtype=torch.int64, device=self.device)
        self.plan[_STEP] = 1
        self.order = self.plan[_IMAGE]
        self.boxes = torch.zeros(4, n if self.resized_crop else 0, device=self.device)
        self.start_epoch()

    def sibling(self, seed: int, labels: Tensor | None = None, share: Share | None = None) -> "ResidentLoader":
        """Return a loader that shares the images in memory with this one, and has its own state.

        It may also have other labels, and take another share of the batches.
        """
        other = copy.copy(self)
        other.share = self.share if share is None else share
        if labels is not None:
            other.labels = labels.to(self.device)
        other._new_state(seed)
        return other

    def start_epoch(self) -> None:
        """Draw the order, crops and flips of a new epoch and go to its beginning, in place."""
        n, height, width = self._size
        self._epoch_rng.copy_(self.rng)
        self.position.zero_()
        self.order.copy_(permutation(self.rng, n) if self.shuffle else self._range[:n])
        self.plan[_LABEL].copy_(self.labels[self.order])
        if self.resized_crop:
            drawn = boxes(uniform(self.rng, (4, n)))
            turned = uniform(self.rng, (n,)) < 0.5
            self.boxes.copy_(mirrored_boxes(drawn, turned) if self.flip else drawn)
        if self.resized_crop or not (self.pad or self.flip):
            return
        tall, wide = height + 2 * self.pad, width + 2 * self.pad
        start = self.order * tall
        if self.pad:
            top, left = (uniform(self.rng, (2, n)) * (2 * self.pad + 1)).long()
            start = (start + top) * wide + left
        else:
            start = start * wide
        if self.flip:
            mirrored = (uniform(self.rng, (n,)) < 0.5).long()
            start = start + mirrored * (width - 1)  # a mirrored row is read backwards from its last pixel
            self.plan[_STEP].copy_(1 - 2 * mirrored)
        self.plan[_START].copy_(start)

    def take(self, size: int) -> Batch:
        """Return the next `size` images and labels of the epoch, or this process's share; past its end there are none.

        `weight` then says what the share's mean counts in the mean over the shares.
        """
        batch = self._pick(self.plan, self.boxes, self.position, size)
        if self.share.ranks > 1:
            self.weight = self.share.weight(size)
        self.position.add_(size)
        return batch

    def _pick(self, plan: Tensor, boxes: Tensor, position: Tensor, size: int) -> Batch:
        """Return the images and labels of places of an epoch: of one plan [4, n], or of each of several [4, k, n]."""
        width = self._size[2]
        places = position + self._range[:size][self.share.images(size)]
        index, labels, start, step = plan.index_select(-1, places).flatten(1)
        if self.resized_crop:
            images = views(self.images.index_select(0, index), boxes.index_select(-1, places).flatten(1))
        elif self.pad or self.flip:
            images = crops(self._pixels, start, step, self._rows, self._range[:width])
        else:
            images = self.images.index_select(0, index)
        return self.normalise(images), labels

    @property
    def sizes(self) -> list[int]:
        """The sizes of an epoch's batches."""
        return batch_sizes(self._size[0], self.batch)

    def remaining(self) -> list[int]:
        """Return the sizes of the batches that are left in this epoch."""
        return batch_sizes(self._size[0] - int(self.position), self.batch)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Batch]:
        self.start_epoch()
        taken = self.share.batches(len(self))
        for index, size in enumerate(self.sizes):
            if index in taken:
                yield self.take(size)
            else:
                self.position.add_(size)

    def state_dict(self) -> dict[str, Tensor]:
        """Return where the loader is, at any place within an epoch; the order is drawn again from it."""
        return {"rng": self._epoch_rng.cpu().clone(), "position": self.position.cpu().clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where `state_dict` was called, on a loader of the same data and settings."""
        self.rng.copy_(state["rng"])
        self.start_epoch()
        self.position.copy_(state["position"])


class StackedLoader:
    """Several siblings at the same place of an epoch, as one loader that takes a batch of each at a time.

    Their plans and positions lie side by side from then on; each can still be shuffled, saved and used alone.
    """

    def __init__(self, loaders: Sequence[ResidentLoader]) -> None:
        self.first = loaders[0]
        self.plan = torch.stack([each.plan for each in loaders], 1)  # [4, k, n]
        self.boxes = torch.stack([each.boxes for each in loaders], 1)
        self.position = torch.stack([each.position for each in loaders])  # [k]
        for index, each in enumerate(loaders):
            each.plan, each.boxes, each.position = self.plan[:, index], self.boxes[:, index], self.position[index]
            each.order = each.plan[_IMAGE]

    def take(self, size: int) -> Batch:
        """Return the next images [k, size, C, H, W] and labels [k, size]."""
        place = self.position.amin()  # of those in training: one that was given up stays at the end of its last epoch
        images, labels = self.first._pick(self.plan, self.boxes, place, size)
        self.position.add_(size)
        return images.unflatten(0, (-1, size)), labels.view(-1, size)


def batch_sizes(images: int, batch: int) -> list[int]:
    """Return the sizes of the batches that hold so many images; the last may be smaller."""
    return [batch] * (images // batch) + [images % batch] * bool(images % batch)


def _padded(images: Tensor, pad: int, device: torch.device) -> Tensor:
    """Return uint8 [n, C, H, W] as [n, H + 2 pad, W + 2 pad, C] on the device, zero in the border."""
    n, channels, height, width = images.shape
    result = torch.zeros(n, height + 2 * pad, width + 2 * pad, channels, dtype=torch.uint8, device=device)
    result[:, pad : pad + height, pad : pad + width].copy_(images.permute(0, 2, 3, 1))
    return result


# Parts of images


def crops(pixels: Tensor, start: Tensor, step: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return crops [size, H, W, C] of pixels [p, C]: where each starts, its step along a row, and where rows begin."""
    places = torch.addcmul((start[:, None] + rows)[:, :, None], step[:, None, None], columns)  # [size, H, W]
    return pixels.index_select(0, places.view(-1)).view(*places.shape, -1)


def boxes(numbers: Tensor, shape: float = 1.0) -> Tensor:
    """Return [4, n] from uniform numbers [4, n]: left, top, width and height as parts of the image's sides.

    `shape` is the image's width divided by its height, where the ratio is to be that of the pixels.
    """
    area, ratio, x, y = numbers.unbind(0)
    target = SCALE[0] + (SCALE[1] - SCALE[0]) * area
    aspect = torch.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * ratio) / shape
    width, height = (target * aspect).sqrt().clamp(max=1), (target / aspect).sqrt().clamp(max=1)
    return torch.stack([x * (1 - width), y * (1 - height), width, height])


def mirrored_boxes(boxes: Tensor, flags: Tensor) -> Tensor:
    """Return boxes that are read from right to left where a flag is set."""
    left, top, width, height = boxes.unbind(0)
    return torch.stack([torch.where(flags, left + width, left), top, torch.where(flags, -width, width), height])


def views(images: Tensor, boxes: Tensor) -> Tensor:
    """Return these parts of uint8 [n, H, W, C], scaled back to the whole size: floats 0 … 255, [n, H, W, C]."""
    _, height, width, _ = images.shape
    left, top, wide, high = boxes[:, :, None].unbind(0)  # each [n, 1]
    columns = left + wide * _centres(width, boxes)
    rows = top + high * _centres(height, boxes)
    shape = (len(images), height, width)
    places = torch.stack([columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
    seen = F.grid_sample(
        images.permute(0, 3, 1, 2).to(boxes.dtype), 2 * places - 1, padding_mode="border", align_corners=False
    )
    return seen.permute(0, 2, 3, 1).contiguous()


def _centres(size: int, like: Tensor) -> Tensor:
    """Return where the centres of pixels lie, as parts of a side."""
    return (torch.arange(size, device=like.device, dtype=like.dtype) + 0.5) / size
