"""How a run was trained, as its evaluation tells it: plain data, for tables, figures and pages."""

import dataclasses
import json
from typing import Any

from subspaces.evaluation.rows import Training
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training.recipe import Recipe, all_fields
from subspaces.experiments.training.runs import Run


def training_of_run(run: Run, statistics: dict[str, Any]) -> Training:
    """Return how a run was trained, with its log, its starts and the time that its steps took.

    That comes from the speed of each epoch, whose images are those of the `statistics`, where these are of all training
    images; None where it is not known.
    """
    log = run.log()
    images = 0 if statistics.get("batches") else int(statistics.get("images") or 0)
    speeds = [float(row.get("images_per_second") or 0) for row in log]
    seconds = sum(images / speed for speed in speeds) if images and speeds and all(speeds) else None
    made = training_of(run.recipe)
    return dataclasses.replace(made, log=log, seconds=seconds, folder=str(run.folder), starts=run.starts())


def training_of(recipe: Recipe) -> Training:
    """Return how a recipe is trained, as far as tables, figures and pages tell it."""
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
        log=[],
        seconds=None,
        folder="",
        recipe=recipe.to_dict(),
    )
