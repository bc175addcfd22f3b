"""What a recipe asks of its data set, checked before any work: held-out images that there are, and no batch too small.

A batch norm in training needs two values of each channel. A network whose batch norms see whole images takes a batch
of one image, and one that sees a number per channel does not: a single image is sent through the network to see which
it is, and only where a batch, or a group of a batch (`samples`), would have one image.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch

from subspaces.errors import ArgumentError
from subspaces.experiments.data import Dataset, Size, size_of
from subspaces.experiments.data.loading import OWN, check_name_and_root
from subspaces.experiments.training.recipe import Recipe
from subspaces.networks import registry

DATA = ("dataset", "label_noise", "validation", "data_seed", "fingerprint", "image_size")
"""The fields that decide which images a recipe is trained on."""
ONE_VALUE = "Expected more than 1 value per channel"  # how torch's error for a batch norm with one value begins


def check(recipes: Sequence[Recipe], data: str | os.PathLike[str] | None) -> None:
    """Refuse what cannot be trained, as far as it shows before any work: names, dropout, and sizes that are known."""
    for name in {one.dataset for one in recipes}:
        with suppress(FileNotFoundError):  # a finished run needs no data
            check_name_and_root(name, data)
    for network, dropout in {(one.network, one.dropout) for one in recipes}:
        registry.check_name(network)
        if dropout and ":" not in network:
            with torch.device("meta"):  # which takes no memory
                registry.build(network, classes=10, image_shape=(3, 32, 32), dropout=dropout)
    _check_sizes(recipes, data)


def _check_sizes(recipes: Iterable[Recipe], data: str | os.PathLike[str] | None) -> None:
    different = {(*data_of(one), one.batch, one.definition.groups, one.network, one.dropout): one for one in recipes}
    for one in different.values():
        about = {"seed": one.data_seed, "image_size": one.image_size}
        size = size_of(one.dataset, data, count=one.validation > 0, **about)
        if size is not None:
            if one.dataset == OWN:
                _check_network(one, size)
            if one.validation >= size.training:
                raise ArgumentError(
                    f"validation={one.validation}: expected 0 to {size.training - 1}, part of the {size.training} "
                    f"training images of {one.dataset}"
                )
            check_batches(one, size._replace(training=size.training - one.validation))


def data_of(recipe: Recipe) -> tuple[Any, ...]:
    """Return what decides which images a recipe is trained on."""
    return tuple(getattr(recipe, name) for name in DATA)


def _check_network(recipe: Recipe, size: Size) -> None:
    """Refuse a network that does not take images of that size: those of other data sets are known to fit."""
    device = torch.device("cpu" if ":" in recipe.network else "meta")  # which takes no memory
    settings: dict[str, Any] = {"classes": size.classes, "image_shape": size.image_shape, "dropout": recipe.dropout}
    try:
        with torch.random.fork_rng(devices=[]), device, torch.no_grad():
            registry.build(recipe.network, **settings).eval()(torch.zeros(2, *size.image_shape))
    except (ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"network={recipe.network!r}: it does not take the images, {size.image_shape[1]} pixels a side in "
            f"{size.classes} classes: {error}; choose another --image-size or --network"
        ) from None


def check_loaded(recipes: Sequence[Recipe], dataset: Dataset, processes: int = 1) -> None:
    """Refuse batches that cannot be trained on, now that the training images are there.

    Each of several processes has a share of every batch, which must not be empty.
    """
    different = {(one.batch, one.definition.groups, one.network, one.dropout): one for one in recipes}
    for one in different.values():
        check_batches(one, Size(len(dataset.train), dataset.image_shape, len(dataset.classes)), processes)


def check_batches(recipe: Recipe, size: Size, processes: int = 1) -> None:
    """Refuse a batch of one image, or a group of one, for a network that cannot be trained on it."""
    if processes > 1:
        _check_shares(recipe, size, processes)
        return
    if _smallest(size.training, recipe.batch, recipe.definition.groups) > 1 or not _needs_two(recipe, size):
        return
    last = size.training % recipe.batch
    what = f"the last of {size.training} images is a batch of its own" if last == 1 else "batches have one image"
    if recipe.definition.groups > 1:
        groups = f"{recipe.definition.groups} groups (--samples), some of one image"
        what = f"a batch of {last or recipe.batch} is cut into {groups}"
    better = next(_better(size.training, recipe), None)
    remedy = f"choose --batch {better}" if better else "lower --samples, or hold fewer images out (--validation)"
    raise ArgumentError(
        f"batch={recipe.batch}: {what}, and a batch norm of {recipe.network} cannot be trained on one: {remedy}"
    )


def _check_shares(recipe: Recipe, size: Size, processes: int) -> None:
    """Refuse batches of which a process would get no image, or too few for its groups and norms."""
    parts = processes * recipe.definition.groups
    fewest = min(_sizes(size.training, recipe.batch))
    if fewest >= 2 * parts or (fewest >= parts and not _needs_two(recipe, size)):
        return
    groups = f" in {recipe.definition.groups} groups (--samples)" if recipe.definition.groups > 1 else ""
    raise ArgumentError(
        f"batch={recipe.batch}: the smallest batch has {fewest} images for {processes} processes{groups}, and each "
        "needs some of its own, two where it has batch norms: start fewer processes, or choose another --batch"
    )


def _sizes(images: int, batch: int) -> list[int]:
    """Return the different sizes of batches."""
    return [size for size in (min(images, batch), images % batch) if size]


def _smallest(images: int, batch: int, samples: int) -> int:
    """Return the size of the smallest group of images that a network is trained on."""
    return min(size // min(samples, size) for size in _sizes(images, batch))


def _better(images: int, recipe: Recipe) -> Iterator[int]:
    """Yield sizes of batches that would do, the nearest first."""
    for step in range(1, images):
        for batch in (recipe.batch - step, recipe.batch + step):
            if 1 < batch <= images and _smallest(images, batch, recipe.definition.groups) > 1:
                yield batch


def _needs_two(recipe: Recipe, size: Size) -> bool:
    """Say whether the network refuses a single image in train mode; random numbers are left alone."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = registry.build(
            recipe.network, classes=size.classes, image_shape=size.image_shape, dropout=recipe.dropout
        )
        try:
            network.train()(torch.zeros(1, *size.image_shape))
        except Exception as error:  # whatever else is wrong with the network, its training will say
            return str(error).startswith(ONE_VALUE)
    return False
