"""peft: families of adapters on one base, trained and saved; and trained adapters as the vertices of a family."""

import re
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, which transformers' Trainer needs")
pytest.importorskip("peft", reason="peft is not installed")

import peft
from hf_models import TOKENS, arguments, classified, classifier
from torch.nn import functional as F
from torch.testing import assert_close

import subspaces as ss
from subspaces.integrations.peft import COMBINED, add_combined, family_of_adapters
from subspaces.integrations.transformers import SubspaceTrainer

# of peft 0.18, about a model without a name
pytestmark = pytest.mark.filterwarnings("ignore:Could not find a config file in  - will assume:UserWarning")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "lora.md"
NAMES = ["first", "second"]
LORA: dict[str, Any] = {"r": 2, "target_modules": ["query", "value"], "lora_dropout": 0.1}


def base(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return classifier()


def with_lora(seed: int = 0, task: str | None = "SEQ_CLS") -> nn.Module:
    return peft.get_peft_model(base(seed), peft.LoraConfig(task_type=task, **LORA))


def family_of(network: nn.Module, shape: ss.Shape | None = None) -> ss.Subspace:
    return ss.Subspace(network, shape or ss.Line(), seed=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ss.Subspace:
    """A family after a few steps, far enough that adapters say something."""
    family = family_of(with_lora())
    settings = arguments(tmp_path_factory.mktemp("trained"), max_steps=6, learning_rate=0.05)
    SubspaceTrainer(family, settings, train_dataset=classified()).train()
    return family.eval()


def test_the_midpoint_merges_into_a_plain_model(trained: ss.Subspace, tmp_path: Path) -> None:
    with torch.no_grad():
        expected = trained(input_ids=TOKENS).logits
        merged = trained.midpoint().eval().merge_and_unload()
        assert type(merged) is type(base())
        assert_close(merged(input_ids=TOKENS).logits, expected)
        trained.midpoint().save_pretrained(tmp_path)  # an adapter that peft alone can load
        again = peft.PeftModel.from_pretrained(base(), tmp_path).eval()
        assert_close(again(input_ids=TOKENS).logits, expected)
        pair = trained.ensemble([0.0, 1.0], share=True).eval()
        assert_close(pair(input_ids=TOKENS).sum(-1), torch.ones(24))


# Several trained adapters


def randomised(model: Any, seed: int) -> Any:
    """Give adapters and heads something to say."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                value.add_(0.3 * torch.randn(value.shape, generator=generator))
    return model.eval()


def with_two(task: str | None = None, **second: Any) -> Any:
    """Return a tiny model with two adapters of different rank and scaling."""
    torch.manual_seed(0)
    base = classifier()
    lora: dict[str, Any] = {"target_modules": ["query", "value"], "task_type": task, "lora_dropout": 0.1}
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, lora_alpha=4, **lora), adapter_name="first")
    model.add_adapter("second", peft.LoraConfig(**{"r": 3, "lora_alpha": 3, **lora, **second}))
    return randomised(model, 1)


def logits(model: nn.Module, **options: Any) -> Tensor:
    with torch.no_grad():
        return model(input_ids=TOKENS, **options).logits


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def updates(model: Any, name: str) -> dict[str, Tensor]:
    """Return what an adapter adds to each layer, as peft computes it."""
    parts = model.named_modules()
    return {key: part.get_delta_weight(name).detach() for key, part in parts if name in getattr(part, "lora_A", {})}


def assert_vertices_are_adapters(family: ss.Subspace, model: Any) -> None:
    for index, name in enumerate(NAMES):
        model.set_adapter(name)
        assert_close(logits(family, alpha=torch.eye(2)[index]), logits(model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("task", "second"),
    [
        (None, {}),
        (None, {"target_modules": ["query"], "use_rslora": True}),
        ("SEQ_CLS", {}),
    ],
)
def test_a_vertex_is_its_adapter_and_a_point_mixes_the_updates(task: str | None, second: Any) -> None:
    model = with_two(task, **second)
    before = state(model)
    family = family_of_adapters(model, NAMES).eval()
    assert any("classifier" in name for name in family.vertex(0)) == (task is not None)
    assert_vertices_are_adapters(family, model)
    mixed = updates(family.at([0.3, 0.7]), COMBINED)
    both = [updates(model, name) for name in NAMES]
    for key, update in mixed.items():
        wanted = sum(c * each[key] for c, each in zip((0.3, 0.7), both, strict=True) if key in each)
        assert_close(update, wanted, atol=1e-6, rtol=1e-5)
    middle = updates(family_of_adapters(model, NAMES, total=2).midpoint(), COMBINED)
    for key, update in middle.items():
        assert_close(update, sum(each[key] for each in both if key in each), atol=1e-6, rtol=1e-5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_coefficients_are_learned_and_the_adapter_is_saved(tmp_path: Path) -> None:
    model = with_two("SEQ_CLS")
    family = family_of_adapters(model, NAMES).eval()
    right = logits(family, alpha=[0.9, 0.1])

    def loss(output: Any, target: Tensor) -> Tensor:
        return F.mse_loss(output.logits, target, reduction="none").mean(1)

    batch = {"input_ids": TOKENS, "labels": right}
    selection = family.select([batch], by=loss, folds=0, steps=15)
    assert selection.moved
    assert selection.alpha[0] > 0.7
    layered = family.select([batch], by=loss, per="layer", folds=0, steps=5)
    assert layered.moved
    assert len(layered.alpha) == len(family.layers)

    add_combined(model, family, layered.alpha, "both")
    model.set_adapter("both")
    expected = logits(family, alpha=layered.alpha)
    assert_close(logits(model), expected, atol=1e-5, rtol=1e-5)
    model.save_pretrained(tmp_path, selected_adapters=["both"])
    torch.manual_seed(0)
    again = peft.PeftModel.from_pretrained(classifier(), tmp_path / "both").eval()
    assert_close(logits(again), expected, atol=1e-5, rtol=1e-5)


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ss.Subspace, "select", partialmethod(ss.Subspace.select, steps=2, folds=2))
    *_, code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    batch = {"input_ids": TOKENS, "labels": TOKENS[:, 0] % 3}
    loss = lambda output, target: F.cross_entropy(output.logits, target, reduction="none")  # noqa: E731
    exec(code, {"model": with_two(), "labelled": [batch], "loss": loss})
    assert (tmp_path / "adapters" / "both" / "adapter_model.safetensors").is_file()


def test_what_makes_no_family_is_refused() -> None:
    model = with_two()
    for names, message in (
        (["first"], r"expected at least two different adapters"),
        (["first", "first"], r"expected at least two different adapters"),
        (["first", "secnd"], r"names has 'secnd': did you mean 'second'"),
        ("first", r"names='first': expected a list of adapters"),
    ):
        with pytest.raises(ValueError, match=message):
            family_of_adapters(model, names)
    with pytest.raises(TypeError, match=r"got a Linear: expected a model of peft"):
        family_of_adapters(nn.Linear(2, 2), NAMES)
    with pytest.raises(ValueError, match=r"adapter 'second' is of another kind: expected LoRA"):
        family_of_adapters(with_two(use_dora=True), NAMES)
    family = family_of_adapters(model, NAMES)
    with pytest.raises(ValueError, match=r"name='first': the model has an adapter of that name"):
        add_combined(model, family, [0.5, 0.5], "first")
    with pytest.raises(TypeError, match=r"expected one that family_of_adapters made"):
        add_combined(model, ss.Subspace(nn.Linear(2, 2), ss.Line()), 0.5, "new")
