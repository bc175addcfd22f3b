"""Models of anybody: a .pt2 file is not opened without trust, and of an ONNX file all is checked before it is run."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import CliRunner
from onnx import TensorProto, helper, numpy_helper
from production_cases import refused
from safetensors import safe_open

import subspaces as ss
from subspaces.cli import main as app
from subspaces.export import ModelError, formats
from subspaces.export.description import Metadata

Files = Callable[[str], Path]
MODEL, METADATA = "archive/models/model.json", "archive/extra/metadata.json"


# Programs of torch, which run what they like


def repacked(path: Path, to: Path, member: str, change: Callable[[bytes], bytes]) -> Path:
    """Write a .pt2 file anew with one member changed."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(to, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            target.writestr(info.filename, change(content) if info.filename == member else content)
    return to


def test_a_program_is_not_opened_without_trust(exported: Files, image: Path, tmp_path: Path) -> None:
    """It names an input by code that makes a file, which torch.fx writes into the source of a function."""
    marker = tmp_path / "marker"
    code = json.dumps(f"tensors_0=open({str(marker)!r}, 'w').close()").encode()
    path = repacked(
        exported("midpoint.pt2"), tmp_path / "evil.pt2", MODEL, lambda content: content.replace(b'"tensors_0"', code)
    )
    ended = CliRunner().invoke(app, ["predict", str(path), str(image), "--quiet"], prog_name="subspaces")
    assert ended.exit_code == 1
    assert ended.stderr == (
        f"error: {path} is a .pt2 file, which runs code of whoever made it when it is read: pass --trust (trust=True) "
        "if you trust them, or use an .onnx export, which needs no trust\n"
    )
    for suffix, said in (("bin", "is no model"), ("onnx", "no whole ONNX file"), ("safetensors", "weights alone")):
        refused(shutil.copy(path, tmp_path / f"evil.{suffix}"), image, said, trust=True)
    for trust in (False, 1, "yes"):
        refused(path, image, "pass --trust", trust=trust)
    assert not marker.exists()
    with pytest.raises(ModelError, match="cannot be r"):
        ss.predict(path, image, trust=True, progress=False)
    assert marker.exists()  # it could have run before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": 3}, "its metadata: TypeError"),
        ({"image_shape": "[8, 8]"}, "its metadata"),
        ({"kind": "ensemble"}, "expected [(1, 10), (1,)]"),
    ],
)
def test_a_program_that_is_not_what_its_metadata_says(
    changes: dict[str, Any], said: str, exported: Files, image: Path, tmp_path: Path
) -> None:
    change = lambda content: json.dumps({**json.loads(content), **changes}).encode()  # noqa: E731
    refused(repacked(exported("midpoint.pt2"), tmp_path / "odd.pt2", METADATA, change), image, said, trust=True)


# Damage


@pytest.mark.parametrize(("name", "weights"), [("midpoint.pt2", "midpoint"), ("pair.onnx", "pair")])
def test_a_changed_byte_among_the_weights_is_noticed(
    name: str, weights: str, exported: Files, image: Path, tmp_path: Path
) -> None:
    with safe_open(exported(f"{weights}.safetensors"), "pt") as file:
        weight = file.get_tensor("members.0.head.weight" if weights == "pair" else "head.weight")
    content, path = bytearray(exported(name).read_bytes()), tmp_path / name
    content[content.index(weight.numpy().tobytes())] ^= 1
    path.write_bytes(content)
    refused(path, image, "damaged", trust=True)


