"""The networks of runs, made without the code that exports them, and what the tests of exports share."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import subspaces as ss
from subspaces.experiments import data
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import statistics_batches
from subspaces.export import ModelError
from subspaces.networks import MLP


class Truth:
    """The networks of a run, made without the code that exports them."""

    def __init__(self, folder: Path) -> None:
        self.recipe = Run.open(folder).recipe
        self.family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
        self.dataset = data.load("digits")
        self.images: Tensor = self.dataset.test.images[40:47].float() / 255  # type: ignore[union-attr]

    def scaled(self, images: Tensor) -> Tensor:
        return (images - self.dataset.mean[0]) / self.dataset.std[0]

    def network(self, alpha: Any) -> nn.Module:
        execution = Execution(device="cpu").resolved()
        return ss.recalibrate(self.family.at(alpha), statistics_batches(self.recipe, self.dataset, execution)).eval()

    @torch.no_grad()
    def probabilities(self, alpha: Any) -> Tensor:
        return self.network(alpha)(self.scaled(self.images)).softmax(-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def together(self, *alphas: Any) -> Any:
        return ss.Ensemble([self.network(alpha) for alpha in alphas]).predict(self.scaled(self.images))


def card(path: Path) -> str:
    return path.with_name(f"{path.name}.md").read_text()


def run_card(path: Path, names: dict[str, Tensor], monkeypatch: Any, **more: Any) -> dict[str, Tensor]:
    """Run the lines of a card, in which the inputs have the names that it says."""
    monkeypatch.chdir(path.parent)
    (code,) = re.findall(r"```python\n(.*?)```", card(path), re.DOTALL)
    known: dict[str, Any] = {name: each.numpy() if path.suffix == ".onnx" else each for name, each in names.items()}
    known |= {"torch": torch, **more}
    exec(code, known)
    found = {name: each for name, each in known.items() if isinstance(each, (Tensor, np.ndarray))}
    return {name: torch.as_tensor(each).detach() for name, each in found.items()}


def refused(model: Path, image: Path, said: str, **settings: Any) -> None:
    """Check that a file is not read, and what is said of it."""
    with pytest.raises(ModelError, match=re.escape(said)):
        ss.predict(model, image, progress=False, **settings)
