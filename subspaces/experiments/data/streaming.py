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
from typing import Any, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from subspaces.core.randomness import permutation, stream, uniform
from subspaces.errors import ArgumentError
from subspaces.experiments.data import views
from subspaces.experiments.data.dataset import DataError, Files, Images, Split
from subspaces.experiments.data.resident import Batch, batch_sizes
from subspaces.experiments.data.shares import ALL, Share
from subspaces.images import decoding
from subspaces.images.pixels import Normalise

GRACE = 5  # seconds in which a worker that is told to end does


class StreamingLoader:
    """Shuffled, cropped, flipped and normalised batches (x, y) of image files or mapped arrays.

    It iterates like `ResidentLoader`. Of files, a training view is a random crop of 8–100 % of the area
    scaled to `size`; without `resized_crop`, the shorter side is scaled to `resize` and the centre taken.
    Of arrays, crops and flips are those of `ResidentLoader`.

    Args:
        split: the images.
        batch: images in a batch; the last one of an epoch may be smaller.
        mean, std: the data set's constants, per channel.
        pad: for arrays, the width of the black border for random crops.
        flip: mirror at random.
        resized_crop: random crops that are scaled; of arrays in place of `pad`.
        shuffle: draw a new order each epoch.
        seed: of order, crops and flips.
        device, channels_last, dtype: of the batches.
        workers: processes that read ahead; 0 reads in this one, None takes one per CPU core, 16 at most.
        size, resize: for files, the side of a view and the scale of a centred one.
        share: which part of the batches this process takes, of several that train together.
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
        _check(split, batch, pad, resized_crop, size, resize)
        self.batch, self.device = batch, torch.device(device)
        self.normalise = Normalise(mean, std, self.device, channels_last, dtype)
        self.share = share
        self._sampler = _Sampler(len(split), batch, shuffle, seed, share)
        workers = min(os.cpu_count() or 1, 16) if workers is None else workers
        reader = (
            _FileReader(split, seed, flip, resized_crop, size, resize)
            if isinstance(split, Files)
            else _ArrayReader(split, seed, flip, pad, resized_crop)
        )
        self._start = functools.partial(
            DataLoader[Any],
            reader,
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

    def start_epoch(self) -> None:
        """Go to the beginning of the next epoch."""
        self._sampler.epoch += 1

    def __iter__(self) -> Iterator[Batch]:
        self.start_epoch()
        for read in self._loader:
            if isinstance(read, Exception):
                raise type(read)(*read.args)  # which nothing here holds on to: it holds this frame, and the workers
            images, labels = read
            x = images.to(self.device, non_blocking=True)  # uint8 [n, H, W, C]
            yield self.normalise(x), labels.to(self.device, non_blocking=True)

    def close(self) -> None:
        """End the worker processes; the next epoch starts new ones."""
        self._loader = self._start()  # the old one ends its workers when nobody iterates over it

    def state_dict(self) -> dict[str, int]:
        """Return where the loader is: a loader that loads it goes on with the next epoch."""
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the epoch in which `state_dict` was called."""
        self._sampler.epoch = int(state["epoch"])

    def skip(self, batches: int) -> None:
        """Leave out the first batches of the next epoch, which were used before an interruption."""
        self._sampler.skip = batches


def _check(split: Images, batch: int, pad: int, resized_crop: bool, size: int, resize: int) -> None:
    """Refuse arguments that do not fit the images or each other."""
    if batch < 1 or pad < 0 or not len(split):
        raise ArgumentError(f"{len(split)} images, batch={batch}, pad={pad}: expected at least 1, 1 and 0")
    if isinstance(split, Files) and pad:
        raise ArgumentError(f"pad={pad}: image files have no common size to pad; expected resized_crop=True or none")
    if pad and resized_crop:
        raise ArgumentError(f"pad={pad}, resized_crop=True: expected one of the two ways to crop")
    if size > resize:
        raise ArgumentError(f"size={size}, resize={resize}: expected a centred view that fits into the scaled image")


