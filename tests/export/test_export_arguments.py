"""What cannot be exported, and what is said about it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subspaces as ss
from subspaces.errors import UserError
from subspaces.export.errors import ExportError

Files = Callable[[str], Path]


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))


OWN: dict[str, Any] = {"example": torch.rand(5, 2, 4, 4), "progress": False}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"point": "middle"}, "expected 'midpoint', 'selected', 'ensemble', 'family', or a number in"),
        ({"point": 1.5}, "not a point of Line"),
        ({"point": [0.2, 0.3, 1.5]}, "not a point of Line"),
        ({"point": "0.2,0.8"}, "not a point of Line"),
        ({"point": True}, "expected"),
        ({"point": "selected"}, "no point was chosen: write subspaces select"),
        ({"point": []}, "point=[]: expected one point or more"),
        ({"point": {}}, "point={}: not a point"),
        ({"example": 3}, "a run brings its own"),
        ({"path": "."}, "which is a folder"),
        ({"format": "pickle"}, "expected one of 'safetensors', 'pt2', 'onnx'"),
        ({"format": "onnx"}, "ends in .pt2"),
        ({"statistics_batches": 0}, "at least 1"),
        ({"classes": ["a"]}, "a run brings its own"),
        ({"path": "there/one.pt2"}, "there is no folder"),
        ({"path": "one.bin"}, "ends in .safetensors, .pt2 or .onnx"),
    ],
)
def test_what_cannot_be_exported_of_a_run(settings: dict[str, Any], said: str, trained: Files, tmp_path: Path) -> None:
    path = tmp_path / settings.pop("path", "one.pt2")
    with pytest.raises((UserError, FileNotFoundError, IsADirectoryError), match=re.escape(said)):
        ss.export(trained("line"), path, **settings, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_one_network_has_no_family_no_ensemble_and_no_points(trained: Files, tmp_path: Path) -> None:
    for point in ("family", "ensemble", 0.3, "0.3", [0.1, 0.9]):
        with pytest.raises(ExportError, match=re.escape(f"point={point!r}: ")):
            ss.export(trained("standard"), tmp_path / "one.pt2", point=point, progress=False)


@pytest.mark.parametrize(
    ("network", "settings", "said"),
    [
        (small, {"example": None}, "expected a few inputs of the network"),
        (small, {"example": "x"}, "example='x': expected a few inputs"),
        (
            small,
            {"example": torch.rand(0, 2, 4, 4)},
            "a tensor of shape (0, 2, 4, 4) and torch.float32",
        ),
        (small, {"example": torch.zeros(5, 2, 4, 4).byte()}, "divide bytes by 255"),
        (small, {"example": torch.rand(5, 3, 4, 4)}, "the network fails on images of shape (5, 3, 4, 4)"),
        (small, {"example": torch.full((5, 2, 4, 4), torch.nan)}, "with NaN or infinity"),
        (small, {"mean": 3}, "mean=3: expected a list with one number for each channel"),
        (small, {"mean": [0, "x"], "std": [1, 1]}, "mean='x': expected a finite number"),
        (small, {"classes": 3}, "classes=3: expected a list of names"),
        (small, {"network": "mpl"}, "unknown network 'mpl' (did you mean 'mlp'?)"),
        (small, {"name": 3}, "name=3: expected text"),
        (small, {"point": []}, "a network has no points"),
        (small, {"statistics": 3}, "statistics=3: expected something that yields batches"),
        (small, {"statistics": [torch.rand(8, 3, 4, 4)]}, "statistics= has a batch that the network fails on"),
        (small, {"statistics": [[]]}, "statistics= has a batch that the network fails on"),
        (small, {"statistics_batches": 3}, "it is for runs; a module takes statistics="),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), {}, "lazy parameters: call it once"),
        (lambda: 3, {}, "export got 3: expected a network"),
        (small, {"classes": ["a", "b"]}, "classes has 2 names: expected 4"),
        (small, {"mean": [0.5]}, "expected one of each for the 2 channels"),
        (small, {"mean": [0.5, 0.5], "std": [1, 0]}, "expected numbers above 0"),
        (small, {"point": 0.3}, "a network has no points"),
        (small, {"statistics": iter([])}, "walked over again"),
        (lambda: ss.Subspace(small, ss.Line()), {}, "pass statistics=, the training loader"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 1)), {}, "of two classes or more"),
        (lambda: nn.Conv2d(2, 3, 3), {}, "expected logits of shape [n, classes]"),
        (lambda: ss.Ensemble([small()], "outputs"), {}, "has no probabilities of classes"),
    ],
)
def test_what_cannot_be_exported_of_ones_own(network: Any, settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        ss.export(network(), tmp_path / "own.pt2", **{**OWN, **settings})
    assert list(tmp_path.iterdir()) == []
