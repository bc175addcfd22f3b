"""Which images a recipe is trained on: its data set, and of the user's own images which these are."""

import dataclasses
import os
from collections.abc import Sequence

from subspaces.experiments import data as datasets
from subspaces.experiments.data import Dataset
from subspaces.experiments.data.dataset import Progress
from subspaces.experiments.data.loading import OWN
from subspaces.experiments.training.recipe import Recipe


def identified(recipes: Sequence[Recipe], data: str | os.PathLike[str] | None) -> list[Recipe]:
    """Return the recipes; those of the user's own images name what the folder has, unless they name it already."""
    unknown = [one.dataset == OWN and not one.fingerprint for one in recipes]
    here = datasets.fingerprint_of(data) if any(unknown) else ""
    return [
        dataclasses.replace(one, fingerprint=here) if new else one for one, new in zip(recipes, unknown, strict=True)
    ]


def load_data(recipe: Recipe, data: str | os.PathLike[str] | None, progress: Progress | None = None) -> Dataset:
    """Return the images of a recipe, with its label noise and its held-out images."""
    one = recipe
    asked = {"label_noise": one.label_noise, "validation": one.validation, "seed": one.data_seed}
    own = {"image_size": one.image_size, "fingerprint": one.fingerprint}
    return datasets.load(one.dataset, data, **asked, **own, progress=progress)  # type: ignore[arg-type]


def load_levels(
    recipes: Sequence[Recipe], data: str | os.PathLike[str] | None, progress: Progress | None = None
) -> dict[float, Dataset]:
    """Return the images of recipes that differ in label noise alone, by that; all share them in memory."""
    clean = load_data(dataclasses.replace(recipes[0], label_noise=0.0), data, progress)
    levels = {one.label_noise for one in recipes}
    return {level: datasets.with_label_noise(clean, level, recipes[0].data_seed) for level in levels}
