"""Models of anybody: a .pt2 file is not opened without trust, and the others are checked."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import CliRunner
from production_cases import refused
from safetensors.torch import save_file
from torch import Tensor, nn

import subspaces as ss
from subspaces.cli import main as app
from subspaces.core import storage
from subspaces.export import ModelError

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
        "if you trust them, or use a .safetensors or .onnx export, which need no trust\n"
    )
    for suffix, said in (("bin", "is no model"), ("onnx", "no whole ONNX file"), ("safetensors", "damaged")):
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


# Weights


def anew(path: Path, to: Path, change: Callable[[Tensor], Tensor] = lambda each: each, **changes: str) -> Path:
    """Write a safetensors file with other tensors and metadata, and the checksum of these."""
    header, tensors = storage.read_tensors(path)
    header = {name: value for name, value in header.items() if name not in ("checksum", "layout")}
    storage.write_tensors(to, {name: change(each) for name, each in tensors.items()}, {**header, **changes})
    return to


def test_weights_of_another_precision_are_those_of_the_network(exported: Files, image: Path, tmp_path: Path) -> None:
    whole = exported("midpoint.safetensors")
    path = anew(whole, tmp_path / "a.safetensors", lambda each: each.bfloat16() if each.is_floating_point() else each)
    (expected,), (found,) = (ss.predict(file, image, progress=False).predictions for file in (whole, path))
    assert found.probability == pytest.approx(expected.probability, abs=0.01)
    odd = anew(whole, tmp_path / "b.safetensors", lambda each: each.long())
    refused(odd, image, "(64, 64) torch.int64 in the file and (64, 64) floats in the network")


def test_a_network_that_only_the_metadata_claims_is_not_built(
    exported: Files, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device, where it takes no memory, it may be."""
    classes = json.dumps([str(index) for index in range(50_000)])
    claims = {"network": "resnet50", "classes": classes, "image_shape": "[3, 8, 8]", "mean": "[]", "std": "[]"}
    claimed = anew(exported("midpoint.safetensors"), tmp_path / "claimed.safetensors", **claims)
    devices: list[str] = []
    linear = nn.Linear.__init__

    def built(self: nn.Linear, *given: Any, **more: Any) -> None:
        linear(self, *given, **more)
        devices.append(self.weight.device.type)

    monkeypatch.setattr(nn.Linear, "__init__", built)
    refused(claimed, image, "other weights than those of")
    assert set(devices) == {"meta"}


def test_a_header_that_is_too_large_is_not_parsed(image: Path, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    refused(tmp_path / "a.safetensors", image, "its header has more than")


@pytest.mark.parametrize(
    ("name", "weight"), [("midpoint.pt2", ""), ("midpoint.safetensors", ""), ("pair.onnx", "members.0.")]
)
def test_a_changed_byte_among_the_weights_is_noticed(
    name: str, weight: str, exported: Files, image: Path, tmp_path: Path
) -> None:
    _, tensors = storage.read_tensors(exported("pair.safetensors" if weight else "midpoint.safetensors"))
    content, path = bytearray(exported(name).read_bytes()), tmp_path / name
    content[content.index(tensors[f"{weight}head.weight"].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged"):
        ss.predict(path, image, trust=True, progress=False)


@pytest.mark.parametrize("name", ["midpoint.safetensors", "family.onnx", "midpoint.pt2"])
def test_any_damage_is_an_error_of_the_file(name: str, exported: Files, image: Path, tmp_path: Path) -> None:
    content, random, path = exported(name).read_bytes(), np.random.default_rng(0), tmp_path / name
    for damaged in (content[: len(content) // 2], content[:100], b"", b"PK\x03\x04", b"\0" * 2000):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match=r"use another copy|not written by"):
            ss.predict(path, image, trust=True, progress=False)
    for _ in range(5):
        damaged = bytearray(content)
        for place in random.integers(0, 3000, 4):
            damaged[place] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        with pytest.raises(ModelError):
            ss.predict(path, image, trust=True, progress=False)
        path.write_bytes(content[: int(random.integers(len(content)))])
        with pytest.raises(ModelError):
            ss.predict(path, image, trust=True, progress=False)


def test_files_of_others_are_named(image: Path, tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "plain.safetensors")
    (tmp_path / "notes.txt").write_text("hello")
    os.mkfifo(tmp_path / "pipe.pt2")
    refused(tmp_path / "plain.safetensors", image, "was not written by `subspaces export` of this version")
    for name in ("notes.txt", "pipe.pt2"):
        refused(tmp_path / name, image, "is no model")
    with pytest.raises(FileNotFoundError):
        ss.predict(tmp_path / "nowhere.pt2", image, progress=False)


CHANGED: list[tuple[dict[str, str], str]] = [
    ({"classes": "[]"}, "classes is ()"),
    ({"classes": "3"}, "its metadata"),
    ({"classes": "[1, 2]"}, "classes is (1, 2)"),
    ({"classes": '{"a": 1}'}, "classes is {'a': 1}"),
    ({"classes": "{"}, "its metadata"),
    ({"image_shape": "[1]"}, "its metadata"),
    ({"image_shape": "[1, 9000, 9000]"}, "image_shape is (1, 9000, 9000)"),
    ({"image_shape": "[1, 8, 99999999]"}, "image_shape is"),
    ({"image_shape": "[1, 9, 9]"}, "other weights than those of 'mlp'"),
    ({"dropout": f"1{'0' * 400}"}, "dropout is"),
    ({"kind": "x"}, "kind is"),
    ({"kind": "family"}, "holds a whole family"),
    ({"kind": "ensemble"}, "holds the weights of several networks"),
    ({"network_outputs": "x"}, "network_outputs is 'x'"),
    ({"takes": '{"x": 3}'}, "takes x 3"),
    ({"mean": '["x"]'}, "mean is ('x',)"),
    ({"mean": "[NaN]"}, "mean is (nan,)"),
    ({"resize": "-1"}, "resize is"),
    ({"version": "9" * 5000}, "of this version"),
    ({"network": "Net"}, "cannot be built here"),
    ({"network": "antigravity:geohash"}, "import module 'antigravity' and call 'geohash': pass --trust"),
]


@pytest.mark.parametrize(("changes", "said"), CHANGED)
def test_metadata_that_no_export_has(
    changes: dict[str, str], said: str, exported: Files, image: Path, tmp_path: Path
) -> None:
    refused(anew(exported("midpoint.safetensors"), tmp_path / "odd.safetensors", **changes), image, said)


def test_weights_of_several_networks_are_not_predicted_with(exported: Files, image: Path, tmp_path: Path) -> None:
    refused(exported("pair.safetensors"), image, "holds the weights of several networks: export them as .pt2 or .onnx")
    family = ss.Subspace(lambda: nn.Linear(3, 2), ss.Line())
    ss.save(family, tmp_path / "family.safetensors")
    refused(tmp_path / "family.safetensors", image, "holds the weights of a family, for `ss.load`")
