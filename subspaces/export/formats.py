"""The formats: weights or a program, written, read back, and compared with the module that they were made of.

Nothing in a file is a pickle, and none tells where on the exporter's disk the code was.

ONNX files may be anybody's. A graph of operators runs no code, but it can name other files, run for ever, and ask for a
terabyte in 200 bytes. A file is read only if

    tensors     all of its tensors lie in it
    operators   each is one of `OPERATORS`, those of the standard domain that networks are made of. None of them calls
                a graph (no If, Loop or Scan, and functions are refused), so that every node runs at most once, and
                none makes text, whose memory onnxruntime does not count
    memory      what onnxruntime computes fits into `MEMORY` and four times the size of the file
"""

import hashlib
import importlib
import io
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks, storage
from subspaces.core.family import Subspace
from subspaces.errors import MissingPackageError
from subspaces.export import ExportError, ModelError, damaged
from subspaces.export.description import FILE, Metadata
from subspaces.networks.factories import in_words

TOLERANCE = 1e-4
"""By how much an output of the file may differ from the module's, of the largest number in it if that is above 1."""
MEMORY = 2 << 30  # bytes of what is computed for a batch
_NAMES = """
Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Ceil Celu Clip Concat Constant ConstantOfShape Conv
ConvTranspose Cos CumSum DepthToSpace Div Dropout Einsum Elu Equal Erf Exp Expand Flatten Floor GRU Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization
HardSigmoid HardSwish Identity InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less
LessOrEqual Log LogSoftmax LpNormalization MatMul Max MaxPool Mean Min Mish Mod Mul Neg Not Or PRelu Pad Pow RNN
Range Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Relu Reshape Resize Round Selu Shape Sigmoid Sign Sin Size Slice Softmax Softplus Softsign
SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
OPERATORS = frozenset(_NAMES.split())
_ATTRIBUTE = {"name", "type", "doc_string", "f", "i", "s", "t", "floats", "ints"}  # fields: no graph, no text
_GRAPH = {"name", "doc_string", "node", "initializer", "input", "output", "value_info"}
TELEMETRY = "ORT_DISABLE_TELEMETRY"
MARK = b"checksum-of-all-bytes-but-these-"
"""A placeholder for the checksum of an ONNX file, as long as that is."""


def safetensors(export: Any, target: Path) -> None:
    """Write weights, and read them back; those of a family as `ss.save` does."""
    if isinstance(export.network, Subspace):
        storage.save(export.network, target)
    else:
        storage.write_tensors(target, export.network.state_dict(), export.about.flat())
    storage.check(*storage.read_tensors(target))


def pt2(export: Any, target: Path) -> None:
    """Write a program that `torch.export.load` reads."""
    exported, buffer = _traced(export), io.BytesIO()
    with quiet():
        torch.export.save(exported, buffer, extra_files={FILE: json.dumps(export.about.flat())})
        buffer.seek(0)
        _compare(export, torch.export.load(buffer).module())
    storage.write(target, buffer.getvalue())


def onnx(export: Any, target: Path) -> None:
    """Write a program that onnxruntime reads, in one file."""
    import onnx as library

    model = _translated(export, _traced(export))
    library.helper.set_model_props(model, {**export.about.flat(), "checksum": MARK.decode()})
    try:
        content = sealed(model.SerializeToString())
        call = _session(target, content, list(export.about.takes), limited=False)
    except ModelError as error:
        raise ExportError(f"{str(error).removesuffix('use another copy')}use a .pt2 file") from error
    except ValueError as error:  # of protobuf, from 2 GB on
        raise ExportError(f"the network is too large for one ONNX file ({error}): use a .pt2 file") from None
    _compare(export, call)
    storage.write(target, content)


def _translated(export: Any, exported: Any) -> Any:
    """Return a traced program as a description in ONNX, without what tells where the code was."""
    about = export.about
    names = {"input_names": list(about.takes), "output_names": list(about.returns)}
    try:
        with quiet():
            found = torch.onnx.export(exported, dynamo=True, verbose=False, opset_version=18, **names)  # type: ignore[arg-type]
    except Exception as error:  # of what ONNX has no operators for
        raise ExportError(f"torch.onnx cannot write the network ({in_words(error)[:300]}): use a .pt2 file") from error
    model: Any = found.model_proto  # type: ignore[union-attr]
    del model.graph.value_info[:]  # which call n by another name
    for thing in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    for part in (*model.graph.input, *model.graph.output):
        for size in part.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = re.sub(r"\bs\d+\b", "n", size.dim_param)
    return model


def _traced(export: Any) -> Any:
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
            f"torch.export cannot trace the network for any number of examples ({in_words(error)[:300]}): fix it, pass "
            "an example that has another length than its number of examples, or export weights as .safetensors"
        ) from error
    for module in exported.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            for name in ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack"):
                node.meta.pop(name, None)
    exported.example_inputs = None
    return exported


@torch.no_grad()
def _compare(export: Any, call: Callable[..., Any]) -> None:
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
    with warnings.catch_warnings(action="ignore"):
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


# ONNX files of anybody


def require(what: str, *libraries: str) -> None:
    """Import the libraries that something needs, or say which is missing.

    onnxruntime sends telemetry and leaves a temporary file, unless a variable of the environment is set when it is
    first imported; the environment is left as it was.
    """
    before = os.environ.get(TELEMETRY)
    os.environ[TELEMETRY] = "1"
    try:
        for library in libraries:
            importlib.import_module(library)
    except ImportError:
        message = f"{what} needs {library}, which is not installed: pip install 'subspaces[onnx]'"
        raise MissingPackageError(message) from None
    finally:
        os.environ.pop(TELEMETRY)
        if before is not None:
            os.environ[TELEMETRY] = before


def read_onnx(path: Path) -> tuple[Metadata, Callable[..., Sequence[Tensor]]]:
    """Return the metadata of an ONNX file, and a function that runs it."""
    require("reading an ONNX file", "onnx", "onnxruntime")
    content = path.read_bytes()
    found = _parsed(path, content)
    header = {each.key: each.value for each in found.metadata_props}
    about = Metadata.of(header, path)
    mark = header.get("checksum", "").encode()
    if content.count(mark) != 1 or _checksum(content.replace(mark, MARK)) != mark:
        raise damaged(path, "its bytes do not match its checksum")
    if (what := next(_refusals(found, len(content)), None)) is not None:
        raise ModelError(f"{path} holds {what}, which is not read from a file: use a .pt2 export")
    return about, _session(path, content, ["images"])


def _parsed(path: Path, content: bytes) -> Any:
    import onnx

    try:
        return onnx.ModelProto.FromString(content)
    except Exception:  # of protobuf
        raise ModelError(f"{path} is no whole ONNX file: use another copy") from None


def _refusals(model: Any, size: int) -> Iterator[str]:
    """Yield what an ONNX file of `size` bytes holds that is not read."""
    if model.functions or model.training_info:
        yield "functions of its own"
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    for message, known in ((model.graph, _GRAPH), *((each, _ATTRIBUTE) for each in attributes)):
        for entry, _ in message.ListFields():
            if entry.name not in known:
                yield f"{entry.name!r} in {checks.shown(message.name)}"
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
            yield f"the operator {checks.shown(f'{node.domain}:{node.op_type}'.removeprefix(':'))}"
    for tensor in (*model.graph.initializer, *(each.t for each in attributes if each.HasField("t"))):
        if tensor.external_data or tensor.data_location:
            yield f"the tensor {checks.shown(tensor.name)} in another file"
        if tensor.data_type == tensor.STRING or tensor.string_data:
            yield f"the tensor {checks.shown(tensor.name)} of text"
        if len(tensor.dims) > 16 or not 0 <= math.prod(tensor.dims) <= 2 * size:  # two int4 take a byte
            yield f"the tensor {checks.shown(tensor.name)} of shape {checks.shown(list(tensor.dims[:16]))}"


def _session(path: Path, content: bytes, names: Sequence[str], limited: bool = True) -> Callable[..., list[Tensor]]:
    """Return a function that runs an ONNX file, which was looked at, on inputs of these names.

    With `limited` an allocator of its own refuses more memory than `MEMORY` and four times the size of the file.
    """
    import onnxruntime

    options, run = onnxruntime.SessionOptions(), onnxruntime.RunOptions()
    options.log_severity_level = 4
    if limited:
        kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
        place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
        limits = onnxruntime.OrtArenaCfg({"max_mem": MEMORY + 4 * len(content), "arena_extend_strategy": 1})
        onnxruntime.create_and_register_allocator(place, limits)  # for the sessions made from now on that ask
        options.add_session_config_entry("session.use_env_allocators", "1")
        run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    # a file may be one of onnxruntime's own format at the same time, which is not what was looked at
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:  # constants are computed in each run, where the allocator counts, and not while the file is read
        session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
        )
    except Exception as error:  # of its own kinds
        raise ModelError(f"{path} cannot be read by onnxruntime ({in_words(error)[:300]}): use another copy") from None

    def call(*inputs: Tensor) -> list[Tensor]:
        fed = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, fed, run)]

    return call


def sealed(content: bytes) -> bytes:
    """Return the bytes of an ONNX file with their checksum in the place that is marked for it."""
    if content.count(MARK) != 1:
        raise ExportError("the network holds the text that marks the place of a checksum: use a .pt2 file")
    return content.replace(MARK, _checksum(content))


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=len(MARK) // 2).hexdigest().encode()
