"""A model that is read is not trusted: nothing in it runs before it has been looked at, and damage is named."""

import io
import json
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import subspaces as ss
from subspaces.production.errors import ModelError

Files = Callable[[str], Path]
MODEL, WEIGHTS = "archive/models/model.json", "archive/data/weights/model_weights_config.json"
INPUTS, CONSTANTS = "archive/data/sample_inputs/model.pt", "archive/data/constants/model_constants_config.json"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    np.save(tmp_path / "image.npy", np.zeros((1, 8, 8), np.uint8))
    return tmp_path / "image.npy"


def predicted(model: Path, image: Path, **settings: Any) -> Any:
    return ss.predict(model, image, progress=False, **settings)


def repacked(path: Path, to: Path, change: Callable[[str, bytes], Any], more: dict[str, bytes] | None = None) -> Path:
    """Write a .pt2 file anew with members that a function has changed."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(to, "w") as target:
        for info in source.infolist():
            target.writestr(info.filename, change(info.filename, source.read(info)))
        for name, content in (more or {}).items():
            target.writestr(name, content)
    return to


def edited(member: str, edit: Callable[[Any], Any]) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        if name != member:
            return content
        value = json.loads(content)
        edit(value)
        return json.dumps(value).encode()

    return change


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_program_that_was_packed_anew_is_the_same(exported: Files, image: Path, tmp_path: Path) -> None:
    again = repacked(exported("midpoint.pt2"), tmp_path / "again.pt2", lambda _, content: content)
    assert predicted(again, image).predictions == predicted(exported("midpoint.pt2"), image).predictions


def test_a_pickle_is_not_opened(exported: Files, image: Path, tmp_path: Path) -> None:
    """With torch alone it would be: this is what the file is refused for."""
    made = tmp_path / "made"
    buffer = io.BytesIO()
    torch.save(Bomb(made), buffer, pickle_module=pickle)
    evil = repacked(
        exported("midpoint.pt2"), tmp_path / "evil.pt2", lambda name, old: buffer.getvalue() if name == INPUTS else old
    )
    with pytest.raises(ModelError, match=r"pickled example inputs.*pass --trust"):
        predicted(evil, image)
    assert not made.exists()
    with pytest.raises(ModelError, match="cannot be read by torch"):
        predicted(evil, image, trust=True)
    assert made.exists()


def _node(value: Any) -> Any:
    return value["graph_module"]["graph"]["nodes"][0]


def _weight(value: Any) -> Any:
    return next(iter(value["config"].values()))


def _size(value: Any) -> Any:
    return value["graph_module"]["graph"]["tensor_values"]["images"]["sizes"][0]["as_expr"]


@pytest.mark.parametrize(
    ("member", "edit", "said"),
    [
        (WEIGHTS, lambda value: _weight(value).update(use_pickle=True), "as a pickle"),
        (WEIGHTS, lambda value: _weight(value).update(path_name="../../x"), "as a pickle"),
        (
            CONSTANTS,
            lambda value: value["config"].update(x={"path_name": "opaque_obj_0", "use_pickle": False}),
            "as a pickle",
        ),
        (MODEL, lambda value: value.update(guards_code=["print(1)"]), "guards, which are Python code"),
        (MODEL, lambda value: _node(value).update(target="torch.hub.load"), "a call of 'torch.hub.load'"),
        (MODEL, lambda value: _node(value).update(target="torch.ops.aten.from_file.default"), "a call of"),
        (MODEL, lambda value: _node(value).update(target="_operator.methodcaller"), "a call of"),
        (MODEL, lambda value: _size(value).update(expr_str="__import__('os').getpid()"), "the expression"),
        (MODEL, lambda value: _size(value).update(expr_str="9**9**9**9"), "the expression"),
    ],
)
def test_what_could_run_code_is_refused(
    member: str, edit: Callable[[Any], Any], said: str, exported: Files, image: Path, tmp_path: Path
) -> None:
    evil = repacked(exported("midpoint.pt2"), tmp_path / "evil.pt2", edited(member, edit))
    with pytest.raises(ModelError, match=re.escape(said)):
        predicted(evil, image)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("archive/data/weights/model.pt", "the file 'data/weights/model.pt'"),
        ("archive/models/other.json", "the file 'models/other.json'"),
        ("other/models/model.json", "two members of one name"),
        ("version", "the file ''"),
    ],
)
def test_members_that_an_export_has_not_are_refused(
    name: str, said: str, exported: Files, image: Path, tmp_path: Path
) -> None:
    evil = repacked(exported("midpoint.pt2"), tmp_path / "evil.pt2", lambda _, content: content, {name: b"x"})
    with pytest.raises(ModelError, match=re.escape(said)):
        predicted(evil, image)


def test_a_network_of_somebody_elses_is_not_imported(exported: Files, image: Path, tmp_path: Path) -> None:
    from subspaces import files

    header, tensors = files.read_tensors(exported("midpoint.safetensors"))
    header = {name: value for name, value in header.items() if name not in ("checksum", "layout")}
    files.write_tensors(tmp_path / "evil.safetensors", tensors, {**header, "network": "antigravity:geohash"})
    with pytest.raises(ModelError, match=r"would import module 'antigravity' and call 'geohash': pass --trust"):
        predicted(tmp_path / "evil.safetensors", image)


@pytest.mark.parametrize("name", ["midpoint.pt2", "midpoint.safetensors"])
def test_damage_is_named(name: str, exported: Files, image: Path, tmp_path: Path) -> None:
    content = exported(name).read_bytes()
    middle = len(content) // 2
    for index, damaged in enumerate((content[:middle], content[:100], b"", b"PK\x03\x04")):
        path = tmp_path / f"{index}{exported(name).suffix}"
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match=r"use another copy|not written by|use the file that belongs there"):
            predicted(path, image)


@pytest.mark.parametrize("name", ["midpoint.pt2", "midpoint.safetensors"])
def test_a_changed_byte_among_the_weights_is_noticed(name: str, exported: Files, image: Path, tmp_path: Path) -> None:
    content = bytearray(exported(name).read_bytes())
    at = content.find(b"\0\0\0\0") if name.endswith("2") else len(content) - 100
    content[len(content) // 3 if name.endswith("2") else at] ^= 1
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged"):
        predicted(path, image)


def test_files_of_others_are_named(image: Path, tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "plain.safetensors")
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)), tmp_path / "plain.pt2")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "plain.pt")
    for name in ("plain.safetensors", "plain.pt2", "plain.pt"):
        with pytest.raises(ModelError, match="was not written by `subspaces export`"):
            predicted(tmp_path / name, image)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelError, match="is no model"):
        predicted(tmp_path / "notes.txt", image)
    with pytest.raises(FileNotFoundError):
        predicted(tmp_path / "nowhere.pt2", image)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": "[]"}, "classes are"),
        ({"image_shape": "[1, 8, 99999999]"}, "image_shape is"),
        ({"image_shape": "[1, 9, 9]"}, "other weights than those of 'mlp'"),
        ({"mean": '["x"]'}, "mean and std are"),
        ({"mean": "[NaN]"}, "mean and std are"),
        ({"kind": "x"}, "kind is"),
        ({"resize": "-1"}, "resize is"),
        ({"classes": "{"}, "its metadata"),
        ({"version": "9"}, "upgrade subspaces"),
        ({"network": "Net"}, "cannot be built here"),
    ],
)
def test_metadata_that_no_export_has(
    changes: dict[str, str], said: str, exported: Files, image: Path, tmp_path: Path
) -> None:
    from subspaces import files

    header, tensors = files.read_tensors(exported("midpoint.safetensors"))
    header = {name: value for name, value in header.items() if name not in ("checksum", "layout")}
    files.write_tensors(tmp_path / "odd.safetensors", tensors, {**header, **changes})
    with pytest.raises(ModelError, match=re.escape(said)):
        predicted(tmp_path / "odd.safetensors", image)


def test_weights_of_a_family_have_statistics_of_no_point(exported: Files, image: Path) -> None:
    with pytest.raises(ModelError, match="whose statistics belong to a point"):
        predicted(exported("family.safetensors"), image)


def test_a_file_that_is_none(image: Path, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.pt2")
    with pytest.raises(ModelError, match="is no file"):
        predicted(tmp_path / "pipe.pt2", image)


def test_a_copy_under_another_name_is_read_unless_that_is_of_another_format(
    exported: Files, image: Path, tmp_path: Path
) -> None:
    shutil.copy(exported("midpoint.pt2"), tmp_path / "model.bin")
    assert predicted(tmp_path / "model.bin", image).predictions
    for name, other in (("midpoint.pt2", "a.onnx"), ("midpoint.safetensors", "a.pt2")):
        shutil.copy(exported(name), tmp_path / other)
        with pytest.raises(ModelError, match="under another name"):
            predicted(tmp_path / other, image)
