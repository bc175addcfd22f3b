"""Tiny runs on digits, their exports, each made when it is first asked for, and their networks made without them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import subspaces as ss
from subspaces import data
from subspaces.networks import MLP
from subspaces.training import Execution, Run
from subspaces.training.batches import statistics_batches

TRAINED: dict[str, dict[str, Any]] = {
    "line": {"recipe": "digits-line"},
    "simplex": {"recipe": "digits-simplex", "layerwise": True},
    "standard": {"recipe": "digits-standard"},
}
EXPORTED: dict[str, dict[str, Any]] = {
    "midpoint.safetensors": {},
    "midpoint.pt2": {},
    "pair.safetensors": {"point": [0.1, 0.9]},
    "pair.onnx": {"point": "ensemble"},
    "family.onnx": {"point": "family"},
    "family.pt2": {"point": "family"},
    "family.safetensors": {"point": "family"},
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that trains a run when it is first asked for; that of a line is evaluated too."""
    out = tmp_path_factory.mktemp("runs")

    @cache
    def folder(name: str) -> Path:
        (run,) = ss.train(**TRAINED[name], epochs=1, out=out, show="quiet", tensorboard=False, device="cpu")
        if name == "line":
            ss.evaluate(run, grid=[0.1, 0.3], device="cpu", progress=False)
        return run.folder

    return folder


@pytest.fixture(scope="session")
def exported(trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that exports of the line what is asked for, once."""
    out = tmp_path_factory.mktemp("exported")
    return cache(lambda name: ss.export(trained("line"), out / name, **EXPORTED[name], progress=False))


class Truth:
    """The networks of a run, made without the code that exports them."""

    def __init__(self, folder: Path) -> None:
        self.recipe = Run.open(folder).recipe
        self.family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
        self.dataset = data.load("digits")

    def network(self, alpha: Any) -> nn.Module:
        execution = Execution(device="cpu").resolved()
        return ss.recalibrate(self.family.at(alpha), statistics_batches(self.recipe, self.dataset, execution)).eval()

    @property
    def images(self) -> Tensor:
        return self.dataset.test.images[40:47].float() / 255  # type: ignore[union-attr]

    @torch.no_grad()
    def probabilities(self, alpha: Any) -> Tensor:
        x = (self.images - self.dataset.mean[0]) / self.dataset.std[0]
        return self.network(alpha)(x).softmax(-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def together(self, *alphas: Any) -> Any:
        x = (self.images - self.dataset.mean[0]) / self.dataset.std[0]
        return ss.Ensemble([self.network(alpha) for alpha in alphas]).predict(x)


@pytest.fixture(scope="session")
def truth(trained: Callable[[str], Path]) -> Callable[[str], Truth]:
    return cache(lambda name: Truth(trained(name)))
