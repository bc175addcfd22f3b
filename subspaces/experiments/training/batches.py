"""The images of a recipe, and its batches: for training, for batch-norm statistics and for evaluation."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from subspaces.core import randomness
from subspaces.errors import ArgumentError
from subspaces.evaluation.display import Progress
from subspaces.experiments import data as datasets
from subspaces.experiments.data import Dataset, Files, Images, ResidentLoader, Share, Split, StreamingLoader
from subspaces.experiments.data.loading import OWN
from subspaces.experiments.data.resident import ALL, RESIZED
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import DATA, Recipe
from subspaces.networks import registry

Batch = tuple[Tensor, Tensor]


def load_data(recipe: Recipe, data: str | os.PathLike[str] | None, progress: Progress | None = None) -> Dataset:
    """Return the images of a recipe, with its label noise and its held-out images."""
    asked: dict[str, Any] = {name: getattr(recipe, name) for name in DATA if name not in ("dataset", "data_seed")}
    return datasets.load(recipe.dataset, data, seed=recipe.data_seed, **asked, progress=progress)


def load_levels(
    recipes: Sequence[Recipe], data: str | os.PathLike[str] | None, progress: Progress | None = None
) -> dict[float, Dataset]:
    """Return the images of recipes that differ in label noise alone, by that; all share them in memory."""
    clean = load_data(dataclasses.replace(recipes[0], label_noise=0.0), data, progress)
    levels = {one.label_noise for one in recipes}
    return {level: datasets.with_label_noise(clean, level, recipes[0].data_seed) for level in levels}


def check_data(recipes: Sequence[Recipe], levels: Mapping[float, Dataset], processes: int = 1) -> None:
    """Refuse networks that do not take the images, and batches that are too small for them."""
    for one in {(one.network, one.dropout): one for one in recipes}.values():
        if one.dataset == OWN or ":" in one.network:
            _check_network(one, levels[one.label_noise])
    different = {(one.batch, one.network, one.dropout, one.definition.groups): one for one in recipes}
    for one in different.values():
        check_batches(one, levels[one.label_noise], processes)


def _check_network(recipe: Recipe, dataset: Dataset) -> None:
    shape, classes = dataset.image_shape, len(dataset.classes)
    device = torch.device("cpu" if ":" in recipe.network else "meta")  # which takes no memory
    try:
        with torch.random.fork_rng(devices=[]), device, torch.no_grad():
            network = registry.build(recipe.network, classes=classes, image_shape=shape, dropout=recipe.dropout)
            network.eval()(torch.zeros(2, *shape))
    except (ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"network={recipe.network!r}: it does not take the images, {shape[1]} pixels a side in {classes} classes: "
            f"{error}; choose another --image-size or --network"
        ) from None


def check_batches(recipe: Recipe, dataset: Dataset, processes: int = 1) -> None:
    """Refuse batches of which a group (`samples`) or a process gets no image, or one where a batch norm needs two."""
    images, groups = len(dataset.train), recipe.definition.groups
    fewest = min(size for size in (min(images, recipe.batch), images % recipe.batch) if size)
    each = fewest // (groups * processes) if processes > 1 else fewest // min(groups, fewest)
    if each > 1 or (each == 1 and not _needs_two(recipe, dataset)):
        return
    parts = [f"{groups} groups (--samples)"] * (groups > 1) + [f"{processes} processes"] * (processes > 1)
    cut = f", cut for {' and '.join(parts)}" if parts else ""
    raise ArgumentError(
        f"batch={recipe.batch}: the smallest batch of {images} images has {fewest}{cut}, and {recipe.network} cannot "
        f"be trained on {each} at a time: choose another --batch, or hold out another number (--validation)"
    )


def _needs_two(recipe: Recipe, dataset: Dataset) -> bool:
    """Say whether a batch norm of the network refuses a single image in train mode."""
    options: dict[str, Any] = {"classes": len(dataset.classes), "image_shape": dataset.image_shape}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = registry.build(recipe.network, dropout=recipe.dropout, **options)
        try:
            network.train()(torch.zeros(1, *dataset.image_shape))
        except ValueError as error:
            return str(error).startswith("Expected more than 1 value per channel")
    return False


class Stream:
    """Batches of a data set that is too large for the device, with the interface of `ResidentLoader`."""

    def __init__(self, loader: StreamingLoader) -> None:
        self.loader = loader
        self.position = torch.zeros((), dtype=torch.int64)  # batches of this epoch that were taken
        self.weight = 1.0
        self._iterator: Iterator[Batch] | None = None

    @property
    def sizes(self) -> list[int]:
        """The sizes of an epoch's batches."""
        return self.loader.sizes

    def start_epoch(self) -> None:
        """Go to the beginning of a new epoch."""
        self._iterator = iter(self.loader)
        self.position.zero_()

    def take(self, size: int) -> Batch:
        """Return the next batch, or this process's share of it; its size is given by the order of the epoch."""
        if self._iterator is None:  # continued within an epoch
            self._iterator = iter(self.loader)
        x, y = next(self._iterator)
        self.position.add_(1)
        self.weight = self.loader.share.weight(size)
        return x, y

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.loader)

    def close(self) -> None:
        """End the processes that read the images; the next epoch starts new ones."""
        self._iterator = None
        self.loader.close()

    def state_dict(self) -> dict[str, Tensor]:
        """Return where the loader is."""
        return {"epoch": torch.tensor(self.loader.epoch), "batches": self.position.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go back to where `state_dict` was called."""
        batches = int(state["batches"])
        within = 0 < batches < len(self.sizes)  # else an epoch begins next, and nothing of it was used
        self.loader.seek(int(state["epoch"]) + 1 - within, batches if within else 0)
        self.position.fill_(batches)
        self._iterator = None


def training_batches(
    recipe: Recipe,
    dataset: Dataset,
    execution: Execution,
    images: ResidentLoader | Stream | None = None,
    share: Share = ALL,
) -> ResidentLoader | Stream:
    """Return the augmented, shuffled training images, in an order fixed by the seed; `share` is this process's part.

    `images` is a loader of another run, whose images are shared where both see the same; labels may differ.
    """
    if isinstance(images, ResidentLoader):
        settings = (recipe.batch, recipe.pad, recipe.flip, recipe.augment == RESIZED)
        if (images.batch, images.pad, images.flip, images.resized_crop) == settings:
            return images.sibling(recipe.seed, dataset.train.labels)
    return _batches(dataset.train, recipe, dataset, execution, recipe.seed, share, augment=True)


def statistics_batches(
    recipe: Recipe, dataset: Dataset, execution: Execution, share: Share = ALL
) -> ResidentLoader | Stream:
    """Return the same in another order, for batch-norm statistics, so that those do not disturb training."""
    return _batches(dataset.train, recipe, dataset, execution, statistics_seed(recipe), share, augment=True)


def statistics_seed(recipe: Recipe) -> int:
    """Return a seed that no training uses."""
    return randomness.number(recipe.seed, "statistics")


def evaluation_batches(
    split: Images, recipe: Recipe, dataset: Dataset, execution: Execution, share: Share = ALL
) -> ResidentLoader | Stream:
    """Return the images of a split as they are, in their order."""
    return _batches(split, recipe, dataset, execution, 0, share, augment=False)


def _batches(
    split: Images, recipe: Recipe, dataset: Dataset, execution: Execution, seed: int, share: Share, augment: bool
) -> ResidentLoader | Stream:
    shared: dict[str, Any] = {
        "batch": recipe.batch if augment else max(recipe.batch, 250),
        "mean": dataset.mean,
        "std": dataset.std,
        "flip": recipe.flip and augment,
        "shuffle": augment,
        "seed": seed,
        "device": execution.device,
        "channels_last": execution.channels_last,
        "share": share,
        "dtype": torch.bfloat16 if execution.precision == "bfloat16" else torch.float32,
    }
    pad, resized = (recipe.pad, recipe.augment == RESIZED) if augment else (0, False)
    if isinstance(split, Files):
        return Stream(StreamingLoader(split, resized_crop=augment, workers=execution.workers, **shared))
    if fits_memory(split, pad, execution):
        return ResidentLoader(split, pad=pad, resized_crop=resized, **shared)
    return Stream(StreamingLoader(split, pad=pad, resized_crop=resized, workers=execution.workers, **shared))


def fits_memory(split: Split, pad: int, execution: Execution) -> bool:
    """Return whether a split is to live on the device: as asked for, or if it takes at most half of the memory."""
    if execution.resident is not None:
        return execution.resident
    if execution.device.startswith("cuda"):
        memory = torch.cuda.get_device_properties(torch.device(execution.device)).total_memory
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    count, channels, height, width = split.images.shape
    return count * channels * (height + 2 * pad) * (width + 2 * pad) <= memory // 2
