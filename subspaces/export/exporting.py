"""The call behind `subspaces export`."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from subspaces.core import checks, files, storage
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.outputs import Outputs
from subspaces.errors import ArgumentError
from subspaces.evaluation.display import bars
from subspaces.evaluation.subject import left_alone
from subspaces.evaluation.tasks import Task
from subspaces.experiments.data.dataset import Progress
from subspaces.experiments.evaluating.run_subject import OneRun, run_subjects
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run
from subspaces.export import formats
from subspaces.export.cards import card
from subspaces.export.choosing import Point, choose, selected
from subspaces.export.errors import ExportError
from subspaces.export.making import Made, make, make_own
from subspaces.export.sources import RunSource, own_source
from subspaces.text import nearest

Format = Literal["safetensors", "pt2", "onnx"]
FORMATS: tuple[str, ...] = get_args(Format)


def export(
    what: nn.Module | OneRun,
    path: str | os.PathLike[str] | None = None,
    *,
    point: Point = "midpoint",
    format: Format | None = None,
    example: Any = None,
    task: Task | Literal["tokens", "pixels", "regression", "outputs"] | None = None,
    outputs: Outputs | None = None,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    statistics: Iterable[Any] | None = None,
    statistics_batches: int | None = None,
    name: str | None = None,
    network: str | None = None,
    data: str | os.PathLike[str] | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
) -> Path:
    """Write a network, an ensemble or a whole family as one file for production, with a card; return its path.

    Of images, a program takes float32 [n, C, H, W] in [0, 1] for any n, normalises them inside and returns
    probabilities [n, classes]; an ensemble also returns by how much its members disagree, [n]; a family also takes
    alpha. Of other inputs it takes what the network does, under its names.

    Args:
        what: a finished run or its folder; or a network, an `Ensemble` or a `Subspace`.
        path: the file, by default named by the run and the point, in the current folder. Its card lies beside it, with
            .md added to the name.
        point: of a run or a family: "midpoint", "selected" (by `subspaces select`), "ensemble" (as the method answers),
            "family" (alpha is an input), a point such as 0.3 or [0.2, 0.3, 0.5], or several points.
        format: "safetensors" (weights alone), "pt2" (torch.export) or "onnx"; by default as the path ends, else pt2.
        example: of a module, a few inputs as it is to be called: a tensor, such as images [n, C, H, W] from 0 to 1, a
            tuple of inputs, or a dict of them by keyword. Weights alone need none. A run brings its own, and the next
            eight.
        task: of a module, what it returns: by default `Classification()`, of logits [n, classes]; "tokens", "pixels",
            "regression", a task as `evaluate` takes it, or "outputs" for outputs as they are, such as Q-values,
            images or several tensors.
        outputs: what the network of a classification returns: "logits", "probabilities" (it ends in a softmax or
            sigmoid) or "log-probabilities". By default logits; what looks like probabilities is refused.
        classes: of a module, their names; by default numbers.
        mean, std: of a module of one input, what the program normalises with, for each channel.
        statistics: of a module, training batches as the network gets them, for batch-norm statistics at the point.
        name: of a module, what it is called in its card.
        network: of a module, its name as `subspaces.networks.build` takes it, for `subspaces predict` to build it.
        statistics_batches: of a run, how many training batches statistics are made of; by default all.
        data: of a run, the folder with the data sets.
        trust: of a run that somebody else has trained, also call its network factory (`package.module:factory`).
        progress: True for bars, False for none, or a function of (what, done, total).

    Example:
        >>> ss.export("runs/digits-line-seed0-…", "midpoint.onnx")
        >>> ss.export(family, "pair.pt2", point=[0.1, 0.9], example=images, statistics=loader)
        >>> ss.export(agent, "q.onnx", example=observations, task="outputs")
    """
    if not isinstance(what, (nn.Module, Run, str, os.PathLike)):
        raise ArgumentError(
            f"export got {checks.shown(what)}: expected a network, an Ensemble, a Subspace, a run or its folder"
        )
    target = None if path is None else _target(path)
    chosen = check_format(format, path)
    formats.check_libraries(chosen)
    own = {"example": example, "task": task, "outputs": outputs, "classes": classes, "mean": mean, "std": std}
    own |= {"statistics": statistics, "name": name, "network": network}
    weights = chosen == "safetensors"
    with bars(progress) as shown:
        if isinstance(what, nn.Module):
            if target is None:
                raise ArgumentError("export got a module without a path: expected the file to write")
            for option, value in (("statistics_batches", statistics_batches), ("data", data)):
                if value is not None:
                    raise ArgumentError(f"{option}={checks.shown(value)}: it is for runs; a module takes statistics=")
            return write(_of_module(what, point, {**own, "weights": weights}, shown), target, chosen)
        for option, value in own.items():
            if value is not None:
                raise ArgumentError(f"{option}={checks.shown(value)}: a run brings its own; expected it with a module")
        made, usual = of_run(what, point, statistics_batches, data, trust, shown, weights)
        return write(made, target or _target(f"{usual}.{chosen}"), chosen)


def _of_module(module: nn.Module, point: Point, own: dict[str, Any], progress: Progress) -> Made:
    """Return the program of a network, an ensemble or a family of the user's own, which stays as it is."""
    if any(map(is_lazy, module.parameters())):
        raise ArgumentError("export got a network with lazy parameters: call it once, so that they get their shapes")
    if isinstance(module, torch.jit.ScriptModule):
        raise ArgumentError("export got a ScriptModule: expected the module that it was made of")
    with left_alone([module]):
        source = own_source(module, **own)
        if isinstance(source.module, Subspace):
            return make(source, choose(point, source.terms, source.answers), progress)
        if not (isinstance(point, str) and point == "midpoint"):
            kind = "an ensemble" if isinstance(source.module, Ensemble) else "a network"
            raise ArgumentError(
                f"point={checks.shown(point)}: {kind} has no points; expected a Subspace or a run with it"
            )
        return make_own(source)


