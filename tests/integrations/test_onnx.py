"""Networks of a family as ONNX files, and the family itself with the point as an input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed, which torch.onnx.export needs")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import onnxruntime

import subspaces as ss

pytestmark = pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")


def exported(module: nn.Module, path: Path, **inputs: Any) -> Any:
    torch.onnx.export(module, kwargs=inputs, f=str(path), dynamo=True, verbose=False)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def answer(session: Any, **inputs: torch.Tensor) -> torch.Tensor:
    (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    return torch.from_numpy(np.asarray(found))


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def test_the_midpoint_of_a_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from hf_models import TOKENS, classifier, seeded

    network = seeded(classifier).midpoint().eval()
    mask = (torch.arange(8) < 5).long().expand(24, 8)
    session = exported(network, tmp_path / "midpoint.onnx", input_ids=TOKENS, attention_mask=mask)
    with torch.no_grad():
        expected = network(input_ids=TOKENS, attention_mask=mask).logits
    torch.testing.assert_close(answer(session, input_ids=TOKENS, attention_mask=mask), expected, atol=1e-6, rtol=1e-4)


def test_a_family_with_its_point_as_an_input(tmp_path: Path) -> None:
    family, x = ss.Subspace(make, ss.Line()), torch.randn(4, 5)
    ss.recalibrate(family, [x]).eval()
    session = exported(family, tmp_path / "family.onnx", input=x, alpha=torch.tensor(0.5))
    assert [each.name for each in session.get_inputs()] == ["input", "alpha"]
    for alpha in (0.0, 0.3, 1.0):
        with torch.no_grad():
            expected = family(x, alpha=alpha)
        found = answer(session, input=x, alpha=torch.tensor(alpha))
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    assert not torch.equal(answer(session, input=x, alpha=torch.tensor(0.0)), found)