def _follow_trainer(worker: int) -> None:
    """Let a worker end with the process that started it, to which alone Ctrl-C is left.

    Torch's workers watch their parent, which with the start method forkserver is another process. In either case they
    end as usual, so that they remove their temporary files.
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
    raise KeyboardInterrupt  # at which torch ends a worker


class _Sampler:
    """Tells the workers which images of which epoch make the next batch."""

    def __init__(self, images: int, batch: int, shuffle: bool, seed: int, share: Share) -> None:
        self.images, self.batch, self.shuffle, self.seed = images, batch, shuffle, seed
        self.share = share
        self.epoch = -1
        self.skip = 0

    def __len__(self) -> int:
        return len(self.share.batches(len(batch_sizes(self.images, self.batch))))

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        epoch, order = self.epoch, torch.arange(self.images)
        if self.shuffle:
            order = permutation(stream(self.seed, "batches", epoch), self.images)
        parts, skip = order.split(self.batch), self.skip
        self.skip = 0
        for index in self.share.batches(len(parts)):
            if index >= skip:
                yield epoch, parts[index][self.share.images(len(parts[index]))].tolist()


class _FileReader(TorchDataset["Batch | Exception"]):
    """Reads batches; returns why one cannot be read, since torch would make a worker's whole traceback of it."""

    def __init__(self, files: Files, seed: int, flip: bool, resized_crop: bool, size: int, resize: int) -> None:
        self.files, self.seed, self.flip = files, seed, flip
        self.resized_crop, self.size, self.resize = resized_crop, size, resize

    def __getitem__(self, item: tuple[int, list[int]]) -> Batch | Exception:
        epoch, indices = item
        images = np.empty((len(indices), self.size, self.size, 3), np.uint8)
        for place, index in enumerate(indices):
            try:
                images[place] = self._view(epoch, index)
            except FileNotFoundError:
                path = self.files.path(index)
                return DataError(f"{path}: there is no such file any more: put it back, or get the data set again")
            except (DataError, OSError, ImportError) as error:
                return error
        return torch.from_numpy(images), self.files.labels[indices]

    def _view(self, epoch: int, index: int) -> decoding.Pixels:
        image = decoding.decode(self.files.path(index))
        numbers = self._numbers(epoch, index) if self.resized_crop or self.flip else []
        if self.resized_crop:
            return decoding.random_view(image, numbers, self.size, self.flip)
        pixels = decoding.centre_view(image, self.resize, self.size)
        return pixels[:, ::-1] if self.flip and numbers[-1] < 0.5 else pixels

    def _numbers(self, epoch: int, index: int) -> list[float]:
        """Return the random numbers of one image: its place in the epoch's stream."""
        state = stream(self.seed, "augmentation", epoch)
        state[1] = index * decoding.NUMBERS
        numbers: list[float] = uniform(state, (decoding.NUMBERS,)).tolist()
        return numbers


class _ArrayReader(TorchDataset[Batch]):
    def __init__(self, split: Split, seed: int, flip: bool, pad: int, resized_crop: bool) -> None:
        self.split, self.seed, self.flip, self.pad, self.resized_crop = split, seed, flip, pad, resized_crop
        self._drawn = -2, torch.empty(0)

    def __getitem__(self, item: tuple[int, list[int]]) -> Batch:
        epoch, indices = item
        _, _, height, width = self.split.images.shape
        images = self.split.images[indices].permute(0, 2, 3, 1)
        if self.resized_crop:
            drawn = self._numbers(epoch)[indices].T  # [5, n]
            boxes = views.boxes(drawn[:4])
            images = views.views(images, views.mirrored(boxes, drawn[4] < 0.5) if self.flip else boxes)
            images = images.round().to(torch.uint8)  # a batch travels as bytes
        elif self.pad or self.flip:
            pad, drawn = self.pad, self._numbers(epoch)[indices]
            top, left = (drawn[:, :2] * (2 * pad + 1)).long().unbind(1)
            mirrored = (drawn[:, 2] < 0.5).long() if self.flip else torch.zeros_like(top)
            rows = top[:, None] + torch.arange(height)
            columns = (left + mirrored * (width - 1))[:, None] + (1 - 2 * mirrored)[:, None] * torch.arange(width)
            bordered = F.pad(images, (0, 0, pad, pad, pad, pad))
            images = bordered[torch.arange(len(indices))[:, None, None], rows[:, :, None], columns[:, None, :]]
        return images.contiguous(), self.split.labels[indices]

    def _numbers(self, epoch: int) -> Tensor:
        """Return the random numbers of all images in an epoch, [n, 3], or [n, 5] for views."""
        if self._drawn[0] != epoch:
            state = stream(self.seed, "augmentation", epoch)
            self._drawn = epoch, uniform(state, (len(self.split), 5 if self.resized_crop else 3))
        return self._drawn[1]
