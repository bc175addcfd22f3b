"""Families as folders and repositories: what comes back, what is refused, and that nothing in a folder is run."""

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_cases import FAMILIES, Net, assert_same, by_part, used
from safetensors.torch import save_file
from torch import Tensor, nn

import subspaces as ss
from subspaces.core.shapes import _Interval
from subspaces.errors import ArgumentError

FILES = ["README.md", "config.json", "model.safetensors"]


# A folder


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_comes_back_from_its_folder(name: str, tmp_path: Path) -> None:
    family, options = used(name), {"groups": by_part} if name == "groups" else {}
    folder = family.save_pretrained(tmp_path / "new" / "family")
    assert folder == tmp_path / "new" / "family"
    assert sorted(each.name for each in folder.iterdir()) == FILES

    def make() -> nn.Module:
        return Net().to(family.template.base.weight.dtype)

    for network in (make, make()):
        loaded = ss.Subspace.from_pretrained(folder, network, **options)
        assert_same(family, loaded)
    assert [group.keys() for group in loaded.parameter_groups()] == [g.keys() for g in family.parameter_groups()]
    assert_same(family, ss.load(folder / "model.safetensors", make, **options))
    ss.save(family, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_config_says_what_the_family_is(tmp_path: Path) -> None:
    config = json.loads((used("layerwise").save_pretrained(tmp_path) / "config.json").read_bytes())
    about = {"library_name": "subspaces", "library_version": ss.__version__, "format_version": "4", "network": "Net"}
    weights = {"weights_per_vertex": 12 + 36 + 6 + 6, "dtypes": ["float32"]}
    shape = {"type": "Simplex", "m": 3}
    assert config == {**about, **weights, "shape": shape, "vertices": 3, "layerwise": True, "groups": False}


def test_frozen_parameters_can_stay_where_they_are(tmp_path: Path) -> None:
    family = used()
    folder = family.save_pretrained(tmp_path, shared=False)
    assert "not in the file" in (folder / "README.md").read_text()
    assert_same(family, ss.Subspace.from_pretrained(folder, Net))
    other = Net()
    other.base.bias.data.zero_()
    with pytest.raises(ss.FileError, match="without its frozen parameters"):
        ss.Subspace.from_pretrained(folder, other)


@dataclass(frozen=True)
class Folded(_Interval):
    """A line with a fold."""

    fold: float = 0.5
    vertices = 2

    def coefficients(self, alpha: Tensor) -> Tensor:
        return torch.stack([1 - alpha, alpha], -1)


def test_a_shape_of_ones_own_is_passed_again(tmp_path: Path) -> None:
    family = ss.Subspace(Net, Folded(0.25))
    folder = family.save_pretrained(tmp_path)
    assert "make_net, shape=Folded(fold=0.25))" in (folder / "README.md").read_text()
    assert_same(family, ss.Subspace.from_pretrained(folder, Net, shape=Folded(0.25)))
    for given in ({}, {"shape": Folded(0.5)}, {"shape": ss.Line()}):
        with pytest.raises(ss.FileError, match="custom Folded"):
            ss.Subspace.from_pretrained(folder, Net, **given)


# What contradicts, is damaged, or is another's


def rewrite(folder: Path, **changes: Any) -> None:
    config = {**json.loads((folder / "config.json").read_bytes()), **changes}
    kept = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("shape", {"type": "Simplex", "m": 2}), ("shape", {"type": "Line", "m": 2}), ("shape", []), ("vertices", 3)],
        *[("vertices", True), ("vertices", 2.0), ("layerwise", True), ("layerwise", 0), ("groups", "no")],
        *[("weights_per_vertex", 61), ("dtypes", ["float16"]), ("format_version", 4), ("vertices", None)],
    ],
)
def test_a_config_that_contradicts_the_weights_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    folder = used().save_pretrained(tmp_path)
    rewrite(folder, library_version="99", network="Other")  # which only describe
    assert_same(ss.load(folder / "model.safetensors", Net), ss.Subspace.from_pretrained(folder, Net))
    rewrite(folder, **{name: value})
    with pytest.raises(ss.FileError, match=rf"config.json contradicts model.safetensors: {name} is "):
        ss.Subspace.from_pretrained(folder, Net)