def of_run(
    what: OneRun,
    point: Point,
    batches: int | None,
    data: str | os.PathLike[str] | None,
    trust: bool,
    progress: Progress,
    weights: bool = False,
) -> tuple[Made, str]:
    """Return the program of a point of a run, and what its file is usually called."""
    run = what if isinstance(what, Run) else Run.open(checks.folder("export", what))
    if batches is not None:
        checks.whole("statistics_batches", batches, 1, 10**6)
    execution = Execution(device="cpu", precision="float32")
    source = RunSource(run_subjects(data, execution, trust)(run), batches, weights)
    named = isinstance(point, str) and point == "selected"
    chosen = selected(run) if named else choose(point, source.terms, source.answers, source.seed)
    return make(source, chosen, progress), f"{source.name}-{chosen.short}"


def write(made: Made, target: Path, format: str) -> Path:
    """Write an export and its card, each whole or not at all; the file comes first, so that no card is without one."""
    if format == "safetensors":
        _write_tensors(made, target)
        said = card(made, target, format)
    else:
        written = {"pt2": formats.pt2, "onnx": formats.onnx}[format](made)
        files.write(target, written.content)
        said = card(written.made, target, format, written)
    files.write(target.with_name(f"{target.name}.md"), said.encode())
    return target


def _write_tensors(made: Made, target: Path) -> None:
    """Write weights, and read them back."""
    if isinstance(made.network, Subspace):
        notes = {name: value for name, value in made.about.flat().items() if name not in ("format", "version")}
        notes = {f"export.{name}": value for name, value in notes.items()}
        storage.write(made.network, target, shared=True, notes=notes)
        storage.read(target)
        return
    wanted = files.stored(made.state())
    files.write_tensors(target, wanted, made.about.flat())
    header, found = files.read_tensors(target)
    files.check(header, found)


def check_format(format: Any, path: Any) -> str:
    """Return the format that was asked for, by name or by the end of a file's."""
    ending = "" if path is None else checks.folder("path", path).suffix[1:].lower()
    if format is None:
        if path is not None and ending not in FORMATS:
            raise ArgumentError(
                f"path={checks.shown(str(path))}: expected a name that ends in .safetensors, .pt2 or .onnx"
            )
        return ending or "pt2"
    if format not in FORMATS:
        raise ArgumentError(f"format={checks.shown(format)}: {nearest(format, FORMATS)}")
    if ending in FORMATS and ending != format:
        raise ArgumentError(
            f"format={checks.shown(format)}: the file {str(path)!r} ends in .{ending}; expected the same"
        )
    return str(format)


def _target(path: Any) -> Path:
    """Return where to write, which must be possible."""
    target = checks.folder("path", path)
    if target.is_dir():
        raise IsADirectoryError(f"export to {target}, which is a folder: expected the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"export to {target}, but there is no folder {target.parent}: make it first")
    if (target.parent / "config.json").is_file() and (target.parent / "log.jsonl").is_file():
        raise ExportError(
            f"export to {target}, in the folder of a run: expected another folder, runs keep their own files"
        )
    if target.suffix == ".md":
        raise ArgumentError(f"path={checks.shown(str(path))}: expected another ending, .md is that of the card")
    return target
