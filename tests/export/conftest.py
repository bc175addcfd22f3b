"""Tiny runs on digits and their exports, each made when it is first asked for, and their networks made without them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from production_cases import Truth

import subspaces as ss

TRAINED: dict[str, dict[str, Any]] = {
    "line": {"recipe": "digits-line"},
    "simplex": {"recipe": "digits-simplex", "layerwise": True},
    "standard": {"recipe": "digits-standard"},
}
EXPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "midpoint.safetensors": ("line", {}),
    "midpoint.pt2": ("line", {}),
    "pair.safetensors": ("line", {"point": [0.1, 0.9]}),
    "pair.onnx": ("line", {"point": "ensemble"}),
    "family.onnx": ("line", {"point": "family"}),
    "family.pt2": ("line", {"point": "family"}),
    "simplex.pt2": ("simplex", {"point": "family"}),
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that trains a run when it is first asked for; that of a line is evaluated too."""
    out = tmp_path_factory.mktemp("runs")

    @cache
    def folder(name: str) -> Path:
        (run,) = ss.train(**TRAINED[name], epochs=1, out=out, show="quiet", device="cpu")
        if name == "line":
            ss.evaluate(run, grid=[0.1, 0.3], device="cpu", progress=False)
        return run.folder

    return folder


@pytest.fixture(scope="session")
def exported(trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that exports what is asked for, once."""
    out = tmp_path_factory.mktemp("exported")

    @cache
    def export(name: str) -> Path:
        run, settings = EXPORTED[name]
        return ss.export(trained(run), out / name, **settings, progress=False)

    return export


@pytest.fixture(scope="session")
def truth(trained: Callable[[str], Path]) -> Callable[[str], Truth]:
    return cache(lambda name: Truth(trained(name)))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return a file with one black image."""
    np.save(tmp_path / "image.npy", np.zeros((1, 8, 8), np.uint8))
    return tmp_path / "image.npy"
