"""How a run was trained, as its evaluation tells it: plain data, for tables, figures and pages."""

import json
from collections.abc import Sequence
from typing import Any

from subspaces.evaluation.rows import Training
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training.recipe import Recipe, all_fields


def seconds_of(statistics: dict[str, Any], log: Sequence[dict[str, Any]]) -> float | None:
    """Return the time that the steps of training took, from the speed of each epoch; None where it is not known.

    The images of an epoch are those of the batch-norm statistics, where these are of all training images.
    """
    images = 0 if statistics.get("batches") else int(statistics.get("images") or 0)
    speeds = [float(row.get("images_per_second") or 0) for row in log]
    return sum(images / speed for speed in speeds) if images and speeds and all(speeds) else None


def training_of(recipe: Recipe, *, log: Sequence[dict[str, Any]] = (), seconds: float | None = None) -> Training:
    """Return how a run was trained, as far as tables, figures and pages tell it."""
    settings = recipe.distinguishing()
    metadata = {name: all_fields()[name].metadata for name in settings}
    words = {
        name: each.get("symbol") or name.replace("_", " ") for name, each in metadata.items() if "label" not in each
    }
    order = [list(METHODS).index(recipe.method), *recipe.definition.own().values(), *settings.values()]
    return Training(
        group=json.dumps(settings, default=str),
        label=recipe.definition.label(),
        settings=settings,
        words=words,
        order=order,
        seeds=[recipe.seed],
        data=recipe.data_name,
        fingerprint=recipe.fingerprint or recipe.dataset,
        network=recipe.network,
        label_noise=recipe.label_noise,
        epochs=recipe.epochs,
        vertices=recipe.shape().vertices,
        cost=recipe.training_cost,
        log=list(log),
        seconds=seconds,
        folder="",
        recipe=recipe.to_dict(),
    )
