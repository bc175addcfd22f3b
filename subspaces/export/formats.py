"""The formats: weights or a program, written, read back, and compared with the module that they were made of.

Nothing in a file is a pickle, and none tells where on the exporter's disk the code was.
"""

import io
import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import files, storage
from subspaces.core.family import Subspace
from subspaces.export import ExportError, ModelError, onnx_files
from subspaces.export.making import Export
from subspaces.export.metadata import FILE
from subspaces.export.onnx_files import in_short

TOLERANCE = 1e-4
"""By how much an output of the file may differ from the module's, of the largest number in it if that is above 1."""
OPSET = 18


def safetensors(export: Export, target: Path) -> None:
    """Write weights, and read them back; those of a family as `ss.save` does."""
    if isinstance(export.network, Subspace):
        storage.save(export.network, target)
        storage.read(target)
    else:
        files.write_tensors(target, export.network.state_dict(), export.about.flat())
        files.check(*files.read_tensors(target))


def pt2(export: Export, target: Path) -> None:
    """Write a program that `torch.export.load` reads."""
    exported, buffer = _traced(export), io.BytesIO()
    with quiet():
        torch.export.save(exported, buffer, extra_files={FILE: json.dumps(export.about.flat())})
        buffer.seek(0)
        _compare(export, torch.export.load(buffer).module())
    files.write(target, buffer.getvalue())


def onnx(export: Export, target: Path) -> None:
    """Write a program that onnxruntime reads, in one file."""
    import onnx as library

    model = _translated(export, _traced(export))
    library.helper.set_model_props(model, {**export.about.flat(), "checksum": onnx_files.MARK.decode()})
    try:
        content = onnx_files.sealed(model.SerializeToString())
        call = onnx_files.called(target, content, list(export.about.takes), limited=False)
    except ModelError as error:
        raise ExportError(f"{str(error).removesuffix('use another copy')}use --format pt2") from error
    except ValueError as error:  # of protobuf, from 2 GB on
        raise ExportError(f"the network is too large for one ONNX file ({error}): use --format pt2") from None
    export.unread = onnx_files.refused(onnx_files.parsed(target, content), len(content)) or ""
    _compare(export, call)
    files.write(target, content)


def _translated(export: Export, exported: Any) -> Any:
    """Return a traced program as a description in ONNX, without what tells where the code was."""
    about = export.about
    names = {"input_names": list(about.takes), "output_names": list(about.returns)}
    try:
        with quiet():
            found = torch.onnx.export(exported, dynamo=True, verbose=False, opset_version=OPSET, **names)  # type: ignore[arg-type]
    except Exception as error:  # of what ONNX has no operators for
        raise ExportError(f"torch.onnx cannot write the network ({in_short(error)}): use --format pt2") from error
    model: Any = found.model_proto  # type: ignore[union-attr]
    del model.graph.value_info[:]  # which call n by another name
    for thing in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.functions):
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    for part in (*model.graph.input, *model.graph.output):
        for size in part.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = re.sub(r"\bs\d+\b", "n", size.dim_param)
    return model


def _traced(export: Export) -> Any:
    """Return the program as `torch.export` traces it for any number of examples, without the places of its code."""
    program, inputs = export.program, export.program.inputs
    batch = torch.export.Dim("n", min=1)
    shapes = [None if dim is None else {dim: batch} for dim in inputs.batched]
    shapes += [None] * (len(program.names) - len(shapes))
    several = export.trials[0 if inputs.count > 1 else 1][0]  # one would be taken for a constant
    try:
        with quiet(), torch.no_grad():
            exported = torch.export.export(program, several, dynamic_shapes={"tensors": tuple(shapes)})
    except Exception as error:  # of whatever the network's own code does
        raise ExportError(
            f"torch.export cannot trace the network for any number of examples ({in_short(error)}): fix it, pass an "
            "example that has another length than its number of examples, or export weights with --format safetensors"
        ) from error
    for module in exported.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            for name in ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack"):
                node.meta.pop(name, None)
    exported.example_inputs = None
    return exported


@torch.no_grad()
def _compare(export: Export, call: Callable[..., Any]) -> None:
    """Compare the outputs of a file with the module's own, for all examples and for one; refuse other ones."""
    for inputs, answers in export.trials:
        found = call(*(each.contiguous() for each in inputs))
        outputs = found if isinstance(found, (tuple, list)) else [found]
        for (name, expected), output in zip(answers.items(), outputs, strict=True):
            off = _difference(output, expected)
            if not off <= TOLERANCE:
                raise ExportError(
                    f"the exported program's {name} differ from the network's by {off:.2g}, more than {TOLERANCE:g}: "
                    "nothing was written; use another format, and no network that draws random numbers in eval mode"
                )
            export.difference = max(export.difference, off)


def _difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference, as a part of the largest number if that is above 1."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return math.inf
    if torch.equal(found, expected) or not (expected.is_floating_point() or expected.is_complex()):
        return 0.0 if torch.equal(found, expected) else math.inf
    same = (found == expected) | (found.isnan() & expected.isnan())  # and infinities
    scale = expected.abs().where(expected.isfinite(), 0).max().clamp(min=1)
    return float((found - expected).abs().where(~same, 0).max() / scale)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's own messages about an export, which are not about the user's network."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
