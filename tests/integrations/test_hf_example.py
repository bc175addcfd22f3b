"""The worked example with Hugging Face's Trainer runs as it is, in an empty folder, and leaves what it says."""

import re
import runpy
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, which transformers' Trainer needs")

from accelerate.state import AcceleratorState
from transformers import ViTForImageClassification

import subspaces as ss

EXAMPLE = Path(__file__).parents[2] / "examples" / "with_transformers.py"


def test_a_line_of_models_of_hugging_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    AcceleratorState._reset_state(True)  # of other tests
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    AcceleratorState._reset_state(True)
    found = re.search(r"the midpoint: ([\d.]+)%; two: ([\d.]+)%", capsys.readouterr().out)
    assert found is not None
    assert all(float(accuracy) > 90 for accuracy in found.groups())
    model = ViTForImageClassification.from_pretrained(tmp_path / "midpoint").eval()
    family = ss.load(tmp_path / "family" / "family.safetensors", model).eval()
    images = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(family(pixel_values=images).logits, model(pixel_values=images).logits)
