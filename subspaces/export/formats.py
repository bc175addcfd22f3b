"""The formats: a program as bytes, checked against the module it was made of.

Nothing in the bytes is a pickle, and none of them tells where on the exporter's disk the code was.
"""

import io
import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces.export import onnx_files
from subspaces.export.errors import ExportError, require
from subspaces.export.making import Made, Trial
from subspaces.export.metadata import FILE

TOLERANCE = 1e-4
"""By how much an output of the file may differ from the module's, of the largest number in it if that is above 1."""
OPSET = 18
SEED = 20_240_607


class Written(NamedTuple):
    """What was written, the content of the file, and the largest difference of its outputs from the module's."""

    made: Made
    content: bytes
    difference: float
    note: str = ""


def check_libraries(format: str) -> None:
    """Refuse a format whose libraries are missing, before any work."""
    if format == "onnx":
        require("exporting to ONNX", "onnx", "onnx", "onnxscript", "onnxruntime")


def pt2(made: Made) -> Written:
    """Return a program that `torch.export.load` reads."""
    made, program = _exported(made)
    buffer = io.BytesIO()
    with quiet():
        torch.export.save(program, buffer, extra_files={FILE: json.dumps(made.about.flat())})
        buffer.seek(0)
        run = torch.export.load(buffer).module()

    def call(*inputs: Tensor) -> Sequence[Tensor]:
        args, kwargs = _arguments(made, inputs)
        said = run(*args, **kwargs)
        return said if isinstance(said, (tuple, list)) else [said]

    return Written(made, buffer.getvalue(), _checked(made, call))


def onnx(made: Made) -> Written:
    """Return a program that onnxruntime reads, in one file."""
    import onnx as library
    import onnxruntime

    made, program = _exported(made)
    model = _translated(made, program)
    library.helper.set_model_props(model, {**made.about.flat(), "checksum": onnx_files.MARK.decode()})
    try:
        content = onnx_files.sealed(model.SerializeToString())
    except ValueError as error:  # of protobuf, from 2 GB on
        raise ExportError(f"the network is too large for one ONNX file ({error}): use --format pt2") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of its own kinds
        raise ExportError(f"onnxruntime does not run the network ({_said(error)}): use --format pt2") from error

    def call(*inputs: Tensor) -> list[Tensor]:
        fed = {name: value.numpy() for name, value in zip(made.about.takes, inputs, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, fed)]

    what = onnx_files.refused(onnx_files.parsed(Path("it"), content), len(content))
    note = "" if what is None else f"`subspaces predict` does not read it: it holds {what}."
    return Written(made, content, _checked(made, call), note)


def _translated(made: Made, program: Any) -> Any:
    """Return a traced program as a description in ONNX, without what tells where the code was."""
    try:
        with quiet():
            found = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=list(made.about.takes),
                output_names=list(made.about.returns),
                opset_version=OPSET,
            )
    except Exception as error:  # of what ONNX has no operators for
        raise ExportError(f"torch.onnx cannot write the network ({_said(error)}): use --format pt2") from error
    assert found is not None
    model = found.model_proto
    del model.graph.value_info[:]  # which call n by another name
    for thing in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.functions):
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    for part in (*model.graph.input, *model.graph.output):
        for size in part.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = re.sub(r"\bs\d+\b", "n", size.dim_param)
    return model


def _exported(made: Made) -> tuple[Made, Any]:
    """Return the traced program, without the example and without what tells where the code was.

    Where it cannot be traced for any number of examples, it is for as many as the example has.
    """
    assert made.program is not None
    error = None
    if not made.fixed:
        try:
            return made, _traced(made, torch.export.Dim("n", min=1))
        except Exception as caught:  # of whatever the network's own code does
            error = caught
    try:
        program = _traced(made, None)
    except Exception as again:
        raise ExportError(
            f"torch.export cannot trace the network ({_said(again)}): fix it, or export its weights with --format "
            "safetensors"
        ) from again
    return (made if error is None else made.with_fixed_batch(f"torch.export: {_said(error)[:200]}")), program


def _traced(made: Made, batch: Any) -> Any:
    """Return the program for any number of examples, or with `batch=None` for that of the example."""
    assert made.program is not None
    inputs = made.program.inputs
    shapes: dict[str, Any] = dict.fromkeys(made.program.names)
    if batch is not None:
        pairs = zip(inputs.names, inputs.batched, strict=True)
        shapes |= {name: None if dim is None else {dim: batch} for name, dim in pairs}
    several = made.trials[0 if batch is None or inputs.count > 1 else -1]  # one would be taken for a constant
    args, kwargs = _arguments(made, several.inputs)
    with quiet(), torch.no_grad():
        program = torch.export.export(made.program, args, kwargs, dynamic_shapes=shapes)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for name in ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack"):
                    node.meta.pop(name, None)
    program.example_inputs = None
    return program


def _arguments(made: Made, inputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return inputs as the program is called with them: by position, or by name where the example was a dict."""
    assert made.program is not None
    named = made.program.inputs.keyword
    return ((), dict(zip(made.program.names, inputs, strict=True))) if named else (tuple(inputs), {})


@torch.no_grad()
def _checked(made: Made, call: Callable[..., Sequence[Tensor]]) -> float:
    """Return the largest difference from the module's own outputs, for all examples and one; refuse a large one."""
    largest = 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)  # random outputs are other ones
        for trial in made.trials:
            said = call(*(each.contiguous() for each in trial.inputs))
            for (name, wanted), found in zip(trial.expected.items(), said, strict=True):
                off = _difference(found, wanted)
                if not off <= TOLERANCE:
                    raise ExportError(
                        f"the exported program's {name} differ from the network's by {off:.2g}, more than "
                        f"{TOLERANCE:g}: nothing was written; {_advice(made, trial, name)}"
                    )
                largest = max(largest, off)
    return largest


def _difference(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, as a part of the largest number if that is above 1."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return math.inf
    if not found.is_floating_point() and not found.is_complex():
        return 0.0 if torch.equal(found, wanted) else math.inf
    if not wanted.numel():
        return 0.0
    same = (found == wanted) | (found.isnan() & wanted.isnan())  # and infinities
    finite = wanted.abs().where(wanted.isfinite(), 0.0)
    return float((found - wanted).abs().where(~same, 0.0).max() / finite.max().clamp(min=1))


def _advice(made: Made, trial: Trial, name: str) -> str:
    """Return what to do about a program that computes something else."""
    assert made.program is not None
    again = made.program.answered(*trial.inputs)[name]
    if _difference(again, trial.expected[name]) > TOLERANCE:
        return "the network itself draws random numbers in eval mode, which a program cannot: pass them as an input"
    return "use another format"


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what torch says of an export, which is not about the user's network."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