def test_the_weights_of_another_family_contradict_the_config(tmp_path: Path) -> None:
    folder = used().save_pretrained(tmp_path)
    ss.save(used("layerwise"), folder / "model.safetensors")
    with pytest.raises(ss.FileError, match=r"contradicts .*shape is .*Line.*Simplex.* in the weights"):
        ss.Subspace.from_pretrained(folder, Net)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *[(b"{", "no JSON"), (b"\xff", "no JSON"), (b"[" * 100_000, "no JSON"), (b"[]", "a JSON object")],
        (b" " * 2**20 + b"{}", "at most 1048576 bytes"),
        (b'{"library_name": "transformers"}', "is of library 'transformers', expected 'subspaces'"),
        (b"{}", "is of library None"),
        (None, "has no config.json: expected a folder that save_pretrained"),
    ],
)
def test_a_config_that_is_none_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    folder = used().save_pretrained(tmp_path)
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_bytes(content)
    with pytest.raises(ss.FileError, match=message):
        ss.Subspace.from_pretrained(folder, Net)


def test_damaged_missing_and_other_weights_are_refused(tmp_path: Path) -> None:
    folder = used().save_pretrained(tmp_path)
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ss.FileError, match="is damaged"):
        ss.Subspace.from_pretrained(folder, Net)
    save_file({"weight": torch.ones(2)}, weights)
    with pytest.raises(ss.FileError, match="not a family"):
        ss.Subspace.from_pretrained(folder, Net)
    weights.unlink()
    with pytest.raises(ss.FileError, match=r"has no model\.safetensors"):
        ss.Subspace.from_pretrained(folder, Net)
    used().save_pretrained(tmp_path / "other")
    with pytest.raises(ss.FileError, match="a family of another network"):
        ss.Subspace.from_pretrained(tmp_path / "other", lambda: nn.Linear(5, 6))


def test_nothing_in_a_folder_is_imported_or_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = used()
    folder = family.save_pretrained(tmp_path / "family")
    for name in ("modeling", "configuration", "sitecustomize"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n\ndef make():\n    pass\n")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    named = {"factory": "modeling:make", "auto_map": {"AutoModel": "modeling.make"}, "trust_remote_code": True}
    rewrite(folder, **named, network="modeling:make", architectures=["modeling.make"])
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    assert_same(family, ss.Subspace.from_pretrained(folder, Net))
    assert not (tmp_path / "ran").exists()
    assert "modeling" not in sys.modules
    importlib.import_module("modeling")  # which would have been found
    assert (tmp_path / "ran").exists()
    del sys.modules["modeling"]


# What a folder holds already


def test_a_family_is_saved_again_and_what_others_wrote_is_kept(tmp_path: Path) -> None:
    used().save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    family = used("layerwise")
    assert_same(family, ss.Subspace.from_pretrained(family.save_pretrained(tmp_path), Net))
    assert "Simplex" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "notes.txt").read_text() == "mine"

    (tmp_path / "README.md").write_text("my own words")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(ArgumentError, match=r"README.md, which .* did not write: pass another folder, or card=False"):
        used().save_pretrained(tmp_path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    again = used()
    again.save_pretrained(tmp_path, card=False)
    assert_same(again, ss.Subspace.from_pretrained(tmp_path, Net))
    assert (tmp_path / "README.md").read_text() == "my own words"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_the_model_of_another_library_is_not_replaced(name: str, tmp_path: Path) -> None:
    if name == "config.json":
        (tmp_path / name).write_text('{"model_type": "bert"}')
    else:
        save_file({"weight": torch.ones(2)}, tmp_path / name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(ArgumentError, match=rf"holds {name}, which save_pretrained of a family did not write"):
        used().save_pretrained(tmp_path)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [(name, before)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"license": "MIT License"}, "license='MIT License': expected an identifier"),
        ({"tags": "vision"}, "tags='vision': expected a list"),
        ({"tags": ["", "a"]}, "tags got ''"),
        ({"metrics": {}}, "metrics={}: expected numbers by name"),
        ({"metrics": 0.9}, r"metrics=0\.9: expected"),
        ({"metrics": {"accuracy": "high"}}, r"metrics\['accuracy'\]='high': expected a finite number"),
        ({"metrics": {"nll": float("nan")}}, r"metrics\['nll'\]=nan: expected a finite number"),
        ({"card": 1}, "card=1: expected True or False"),
        ({"shared": "no"}, "shared='no': expected True or False"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ArgumentError, match=message):
        used().save_pretrained(tmp_path / "family", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    ss.save(used(), tmp_path / "family")
    with pytest.raises(ArgumentError, match="family is a file: expected a folder"):
        used().save_pretrained(tmp_path / "family")
    with pytest.raises(ss.FileError, match=r"is a file, which subspaces\.load reads: expected a folder"):
        ss.Subspace.from_pretrained(tmp_path / "family", Net)
    for missing in (tmp_path / "missing", str(tmp_path / "missing"), "a/b/c", "./family", "a b"):
        with pytest.raises(ss.FileError, match="is no folder: expected a folder, or the id of a repository"):
            ss.Subspace.from_pretrained(missing, Net)