@pytest.mark.parametrize("name", ["family.onnx", "midpoint.pt2"])
def test_any_damage_is_an_error_of_the_file(name: str, exported: Files, image: Path, tmp_path: Path) -> None:
    content, random, path = exported(name).read_bytes(), np.random.default_rng(0), tmp_path / name
    odd = [content[: len(content) // 2], content[:100], b"", b"PK\x03\x04", b"\0" * 2000]
    for _ in range(5):
        damaged = bytearray(content)
        for place in random.integers(0, 3000, 4):
            damaged[place] ^= int(random.integers(1, 256))
        odd += [bytes(damaged), content[: int(random.integers(len(content)))]]
    for each in odd:
        path.write_bytes(each)
        with pytest.raises(ModelError):
            ss.predict(path, image, trust=True, progress=False)


def test_files_of_others_are_named(exported: Files, image: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    os.mkfifo(tmp_path / "pipe.pt2")
    for name in ("notes.txt", "pipe.pt2"):
        refused(tmp_path / name, image, "is no model")
    refused(exported("pair.safetensors"), image, "holds weights alone: export the network as .onnx or .pt2")
    with pytest.raises(FileNotFoundError):
        ss.predict(tmp_path / "nowhere.pt2", image, progress=False)


# Graphs of ONNX


def graph(nodes: Any, tensors: Any = (), **settings: Any) -> Any:
    """Return a model of three classes, with metadata, and with w of shape [64, 3]."""
    named = [numpy_helper.from_array(np.ones((64, 3), np.float32), "w")]
    named += [each if isinstance(each, TensorProto) else numpy_helper.from_array(each[1], each[0]) for each in tensors]
    takes = [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 1, 8, 8])]
    returns = [helper.make_tensor_value_info("probabilities", settings.pop("returns", TensorProto.FLOAT), ["n", 3])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    made = helper.make_graph(nodes, "graph", takes, returns, named)
    return helper.make_model(made, opset_imports=opsets, ir_version=10, **settings)


def node(operator: str, *names: str, **attributes: Any) -> Any:
    *inputs, output = names
    return helper.make_node(operator, inputs, [output], **attributes)


REST = [node("Flatten", "images", "flat"), node("MatMul", "flat", "w", "logits")]
LAST = node("Softmax", "logits", "probabilities")


def sealed(model: Any, path: Path, **changes: str) -> Path:
    """Write a model with the metadata and the checksum of an export."""
    takes = {"images": "float32 [n, 1, 8, 8]"}
    about = Metadata("network", "name", "the network", "Net", ("a", "b", "c"), (1, 8, 8), takes=takes).flat()
    helper.set_model_props(model, {**about, "checksum": formats.MARK.decode(), **changes})
    path.write_bytes(formats.sealed(model.SerializeToString()))
    return path


def test_a_graph_of_known_operators_is_read(image: Path, tmp_path: Path) -> None:
    (found,) = ss.predict(sealed(graph([*REST, LAST]), tmp_path / "a.onnx"), image, progress=False).predictions
    assert found.top == (("a", pytest.approx(1 / 3)),)


def body(*nodes: Any) -> Any:
    flag = helper.make_tensor_value_info("again", TensorProto.BOOL, [])
    number = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    return helper.make_graph([*nodes, node("Identity", "c", "again")], "body", [number, flag], [flag])


def outside(place: str) -> Any:
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "far")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    return tensor


def large() -> Any:
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "large")
    tensor.dims[0] = 10**12
    return tensor


LOOP = helper.make_node("Loop", ["", "true"], ["x"], body=body())
OWN = helper.make_function("mine", "F", ["x"], ["y"], [node("F", "x", "y", domain="mine")], [])
WORDS = numpy_helper.from_array(np.array(["a"], dtype=object), "words")


def beside(*nodes: Any) -> Any:
    """Return a graph with more nodes than it needs."""
    return graph([*REST, LAST, *nodes])


