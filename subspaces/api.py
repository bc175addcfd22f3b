"""The calls of `subspaces` that take a family, a network or the folder of a run, and know every part of the package."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

import subspaces.export  # noqa: F401 (the package has to be imported before the function of its name)
from subspaces.core import checks
from subspaces.core.outputs import Outputs
from subspaces.errors import ArgumentError

if TYPE_CHECKING:
    from subspaces.evaluation.display import Progress
    from subspaces.evaluation.tasks import Task
    from subspaces.experiments.training.runs import Run
    from subspaces.export.description import Point
    from subspaces.export.predicting import Predictions

File = str | os.PathLike[str]


def export(
    what: "nn.Module | Run | File",
    path: File,
    *,
    point: "Point" = "midpoint",
    example: Any = None,
    task: "Task | Literal['tokens', 'pixels', 'outputs'] | None" = None,
    outputs: Outputs | None = None,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    statistics: Iterable[Any] | None = None,
    statistics_batches: int | None = None,
    data: File | None = None,
    trust: bool = False,
    progress: "bool | Progress" = True,
) -> Path:
    """Write a network, an ensemble or a whole family as one file for production, with a card; return its path.

    A program takes what the network does, such as images float32 [n, C, H, W] in [0, 1], for any n, and returns
    probabilities [n, classes]; an ensemble also its members' disagreement [n]. A family also takes alpha.

    Args:
        what: a finished run or its folder; or a network, an `Ensemble` or a `Subspace`.
        path: the file: .safetensors (weights alone), .pt2 (torch.export) or .onnx. Its card is path + ".md".
        point: of a run or a family: "midpoint", "family" (alpha is an input), a point such as 0.3 or [0.2, 0.3, 0.5],
            several points, "ensemble" (the vertices, or 0.1 and 0.9), or a tensor with a point for each layer, such as
            torch.tensor(selection.alpha).
        example: a few inputs of a module, as it is to be called: a tensor, such as images [n, C, H, W] from 0 to 1, a
            tuple of tensors, or a dict of them by keyword. Weights alone need none.
        task: what a module returns: by default logits [n, classes]; "tokens" or "pixels", logits of each; "outputs",
            anything, which is returned as it is: the numbers of a regression, images, several tensors.
        outputs: of a classifier: "logits" (default), "probabilities" (it ends in a softmax) or "log-probabilities".
        classes: their names, of a module; by default numbers.
        mean, std: what the program of a module of one input normalises with, for each channel.
        statistics: training batches as a module gets them, for batch-norm statistics at the point.
        statistics_batches: how many training batches of a run statistics are made of; by default all.
        data: the folder with the data sets of a run.
        trust: also call the network factory (`package.module:factory`) that the folder of a run names.
        progress: True for bars, False for none, or a function of (what, done, total).

    Example:
        >>> path = ss.export(family, "pair.pt2", point=[0.1, 0.9], example=images)
    """
    from subspaces.evaluation.display import bars
    from subspaces.export.exporting import check_target, of_module, write

    own = {"example": example, "task": task, "outputs": outputs, "classes": classes, "mean": mean, "std": std}
    own |= {"statistics": statistics}
    of_runs = {"statistics_batches": statistics_batches, "data": data}
    for option, value in (of_runs if isinstance(what, nn.Module) else own).items():
        if value is not None:
            other = "it is for runs; a module takes statistics=" if option in of_runs else "a run brings its own"
            raise ArgumentError(f"{option}={checks.shown(value)}: {other}")
    target = check_target(path)
    weights = target.suffix.lower() == ".safetensors"
    with bars(progress) as shown:
        if isinstance(what, nn.Module):
            return write(of_module(what, point, weights, **own), target, shown)
        from subspaces.experiments.exporting import of_run

        return write(of_run(what, point, weights, statistics_batches, data, trust), target, shown)


def predict(
    model: File, inputs: File | Iterable[File], *, top: int = 1, trust: bool = False, progress: "bool | Progress" = True
) -> "Predictions":
    """Predict the classes of images with an exported program.

    Args:
        model: an .onnx or .pt2 file of `export`.
        inputs: image files, folders of them at any depth, .npy arrays of the model's size.
        top: how many of the likeliest classes.
        trust: also load a .pt2 file, which runs code of whoever made it.
        progress: True for bars, False for none, or a function of (what, done, total).

    Example:
        >>> for each in ss.predict("midpoint.onnx", "photos", top=3).predictions:
        ...     print(each.file, each.label, each.probability)
    """
    from subspaces.export.predicting import predict_with

    return predict_with(model, inputs, top, trust, progress)
