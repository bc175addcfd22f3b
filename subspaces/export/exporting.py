"""Write a network, an ensemble or a family as one file, with a card: the call behind `ss.export` for modules."""

import html
import json
import platform
import re
from collections.abc import Iterable, Sequence
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
from subspaces.evaluation.tasks import Classification, Regression, Task, task_of, with_outputs
from subspaces.export import FORMATS, ExportError, formats, onnx_files
from subspaces.export.arguments import Chosen, Inputs, Point, choose
from subspaces.export.making import Export
from subspaces.networks.registry import check_name
from subspaces.text import nearest, number, printable
from subspaces.version import __version__


def export_module(
    module: nn.Module,
    path: Any,
    *,
    point: Point,
    format: Any,
    progress: Progress,
    example: Any = None,
    task: Task | str | None = None,
    outputs: Outputs | None = None,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    statistics: Iterable[Any] | None = None,
    name: str | None = None,
    network: str | None = None,
) -> Path:
    """Write a module of the user's own, which stays as it is; see `ss.export` for the arguments."""
    if path is None:
        raise ArgumentError("export got a module without a path: expected the file to write")
    target, chosen_format = check_target(path), check_format(format, path)
    module = distributed.unwrapped(module)
    if any(map(is_lazy, module.parameters())):
        raise ArgumentError("export got a network with lazy parameters: call it once, so that they get their shapes")
    if isinstance(module, torch.jit.ScriptModule):
        raise ArgumentError("export got a ScriptModule: expected the module that it was made of")
    named = () if classes is None else tuple(map(str, checks.several("classes", classes, "a list of names")))
    for label, text in (("name", name), ("network", network)):
        if text is not None and not isinstance(text, str):
            raise ArgumentError(f"{label}={checks.shown(text)}: expected text")
    if network is not None:
        check_name(network)
    if statistics is not None:
        checks.batches("statistics", statistics)
    inner: Any = module.template if isinstance(module, Subspace) else module
    inner = inner.members[0] if isinstance(inner, Ensemble) else inner  # whose inputs are those of the whole
    weights = chosen_format == "safetensors"
    inputs = None if weights and example is None else Inputs.of(inner, example)
    facts: dict[str, Any] = {
        "name": name or "network",
        "network": network or type(inner).__name__,
        "classes": named,
        "image_shape": tuple(inputs.tensors[0].shape[1:]) if inputs and inputs.names == ("images",) else (),
        **_normalisation(inputs, mean=mean, std=std),
        "versions": versions(),
    }
    given = task is not None or outputs is not None
    export = Export(
        module, _choose(module, point), inputs, _task(task, outputs), given, facts, weights, statistics=statistics
    )
    return write(export, target, chosen_format, progress)


def _choose(module: nn.Module, point: Any) -> Chosen:
    if isinstance(module, Subspace):
        return choose(point, module.shape)
    if not (isinstance(point, str) and point == "midpoint"):
        kind = "an ensemble" if isinstance(module, Ensemble) else "a network"
        raise ArgumentError(f"point={checks.shown(point)}: {kind} has no points; expected a Subspace or a run with it")
    if isinstance(module, Ensemble):
        return Chosen("ensemble", f"{len(module.members)} networks")
    return Chosen("network", "the network as it was")


def _task(task: Task | str | None, outputs: Outputs | None) -> Classification | Regression | None:
    """Return the task that a user names, by default a classification of examples; None for outputs as they are."""
    if isinstance(task, str) and task == "outputs":
        if outputs is not None:
            raise ArgumentError(f"outputs={checks.shown(outputs)}: expected it with a classification only")
        return None
    found = with_outputs(task_of(task), outputs)
    if not isinstance(found, (Classification, Regression)):
        raise ArgumentError(
            f"task={checks.shown(task)}: expected Classification(…), Regression(…), or 'outputs' (as they are)"
        )
    return found


def _normalisation(inputs: Inputs | None, **given: Sequence[float] | None) -> dict[str, tuple[float, ...]]:
    """Return mean and std, one number of each for every channel of the example, or none."""
    expected, found = "a list with one number for each channel", dict[str, tuple[float, ...]]()
    for name, value in given.items():
        numbers = checks.several(name, () if value is None else value, expected)
        found[name] = tuple(checks.number(name, each) for each in numbers)
    given_as, first = ", ".join(f"{name}={checks.shown(list(each))}" for name, each in found.items()), None
    if inputs is not None and any(found.values()):
        first = inputs.tensors[0]
        if len(inputs.names) > 1 or first.ndim < 2 or not first.is_floating_point():
            raise ArgumentError(f"{given_as}: expected it for one input of floats; this takes {inputs}")
    count = len(found["mean"]) if first is None else first.shape[1]
    if any(len(numbers) != count for numbers in found.values()) or min(found["std"], default=1) <= 0:
        raise ArgumentError(f"{given_as}: expected one of each for the {count} channels, std above 0, or neither")
    return found


def versions() -> dict[str, str]:
    """Return the versions that a file is exported with."""
    return {"subspaces": __version__, "torch": torch.__version__, "python": platform.python_version()}


def write(export: Export, target: Path, format: str, progress: Progress) -> Path:
    """Write an export and its card, each whole or not at all; the file comes first, so that no card is without one."""
    with torch.random.fork_rng():  # and not seeded anew, so that random outputs fail their check
        export.make(progress)
        {"safetensors": formats.safetensors, "pt2": formats.pt2, "onnx": formats.onnx}[format](export, target)
    files.write(target.with_name(f"{target.name}.md"), _card(export, target.name, format).encode())
    return target


def _card(export: Export, file: str, format: str) -> str:
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
    weights, network, program = format == "safetensors", export.network, export.program
    module = network if weights or program is None else program.network
    return environment.get_template("card.md.jinja").render(
        about=export.about,
        export=export,
        file=file,
        format=format,
        tolerance=formats.TOLERANCE,
        types=sorted({str(each.dtype).removeprefix("torch.") for each in module.parameters()}),
        uncalibrated=weights and isinstance(network, Subspace) and bool(tracked(network.template)),
    )


def _escaped(text: str) -> str:
    """Return text as a line of Markdown that shows it as it is, with nothing of it as Markdown, HTML or a link."""
    line = printable(re.sub(r"\s+", " ", text))
    escaped = re.sub(r"[\\`*_\[\]|~]", r"\\\g<0>", html.escape(line, quote=False))
    return re.sub(r"://|www\.", lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", escaped)


def check_format(format: Any, path: Any) -> str:
    """Return the format that was asked for, by name or by the end of a file's, whose libraries have to be there."""
    ending = "" if path is None else checks.folder("path", path).suffix[1:].lower()
    if format is None and path is not None and ending not in FORMATS:
        raise ArgumentError(f"path={checks.shown(str(path))}: expected a name that ends in .safetensors, .pt2 or .onnx")
    if format is not None and format not in FORMATS:
        raise ArgumentError(f"format={checks.shown(format)}: {nearest(format, FORMATS)}")
    if format is not None and ending in FORMATS and ending != format:
        raise ArgumentError(
            f"format={checks.shown(format)}: the file {str(path)!r} ends in .{ending}; expected the same"
        )
    found = str(format or ending or "pt2")
    if found == "onnx":
        onnx_files.require("exporting to ONNX", "onnx", "onnxscript", "onnxruntime")
    return found


def check_target(path: Any) -> Path:
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
