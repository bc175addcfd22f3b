"""Write a network, an ensemble or a family as one file, with a card: the functions behind `ss.export`."""

import html
import json
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from subspaces.core import checks, distributed, files
from subspaces.core.batchnorm import tracked
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.outputs import Outputs
from subspaces.core.selection.selection import shown
from subspaces.errors import ArgumentError
from subspaces.evaluation.display import Progress
from subspaces.evaluation.tasks import Classification, Task, task_of
from subspaces.export import FORMATS, ExportError, formats, onnx_files
from subspaces.export.arguments import Chosen, Inputs, Point, choose
from subspaces.export.making import Export
from subspaces.networks.registry import check_name
from subspaces.text import number, printable
from subspaces.version import __version__


def of_module(
    module: nn.Module,
    point: Point,
    weights: bool,
    *,
    example: Any = None,
    task: Task | str | None = None,
    outputs: Outputs | None = None,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    statistics: Iterable[Any] | None = None,
    network: str | None = None,
) -> Export:
    """Return a module of the user's own as an export that is still to be made; see `ss.export` for the arguments."""
    module = distributed.unwrapped(module)
    if any(map(is_lazy, module.parameters())):
        raise ArgumentError("export got a network with lazy parameters: call it once, so that they get their shapes")
    if isinstance(module, torch.jit.ScriptModule):
        raise ArgumentError("export got a ScriptModule: expected the module that it was made of")
    if network is not None:
        check_name(network)
    if statistics is not None:
        checks.batches("statistics", statistics)
    inner: Any = module.template if isinstance(module, Subspace) else module
    inner = inner.members[0] if isinstance(inner, Ensemble) else inner  # whose inputs are those of the whole
    inputs = None if weights and example is None else Inputs.of(inner, example)
    facts: dict[str, Any] = {
        "name": "",
        "network": network or type(inner).__name__,
        "classes": () if classes is None else tuple(map(str, checks.several("classes", classes, "a list of names"))),
        "image_shape": tuple(inputs.tensors[0].shape[1:]) if inputs and inputs.names == ("images",) else (),
        **_normalisation(inputs, mean=mean, std=std),
        "versions": versions(),
    }
    given = task is not None or outputs is not None
    return Export(module, _choose(module, point), inputs, _task(task, outputs), given, facts, weights, statistics)


def _choose(module: nn.Module, point: Any) -> Chosen:
    if isinstance(module, Subspace):
        return choose(point, module.shape)
    if not (isinstance(point, str) and point == "midpoint"):
        kind = "an ensemble" if isinstance(module, Ensemble) else "a network"
        raise ArgumentError(f"point={checks.shown(point)}: {kind} has no points; expected a Subspace or a run with it")
    if isinstance(module, Ensemble):
        return Chosen("ensemble", f"{len(module.members)} networks")
    return Chosen("network", "the network as it was")


def _task(task: Task | str | None, outputs: Outputs | None) -> Classification | None:
    """Return the task that a user names, by default a classification of examples; None for outputs as they are."""
    if isinstance(task, str) and task == "outputs":
        if outputs is not None:
            raise ArgumentError(f"outputs={checks.shown(outputs)}: expected it with a classification only")
        return None
    found = task_of(task)
    if not isinstance(found, Classification):
        raise ArgumentError(
            f"task={checks.shown(task)}: expected a classification, or 'outputs' for outputs as they are"
        )
    return replace(found, outputs=outputs or found.outputs)


def _normalisation(inputs: Inputs | None, **given: Sequence[float] | None) -> dict[str, tuple[float, ...]]:
    """Return mean and std, one number of each for every channel of the example, or none."""
    found = {
        name: tuple(
            checks.number(name, each)
            for each in checks.several(name, () if value is None else value, "a list with one number for each channel")
        )
        for name, value in given.items()
    }
    mean, std = found.values()
    what, count = f"mean={list(mean)}, std={list(std)}", len(mean)
    if inputs is not None and (mean or std):
        first = inputs.tensors[0]
        if len(inputs.names) > 1 or first.ndim < 2 or not first.is_floating_point():
            raise ArgumentError(f"{what}: expected it for one input of floats; this takes {inputs}")
        count = first.shape[1]
    if ((mean or std) and not len(mean) == len(std) == count) or min(std, default=1) <= 0:
        raise ArgumentError(f"{what}: expected one of each for the {count} channels, std above 0, or neither")
    return found


def versions() -> dict[str, str]:
    """Return the versions that a file is exported with."""
    return {"subspaces": __version__, "torch": torch.__version__, "python": platform.python_version()}


def write(export: Export, target: Path, progress: Progress) -> Path:
    """Write an export and its card, each whole or not at all; the file comes first, so that no card is without one."""
    with torch.random.fork_rng():  # and not seeded anew, so that random outputs fail their check
        export.make(progress)
        writers = {".safetensors": formats.safetensors, ".pt2": formats.pt2, ".onnx": formats.onnx}
        writers[target.suffix.lower()](export, target)
    files.write(target.with_name(f"{target.name}.md"), _card(export, target).encode())
    return target


def _card(export: Export, target: Path) -> str:
    """Return the card of an export, from the template `card.md.jinja`.

    Names come from files and folders of anybody, so whatever the template prints is escaped: neither Markdown nor HTML
    has a meaning in it. What is code, or was escaped before, is `Markup`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else _escaped(str(value)),
    )
    environment.filters |= {
        "alpha": shown,
        "thousands": lambda value: f"{value:,}",
        "quoted": lambda text: Markup(printable(json.dumps(text, ensure_ascii=False))),
        "printable": lambda text: Markup(printable(text)),
        "word": number,
    }
    module = export.network if export.weights else export.program.network
    return environment.get_template("card.md.jinja").render(
        about=export.about,
        export=export,
        file=target.name,
        format=target.suffix[1:].lower(),
        tolerance=formats.TOLERANCE,
        types=sorted({str(each.dtype).removeprefix("torch.") for each in module.parameters()}),
        uncalibrated=export.weights and isinstance(module, Subspace) and bool(tracked(module.template)),
    )


def _escaped(text: str) -> str:
    """Return text as a line of Markdown that shows it as it is, with nothing of it as Markdown, HTML or a link."""
    line = printable(re.sub(r"\s+", " ", text))
    escaped = re.sub(r"[\\`*_\[\]|~]", r"\\\g<0>", html.escape(line, quote=False))
    return re.sub(r"://|www\.", lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", escaped)


def check_target(path: Any) -> Path:
    """Return where to write, which must be possible; the end of the name is the format."""
    target = checks.folder("path", path)
    if (ending := target.suffix[1:].lower()) not in FORMATS:
        raise ArgumentError(f"path={str(path)!r}: expected a name that ends in .safetensors, .pt2 or .onnx")
    if target.is_dir():
        raise IsADirectoryError(f"export to {target}, which is a folder: expected the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"export to {target}, but there is no folder {target.parent}: make it first")
    if (target.parent / "config.json").is_file() and (target.parent / "log.jsonl").is_file():
        raise ExportError(f"export to {target}, in the folder of a run, which keeps its own files: expected another")
    if ending == "onnx":
        onnx_files.require("exporting to ONNX", "onnx", "onnxscript", "onnxruntime")
    return target
