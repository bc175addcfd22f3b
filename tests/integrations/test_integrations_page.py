"""The page about other libraries and the example with Hugging Face's Trainer run as they are printed."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
pytest.importorskip("peft", reason="peft is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed, which torch.onnx.export needs")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import onnxruntime
from accelerate.state import AcceleratorState
from hf_models import TOKENS, classified, classifier, seeded
from torch.utils.data import DataLoader
from transformers import ViTForImageClassification

import subspaces as ss

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _an_empty_folder_and_an_accelerator_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator:UserWarning")
def test_the_code_of_the_page() -> None:
    rows = [{name: row[name] for name in ("input_ids", "labels")} for row in classified()]
    names: dict[str, Any] = {"torch": torch, "ss": ss, "tokens": TOKENS, "loader": DataLoader(rows, batch_size=4)}
    names |= {"train": rows, "held_out": rows[:8]}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "integrations.md").read_text(), re.DOTALL):
        names["model"] = seeded(classifier).midpoint()  # peft changes it
        exec(code, names)
    assert type(names["merged"]) is type(names["model"])
    assert names["pair"](input_ids=TOKENS).shape == (24, 3)
    session = onnxruntime.InferenceSession("family.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": TOKENS.numpy(), "alpha": torch.tensor(0.2).numpy()})
    with torch.no_grad():
        expected = names["family"](input_ids=TOKENS, alpha=0.2).logits
    torch.testing.assert_close(torch.tensor(found), expected, atol=1e-6, rtol=1e-4)


def test_the_example_with_a_line_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "with_transformers.py"), run_name="__main__")
    found = re.search(r"the midpoint: ([\d.]+)%; two: ([\d.]+)%", capsys.readouterr().out)
    assert found is not None
    assert all(float(accuracy) > 90 for accuracy in found.groups())
    model = ViTForImageClassification.from_pretrained("midpoint").eval()
    family = ss.load(Path("family") / "family.safetensors", model).eval()
    images = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(family(pixel_values=images).logits, model(pixel_values=images).logits)
