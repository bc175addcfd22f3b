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
    from subspaces.export.arguments import Point
    from subspaces.export.predicting import Predictions


def export(
    what: "nn.Module | Run | str | os.PathLike[str]",
    path: str | os.PathLike[str],
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
    network: str | None = None,
    data: str | os.PathLike[str] | None = None,
    trust: bool = False,
    progress: "bool | Progress" = True,
) -> Path:
    """Write a network, an ensemble or a whole family as one file for production, with a card; return its path.

    Of images, a program takes float32 [n, C, H, W] in [0, 1] for any n, normalises them inside and returns
    probabilities [n, classes]; an ensemble also returns by how much its members disagree, [n]; a family also takes
    alpha. Of other inputs it takes what the network does.

    Args:
        what: a finished run or its folder; or a network, an `Ensemble` or a `Subspace`.
        path: the file, whose name ends in .safetensors (weights alone), .pt2 (torch.export) or .onnx. Its card lies
            beside it, with .md added to the name.
        point: of a run or a family: "midpoint", "selected" (by `subspaces select`), "family" (alpha is an input), a
            point such as 0.3 or [0.2, 0.3, 0.5], several points, "ensemble" (the vertices, or 0.1 and 0.9), or a
            tensor with a point for each layer, such as torch.tensor(selection.alpha).
        example: a few inputs of a module, as it is to be called: a tensor, such as images [n, C, H, W] from 0 to 1, a
            tuple of tensors, or a dict of them by keyword. Weights alone need none.
        task: what a module returns: by default `Classification()`, logits [n, classes]; "tokens", "pixels", or
            "outputs" for outputs as they are, such as numbers, images or several tensors.
        outputs: what a classifier returns: "logits", "probabilities" (it ends in a softmax) or "log-probabilities". By
            default logits; what looks like probabilities is refused.
        classes: their names, of a module; by default numbers.
        mean, std: what the program of a module of one input normalises with, for each channel.
        statistics: training batches as a module gets them, for batch-norm statistics at the point.
        network: the name of a module as `subspaces.networks.build` takes it, for `subspaces predict` to build it.
        statistics_batches: how many training batches of a run statistics are made of; by default all.
        data: the folder with the data sets of a run.
        trust: also call the network factory (`package.module:factory`) that the folder of a run names.
        progress: True for bars, False for none, or a function of (what, done, total).

    Example:
        >>> ss.export("runs/digits-line-seed0-…", "midpoint.onnx")
        >>> ss.export(family, "pair.pt2", point=[0.1, 0.9], example=images, statistics=loader)
    """
    from subspaces.evaluation.display import bars
    from subspaces.export.exporting import check_target, of_module, write

    own = {"example": example, "task": task, "outputs": outputs, "classes": classes, "mean": mean, "std": std}
    own |= {"statistics": statistics, "network": network}
    of_runs = {"statistics_batches": statistics_batches, "data": data}
    is_module = isinstance(what, nn.Module)
    for option, value in (of_runs if is_module else own).items():
        if value is not None:
            other = "it is for runs; a module takes statistics=" if is_module else "a run brings its own"
            raise ArgumentError(f"{option}={checks.shown(value)}: {other}")
    target = check_target(path)
    weights = target.suffix.lower() == ".safetensors"
    with bars(progress) as shown:
        if isinstance(what, nn.Module):
            return write(of_module(what, point, weights, **own), target, shown)
        from subspaces.experiments.exporting import of_run

        return write(of_run(what, point, weights, statistics_batches, data, trust), target, shown)


def predict(
    model: str | os.PathLike[str],
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    top: int = 1,
    trust: bool = False,
    progress: "bool | Progress" = True,
) -> "Predictions":
    """Predict the classes of images with an exported model.

    Args:
        model: a .pt2, .onnx or .safetensors file of `export`.
        inputs: image files, folders of them at any depth, .npy arrays of the model's size.
        top: how many of the likeliest classes.
        trust: also load a .pt2 file, which runs code of whoever made it, or a network of theirs
            (`package.module:factory`).
        progress: True for bars, False for none, or a function of (what, done, total).

    Example:
        >>> for each in ss.predict("midpoint.onnx", "photos", top=3).predictions:
        ...     print(each.file, each.label, each.probability)
    """
    from subspaces.evaluation.display import bars
    from subspaces.export.predicting import predict_with, read_model

    expected = "an image file, a folder, an array, or several of them"
    paths = [checks.folder("inputs", each) for each in checks.all_of("inputs", inputs, (str, os.PathLike), expected)]
    checks.whole("top", top, 1)
    path = checks.folder("model", model)
    opened = read_model(path, trust)
    with bars(progress) as shown:
        return predict_with(opened, path, paths, top, shown)
