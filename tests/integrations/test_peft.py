"""Families of peft's adapters: only they are in it, files without the base are small, and the midpoint merges."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, which transformers' Trainer needs")
pytest.importorskip("peft", reason="peft is not installed")

import peft
from hf_models import BERT, TOKENS, arguments, assert_same, classified, classifier, language_model, seeded
from safetensors import safe_open
from torch.testing import assert_close
from transformers import BertForSequenceClassification

import subspaces as ss
from subspaces.integrations.transformers import SubspaceTrainer

LORA: dict[str, Any] = {"r": 2, "target_modules": ["query", "value"], "lora_dropout": 0.1}


def base(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return classifier()


def adapted(seed: int = 0, task: str | None = "SEQ_CLS") -> nn.Module:
    return peft.get_peft_model(base(seed), peft.LoraConfig(task_type=task, **LORA))


def family_of(network: nn.Module, shape: ss.Shape | None = None) -> ss.Subspace:
    return ss.Subspace(network, shape or ss.Line(), seed=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ss.Subspace:
    """A family after a few steps, far enough that adapters say something."""
    family = family_of(adapted())
    settings = arguments(tmp_path_factory.mktemp("trained"), max_steps=6, learning_rate=0.05)
    SubspaceTrainer(family, settings, train_dataset=classified()).train()
    return family.eval()


def test_only_adapters_are_trained(trained: ss.Subspace) -> None:
    wanted = {name for name, parameter in adapted().named_parameters() if parameter.requires_grad}
    assert set(trained.vertex(0)) == wanted
    before = dict(base().named_parameters())
    frozen = dict(trained.template.named_parameters())
    assert sum(parameter.numel() for parameter in frozen.values()) > 0.9 * sum(p.numel() for p in before.values())
    for name, parameter in frozen.items():
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "").replace(".original_module", "")
        assert torch.equal(parameter, before[plain])
    assert trained.distances().l2[0, 1] > 0.01


def test_vertices_begin_on_the_base() -> None:
    family = family_of(adapted(), ss.Simplex(3)).eval()
    with torch.no_grad():
        expected = base().eval()(input_ids=TOKENS).logits
        for alpha in ([1, 0, 0], [0, 0, 1], [0.2, 0.3, 0.5]):
            assert_close(family(input_ids=TOKENS, alpha=alpha).logits, expected, atol=0.02, rtol=0)
    assert family.distances().l2[0, 1] > 0.01


def test_a_factory_whose_bases_differ_is_refused() -> None:
    seeds = iter(range(2))
    with pytest.raises(ValueError, match=r"frozen parameter .* of network 1 differs from network 0.*shared"):
        ss.Subspace(lambda: adapted(next(seeds)), ss.Line())


def test_a_file_of_adapters_is_small_and_loads_onto_the_same_base(trained: ss.Subspace, tmp_path: Path) -> None:
    small, whole = tmp_path / "small.safetensors", tmp_path / "whole.safetensors"
    ss.save(trained, small, shared=False)
    ss.save(trained, whole)
    shared = sum(parameter.nbytes for parameter in trained.template.parameters())
    assert whole.stat().st_size - small.stat().st_size > 0.5 * shared  # what is left holds a checksum of each
    assert_same(dict(ss.load(small, adapted()).state_dict()), dict(trained.state_dict()))
    with pytest.raises(ss.FileError, match="saved without its frozen parameters"):
        ss.load(small, adapted(1))


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


def test_a_stopped_run_of_adapters_continues_bit_for_bit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    settings |= {"bf16": True, "gradient_checkpointing": True, "save_total_limit": 2}
    made = partial(SubspaceTrainer, train_dataset=classified(), shared=False)
    whole = made(family_of(adapted(), ss.Simplex(3)), arguments(tmp_path, **settings))
    whole.train()
    again = made(family_of(adapted(), ss.Simplex(3)), arguments(tmp_path, **settings))
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_same(dict(again.model.state_dict()), dict(whole.model.state_dict()))
    with safe_open(tmp_path / "checkpoint-4" / "family.safetensors", "pt") as file:
        assert not [name for name in file.keys() if "base_layer" in name]  # noqa: SIM118 (it is no dict)


class Strict(BertForSequenceClassification):  # type: ignore[misc]
    """Takes only what it knows."""

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        inputs_embeds: Any = None,
        labels: Any = None,
        output_attentions: Any = None,
        output_hidden_states: Any = None,
        return_dict: Any = None,
    ) -> Any:
        return super().forward(input_ids=input_ids, labels=labels)


def test_a_model_that_counts_no_items_is_not_asked_to_through_its_wrapper(tmp_path: Path) -> None:
    network = peft.get_peft_model(Strict(BERT), peft.LoraConfig(task_type="SEQ_CLS", **LORA))
    trainer = SubspaceTrainer(family_of(network), arguments(tmp_path, max_steps=1), train_dataset=classified())
    assert not trainer.model_accepts_loss_kwargs
    trainer.train()


def test_the_inputs_are_found_through_any_wrapper(tmp_path: Path) -> None:
    family = family_of(adapted(task=None))
    trainer = SubspaceTrainer(family, train_dataset=classified(), args=arguments(tmp_path))
    assert trainer.label_names == ["labels"]
    text = peft.get_peft_model(language_model(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    written = family_of(text).midpoint().eval().generate(input_ids=TOKENS[:2], max_new_tokens=2, pad_token_id=0)
    assert written.shape == (2, 10)


def test_gradients_reach_adapters_through_checkpoints() -> None:
    found = []
    for wanted in (True, False):
        family = seeded(adapted())
        if wanted:
            family.gradient_checkpointing_enable()
        torch.manual_seed(1)
        family(input_ids=TOKENS, labels=TOKENS[:, 0] % 3).loss.backward()
        found.append({name: omega.grad for name, omega in family.omega.items()})
    assert_same(*found)