STRANGE: dict[str, tuple[Any, str]] = {
    "data elsewhere": (graph([*REST, LAST], [outside("/etc/passwd")]), "'far' in another file"),
    "a loop": (beside(LOOP), "'g' in 'body'"),
    "a function": (graph([*REST, LAST], functions=[OWN]), "functions of its own"),
    "other operators": (beside(node("Gelu", "flat", "x", domain="com.microsoft")), "'com.microsoft:Gelu'"),
    "text that doubles": (beside(node("StringConcat", "a", "a", "x")), "operator 'StringConcat'"),
    "text": (graph([*REST, LAST], [WORDS]), "the tensor 'words' of text"),
    "a tensor larger than the file": (graph([*REST, LAST], [large()]), "of shape [1000000000000]"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_a_graph_may_not_hold(name: str, image: Path, tmp_path: Path) -> None:
    model, said = STRANGE[name]
    refused(sealed(model, tmp_path / "odd.onnx"), image, said)


ASKING = {
    "ConstantOfShape": [node("ConstantOfShape", "size", "x")],
    "Resize": [node("Resize", "images", "", "scales", "x")],
    "Concat": [node("Identity", "flat", "x0")]
    + [node("Concat", f"x{i}", f"x{i}", f"x{i + 1}" if i < 39 else "x", axis=0) for i in range(40)],
}


@pytest.mark.parametrize("name", ASKING)
def test_a_graph_that_asks_for_much_memory_gets_none(name: str, image: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(formats, "MEMORY", 1 << 22)
    tensors = [("size", np.array([10**9, 100])), ("scales", np.array([1, 1, 10**8, 10], np.float32))]
    nodes = [*REST, *ASKING[name], node("ReduceSum", "x", "y", keepdims=0), node("Add", "logits", "y", "sum")]
    model = graph([*nodes, node("Softmax", "sum", "probabilities")], tensors)
    refused(sealed(model, tmp_path / "large.onnx"), image, "cannot be run")


def test_a_file_of_two_formats_is_read_as_the_one_that_was_checked(image: Path, tmp_path: Path) -> None:
    """Bytes 4 to 8 say that it is one of onnxruntime's own, which may hold any operators."""
    path = sealed(graph([*REST, LAST], producer_name="ORTM"), tmp_path / "a.onnx")
    assert path.read_bytes()[4:8] == b"ORTM"
    assert ss.predict(path, image, progress=False).predictions


BFLOAT = [*REST, node("Softmax", "logits", "p"), node("Cast", "p", "probabilities", to=16)]
LABELS = [*REST, node("ArgMax", "logits", "probabilities", keepdims=0)]  # [3], along the first dimension


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (graph(BFLOAT, returns=16), "cannot be run"),
        (graph(LABELS, returns=7), "answers 1 images with (3,) torch.int64: expected [(1, 3)]"),
    ],
)
def test_a_graph_that_is_not_what_its_metadata_says(model: Any, said: str, image: Path, tmp_path: Path) -> None:
    refused(sealed(model, tmp_path / "odd.onnx"), image, said)


CHANGED: list[tuple[dict[str, str], str]] = [
    ({"classes": "[]"}, "classes is ()"),
    ({"classes": "[1, 2]"}, "classes is (1, 2)"),
    ({"classes": '["a", "b"]'}, "expected [(1, 2)]"),
    ({"classes": "{"}, "its metadata"),
    ({"image_shape": "[1]"}, "its metadata"),
    ({"image_shape": "[1, 9000, 9000]"}, "image_shape is (1, 9000, 9000)"),
    ({"kind": "x"}, "kind is"),
    ({"kind": "family"}, "of a family one point"),
    ({"takes": '{"x": "int64 [n]"}'}, "takes x int64 [n]: expected a classifier of images"),
    ({"takes": "3"}, "its metadata"),
    ({"mean": "[NaN]"}, "mean is (nan,)"),
    ({"resize": "-1"}, "resize is"),
    ({"version": "9" * 5000}, "of this version"),
]


@pytest.mark.parametrize(("changes", "said"), CHANGED)
def test_metadata_that_no_export_has(changes: dict[str, str], said: str, image: Path, tmp_path: Path) -> None:
    refused(sealed(graph([*REST, LAST]), tmp_path / "odd.onnx", **changes), image, said)


# Answers


@pytest.mark.parametrize("value", ["nan", "inf", "-231.0", "0.7"])
def test_answers_that_are_no_probabilities_are_refused(value: str, image: Path, tmp_path: Path) -> None:
    filled = helper.make_tensor("value", TensorProto.FLOAT, [1], [float(value)])
    nodes = [*REST, node("Shape", "logits", "s"), node("ConstantOfShape", "s", "probabilities", value=filled)]
    path = sealed(graph(nodes), tmp_path / "odd.onnx")
    refused(path, image, f"{path} answers {image}[0] with [{float(float(np.float32(value)))}, ")
    ended = CliRunner().invoke(app, ["predict", str(path), str(image), "--quiet"], prog_name="subspaces")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "expected probabilities" in ended.stderr
