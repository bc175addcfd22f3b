"""ONNX files of anybody: what is refused before onnxruntime sees it, and how much memory the rest may take.

A graph of ONNX operators runs no code of whoever made it, but it can name other files, run for ever, and ask for a
terabyte in 200 bytes. A file is read only if

    size        it has at most 2 GiB, the limit of the format, and all of its tensors lie in it
    operators   each is one of `OPERATORS`, those of the standard domain that networks are made of. None of them calls
                a graph (no If, Loop or Scan, and functions are refused), so that every node runs at most once, and
                none makes text, whose memory onnxruntime does not count
    memory      what onnxruntime computes fits into `MEMORY` and four times the size of the file
"""

import hashlib
import importlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.errors import MissingPackageError
from subspaces.export import ExportError, ModelError, damaged
from subspaces.export.metadata import Metadata

SIZE = (1 << 31) - 1  # bytes of a file
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
        raise MissingPackageError(
            f"{what} needs {library}, which is not installed: pip install 'subspaces[onnx]'"
        ) from None
    finally:
        os.environ.pop(TELEMETRY)
        if before is not None:
            os.environ[TELEMETRY] = before


def read_onnx(path: Path) -> tuple[Metadata, Callable[..., Sequence[Tensor]]]:
    """Return the metadata of an ONNX file, and a function that runs it."""
    require("reading an ONNX file", "onnx", "onnxruntime")
    with open(path, "rb") as file:
        content = file.read(SIZE + 1)
    if len(content) > SIZE:
        raise ModelError(f"{path} has more than {SIZE:,} bytes, the most of an ONNX file: use another copy")
    found = parsed(path, content)
    header = {each.key: each.value for each in found.metadata_props}
    about = Metadata.of(header, path)
    mark = header.get("checksum", "").encode()
    if content.count(mark) != 1 or _checksum(content.replace(mark, MARK)) != mark:
        raise damaged(path, "its bytes do not match its checksum")
    if (what := refused(found, len(content))) is not None:
        raise ModelError(f"{path} holds {what}, which is not read from a file: use a .safetensors export")
    return about, called(path, content, ["images"])


def parsed(path: Path, content: bytes) -> Any:
    """Return the description in an ONNX file."""
    import onnx

    try:
        return onnx.ModelProto.FromString(content)
    except Exception:  # of protobuf
        raise ModelError(f"{path} is no whole ONNX file: use another copy") from None


def refused(model: Any, size: int) -> str | None:
    """Return what an ONNX file of `size` bytes holds that is not read; None if it may be."""
    return next(_refusals(model, size), None)


def _refusals(model: Any, size: int) -> Iterator[str]:
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


def called(path: Path, content: bytes, names: Sequence[str], limited: bool = True) -> Callable[..., list[Tensor]]:
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
        raise ModelError(f"{path} cannot be read by onnxruntime ({in_short(error)}): use another copy") from None

    def call(*inputs: Tensor) -> list[Tensor]:
        fed = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        try:
            return [torch.from_numpy(each) for each in session.run(None, fed, run)]
        except Exception as error:  # of its own kinds
            raise ModelError(f"{path} cannot be run by onnxruntime ({in_short(error)}): use another copy") from None

    return call


def in_short(error: Exception) -> str:
    """Return what an exception says, on one line and cut where it is long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:100]} … {text[-200:]}"


def sealed(content: bytes) -> bytes:
    """Return the bytes of an ONNX file with their checksum in the place that is marked for it."""
    if content.count(MARK) != 1:
        raise ExportError("the network holds the text that marks the place of a checksum: use --format pt2")
    return content.replace(MARK, _checksum(content))


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=len(MARK) // 2).hexdigest().encode()
