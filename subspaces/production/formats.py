"""The formats: a program as bytes, checked against the module it was made of.

Nothing in the bytes is a pickle, and none of them tells where on the exporter's disk the code was.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces.production import onnx_files
from subspaces.production.errors import ExportError, require
from subspaces.production.making import Made
from subspaces.production.metadata import FILE

TOLERANCE = 1e-4
"""By how much a probability of the file may differ from that of the module: float32, summed in another order."""
OPSET = 18


class Written(NamedTuple):
    """The content of a file, and the largest difference of its outputs from the module's."""

    content: bytes
    difference: float
    note: str = ""


def check_libraries(format: str) -> None:
    """Refuse a format whose libraries are missing, before any work."""
    if format == "onnx":
        require("exporting to ONNX", "onnx", "onnx", "onnxscript", "onnxruntime")


def pt2(made: Made) -> Written:
    """Return a program that `torch.export.load` reads."""
    program = _exported(made)
    buffer = io.BytesIO()
    with quiet():
        torch.export.save(program, buffer, extra_files={FILE: json.dumps(made.about.flat())})
        buffer.seek(0)
        run = torch.export.load(buffer).module()

    def call(*inputs: Tensor) -> Sequence[Tensor]:
        said = run(*inputs)
        return said if isinstance(said, (tuple, list)) else [said]

    return Written(buffer.getvalue(), _checked(made, call))


def onnx(made: Made) -> Written:
    """Return a program that onnxruntime reads, in one file."""
    import onnx as library
    import onnxruntime

    program = _exported(made)
    with quiet():
        found = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=list(made.about.inputs),
            output_names=list(made.about.outputs),
            opset_version=OPSET,
        )
    assert found is not None
    model = found.model_proto
    del model.graph.value_info[:]  # which call n by another name
    for thing in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.functions):
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    for part in (*model.graph.input[:1], *model.graph.output):
        part.type.tensor_type.shape.dim[0].dim_param = "n"
    library.helper.set_model_props(model, {**made.about.flat(), "checksum": onnx_files.MARK.decode()})
    try:
        content = onnx_files.sealed(model.SerializeToString())
    except ValueError as error:  # of protobuf, from 2 GB on
        raise ExportError(f"the network is too large for one ONNX file ({error}): use --format pt2") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def call(*inputs: Tensor) -> list[Tensor]:
        fed = {name: value.numpy() for name, value in zip(made.about.inputs, inputs, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, fed)]

    what = onnx_files.refused(onnx_files.parsed(Path("it"), content), len(content))
    note = "" if what is None else f"`subspaces predict` does not read it: it holds {what}."
    return Written(content, _checked(made, call), note)


def _exported(made: Made) -> Any:
    """Return the traced program, without the example and without what tells where the code was."""
    batch = torch.export.Dim("n", min=1)
    shapes: dict[str, Any] = {"images": {0: batch}, "alpha": None}
    example = [part.expand(2, *part.shape[1:]) if len(part) == 1 else part for part in made.example[:1]]
    inputs = (*example, *made.example[1:])
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(
                made.program, inputs, dynamic_shapes={name: shapes[name] for name in made.about.inputs}
            )
    except Exception as error:  # of whatever the network's own code does
        said = " ".join(str(error).split())[:400] or type(error).__name__
        raise ExportError(
            f"torch.export cannot trace the network ({said}): fix it, or export its weights with --format safetensors"
        ) from error
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for name in ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack"):
                    node.meta.pop(name, None)
    program.example_inputs = None
    return program


@torch.no_grad()
def _checked(made: Made, call: Callable[..., Sequence[Tensor]]) -> float:
    """Return the largest difference from the module's own outputs, for all images and for one; refuse a large one."""
    largest = 0.0
    for count in (len(made.example[0]), 1):
        first = made.example[0][:count].contiguous()
        said = call(first, *made.example[1:])
        for name, found, expected in zip(made.about.outputs, said, made.expected, strict=True):
            wanted = expected[:count]
            off = float((found - wanted).abs().max()) if found.shape == wanted.shape else float("inf")
            if not off <= TOLERANCE:
                raise ExportError(
                    f"the exported program's {name} differ from the network's by {off:.2g}, more than {TOLERANCE:g}: "
                    "nothing was written; use another format"
                )
            largest = max(largest, off)
    return largest


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
