"""Hugging Face: the plain `Trainer`, a loop of accelerate's, and the page and the example as they are printed."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from hf_models import TOKENS, answered, answerer, arguments, assert_same, classified, classifier, seeded, weights
from torch.testing import assert_close
from transformers import Trainer, ViTForImageClassification

import subspaces as ss

ROOT = Path(__file__).parent.parent.parent
DATA = {classifier: classified, answerer: answered}


def code_of(page: str, language: str = "python") -> list[str]:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture(autouse=True)
def _an_empty_folder_and_an_accelerator_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


def plain(data: Any) -> list[dict[str, Tensor]]:
    """Return rows without the column that no network knows."""
    return [{name: value for name, value in row.items() if name != "unknown"} for row in data]


@pytest.mark.parametrize("make", DATA, ids=lambda make: make.__name__)
def test_the_plain_trainer_trains_and_evaluates_the_midpoint(make: Any, tmp_path: Path) -> None:
    family, data = seeded(make), plain(DATA[make]())
    labels = [name for name in data[0] if name != "input_ids"]
    settings = arguments(tmp_path, remove_unused_columns=False, label_names=labels)
    family.config = family.template.config  # which says that caches are no predictions
    before = weights(family)
    trainer = Trainer(family, settings, train_dataset=data, eval_dataset=data)
    trainer.train()
    assert not torch.equal(before, weights(family))
    with torch.no_grad():
        expected = family.midpoint().eval()(**{name: torch.stack([row[name] for row in data]) for name in data[0]})
    found = trainer.predict(data).predictions
    logits = (expected.start_logits, expected.end_logits) if make is answerer else (expected.logits,)
    for mine, right in zip(found if make is answerer else (found,), logits, strict=True):
        assert_close(torch.tensor(mine), right)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.loss.item(), rel=1e-5)


def accelerated() -> tuple[Any, Any, Any, Any]:
    accelerator, family = Accelerator(cpu=True), seeded(classifier, ss.Simplex(3))
    optimizer = torch.optim.AdamW(family.parameter_groups(others={"weight_decay": 0}), lr=0.01)
    return accelerator, *accelerator.prepare(family, optimizer, DataLoader(plain(classified()), batch_size=4))


def train(accelerator: Any, model: Any, optimizer: Any, batches: Any) -> None:
    family = accelerator.unwrap_model(model)
    for batch in batches:
        accelerator.backward(model(**batch).loss + family.penalty(beta=0.3))
        optimizer.step()
        optimizer.zero_grad()


def test_a_saved_state_of_accelerate_continues_bit_for_bit(tmp_path: Path) -> None:
    everything = accelerated()
    torch.manual_seed(1)
    train(*everything)
    everything[0].save_state(str(tmp_path))
    train(*everything)
    AcceleratorState._reset_state(True)
    again = accelerated()
    again[0].load_state(str(tmp_path))
    train(*again)
    assert_same(dict(again[1].state_dict()), dict(everything[1].state_dict()))


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator:UserWarning")
def test_the_code_of_the_pages() -> None:
    pytest.importorskip("peft", reason="peft is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed, which torch.onnx.export needs")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    rows = plain(classified())
    names: dict[str, Any] = {"torch": torch, "ss": ss, "tokens": TOKENS, "loader": DataLoader(rows, batch_size=4)}
    names |= {"train": rows, "held_out": rows[:8]}
    code = [code_of("lora")[0], *code_of("huggingface"), *code_of("export", "python transformers")]
    for each in code:
        names["model"] = seeded(classifier).midpoint()  # peft changes it
        exec(each, names)
    assert type(names["merged"]) is type(names["model"])
    assert names["pair"](input_ids=TOKENS).shape == (24, 3)
    session = onnxruntime.InferenceSession("family.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": TOKENS.numpy(), "alpha": torch.tensor(0.2).numpy()})
    with torch.no_grad():
        expected = names["family"](input_ids=TOKENS, alpha=0.2).logits
    assert_close(torch.tensor(found), expected, atol=1e-6, rtol=1e-4)


def test_the_example_with_a_line_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "with_transformers.py"), run_name="__main__")
    found = re.search(r"the midpoint: ([\d.]+)%; two: ([\d.]+)%", capsys.readouterr().out)
    assert found is not None
    assert all(float(accuracy) > 90 for accuracy in found.groups())
    model = ViTForImageClassification.from_pretrained("midpoint").eval()
    family = ss.load(Path("family") / "family.safetensors", model).eval()
    images = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        assert_close(family(pixel_values=images).logits, model(pixel_values=images).logits)
