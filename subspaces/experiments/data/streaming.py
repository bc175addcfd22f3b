"""Batches from images that are not held on the device: files, or arrays mapped from a file.

Worker processes read, decode and crop; a batch travels as bytes, through pinned memory where there is
a GPU, and is normalised on the device. What happens to an image is a function of (seed, epoch, index),
so that the batches are the same for any number of workers.
"""

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from subspaces.core.randomness import permutation, stream, uniform
from subspaces.errors import DataError, MissingPackageError
from subspaces.experiments.data.resident import ALL, Batch, Share, batch_sizes, boxes, crops, views
from subspaces.images import decoding
from subspaces.images.splits import Files, Images, Normalise, Split

GRACE = 5  # seconds in which a worker that is told to end does


class StreamingLoader:
    """Shuffled, cropped, flipped and normalised batches (x, y) of image files or mapped arrays.

    It iterates like `ResidentLoader`, whose crops and flips those of arrays are. Of files, a training view is a random
    part of 8–100 % of the area; without `resized_crop`, the shorter side is scaled to `resize` and the centre taken.

    Args:
        workers: processes that read ahead; 0 reads in this one, None takes one per CPU core, 16 at most.
        size, resize: for files, the side of a view and the scale of a centred one.
        split, batch, …: see `ResidentLoader`.
    """

    def __init__(
        self,
        split: Images,
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
        channels_last: bool = True,
        dtype: torch.dtype = torch.float32,
        workers: int | None = None,
        size: int = 224,
        resize: int = 256,
        share: Share = ALL,
    ) -> None:
        self.batch, self.device, self.share = batch, torch.device(device), share
        self.normalise = Normalise(mean, std, self.device, channels_last, dtype)
        self._sampler = _Sampler(len(split), batch, shuffle, seed, share)
        workers = min(os.cpu_count() or 1, 16) if workers is None else workers
        self._start = functools.partial(
            DataLoader[Any],
            _Reader(split, seed, flip, pad, resized_crop, size, resize),
            batch_size=None,  # the reader makes whole batches
            sampler=self._sampler,
            num_workers=workers,
            pin_memory=self.device.type == "cuda",
            persistent_workers=workers > 0,
            prefetch_factor=4 if workers else None,
            generator=torch.Generator().manual_seed(0),  # or it would draw from the global one
            worker_init_fn=_follow_trainer,
        )
        self._loader = self._start()

    @property
    def sizes(self) -> list[int]:
        """The sizes of an epoch's batches."""
        return batch_sizes(self._sampler.images, self.batch)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def epoch(self) -> int:
        """The number of the current epoch, from 0; −1 before the first."""
        return self._sampler.epoch

    def __iter__(self) -> Iterator[Batch]:
        self._sampler.epoch += 1
        for read in self._loader:
            if isinstance(read, Exception):
                raise type(read)(*read.args)  # which nothing here holds on to: it holds this frame, and the workers
            images, labels = read
            x = images.to(self.device, non_blocking=True)  # uint8 [n, H, W, C]
            yield self.normalise(x), labels.to(self.device, non_blocking=True)

    def close(self) -> None:
        """End the worker processes; the next epoch starts new ones."""
        self._loader = self._start()  # the old one ends its workers when nobody iterates over it

    def seek(self, epoch: int, batches: int = 0) -> None:
        """Go on in an epoch without its first batches, which were used before an interruption."""
        self._sampler.epoch, self._sampler.skip = epoch - 1, batches


@dataclass
class _Reader(TorchDataset["Batch | Exception"]):
    """Reads batches of bytes; returns why one cannot be read, since torch would make a worker's whole traceback of it.

    In an epoch each image has its own random numbers, of its place, or of its part, and of its direction.
    """

    split: Images
    seed: int
    flip: bool
    pad: int
    resized_crop: bool
    size: int
    resize: int

    def __getitem__(self, item: tuple[int, list[int]]) -> Batch | Exception:
        epoch, indices = item
        numbers = self._numbers(epoch, indices)
        try:
            images = self._crops(indices, numbers) if isinstance(self.split, Split) else self._views(indices, numbers)
        except (DataError, MissingPackageError) as error:
            return error
        if self.flip:
            images = torch.where((numbers[:, -1] < 0.5)[:, None, None, None], images.flip(2), images)
        return images.contiguous(), self.split.labels[indices]

    def _numbers(self, epoch: int, indices: list[int]) -> Tensor:
        """Return the random numbers of images, [n, 5] or [n, 3]: each has its own place in the epoch's stream."""
        count, state, rows = 5 if self.resized_crop else 3, stream(self.seed, "augmentation", epoch), list[Tensor]()
        for index in indices:
            state[1] = index * count
            rows.append(uniform(state, (count,)))
        return torch.stack(rows)

    def _crops(self, indices: list[int], numbers: Tensor) -> Tensor:
        """Return crops of arrays, uint8 [n, H, W, C]."""
        assert isinstance(self.split, Split)
        images = self.split.images[indices].permute(0, 2, 3, 1)
        if self.resized_crop:
            return views(images, boxes(numbers[:, :4].T)).round().to(torch.uint8)
        n, height, width, channels = images.shape
        bordered = F.pad(images, (0, 0, *[self.pad] * 4))  # [n, H + 2 pad, W + 2 pad, C]
        tall, wide = bordered.shape[1:3]
        top, left = (numbers[:, :2] * (2 * self.pad + 1)).long().T
        start, step = (torch.arange(n) * tall + top) * wide + left, torch.ones(n, dtype=torch.int64)
        return crops(bordered.reshape(-1, channels), start, step, torch.arange(height) * wide, torch.arange(width))

    def _views(self, indices: list[int], numbers: Tensor) -> Tensor:
        """Return crops of files, uint8 [n, size, size, 3]."""
        assert isinstance(self.split, Files)
        found = []
        for path, own in zip(map(self.split.path, indices), numbers, strict=True):
            if self.resized_crop:
                image = decoding.decode(path)
                box = boxes(own[:4, None], image.width / image.height)[:, 0]
                found.append(decoding.part(image, box.tolist(), self.size))
            else:
                found.append(decoding.centre_view(path, self.resize, self.size))
        return torch.from_numpy(np.stack(found))


@dataclass
class _Sampler:
    """Tells the workers which images of which epoch make the next batch."""

    images: int
    batch: int
    shuffle: bool
    seed: int
    share: Share
    epoch: int = -1
    skip: int = 0

    def __len__(self) -> int:
        return len(self.share.batches(len(batch_sizes(self.images, self.batch))))

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        epoch, skip, order = self.epoch, self.skip, torch.arange(self.images)
        self.skip = 0
        if self.shuffle:
            order = permutation(stream(self.seed, "batches", epoch), self.images)
        parts = order.split(self.batch)
        for index in self.share.batches(len(parts)):
            if index >= skip:
                yield epoch, parts[index][self.share.images(len(parts[index]))].tolist()


def _follow_trainer(worker: int) -> None:
    """Let a worker end with the process that started it, to which alone Ctrl-C is left.

    Torch's workers watch their parent, which with the start method forkserver is another process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_worker)  # as multiprocessing does to what is left when an interpreter exits
    threading.Thread(target=_wait_for_trainer, daemon=True).start()


def _wait_for_trainer() -> None:
    trainer = multiprocessing.parent_process()
    assert trainer is not None
    trainer.join()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _end_worker(number: int, frame: object) -> NoReturn:
    signal.alarm(GRACE)  # which kills a worker that waits for something
    raise KeyboardInterrupt  # at which torch ends a worker, and removes its temporary files
