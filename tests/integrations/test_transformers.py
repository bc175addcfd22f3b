"""Families of Hugging Face's models: how they are drawn, called, checkpointed, and trained by the plain `Trainer`."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed")

from hf_models import (
    TOKENS,
    answered,
    answerer,
    arguments,
    assert_same,
    classified,
    classifier,
    continued,
    language_model,
    seeded,
    weights,
)
from torch.testing import assert_close
from transformers import BertForSequenceClassification, Trainer

import subspaces as ss

DATA = {classifier: classified, answerer: answered, language_model: continued}
LABELS = {
    classifier: ["labels"],
    answerer: ["start_positions", "end_positions"],
    language_model: ["labels"],
}
models = pytest.mark.parametrize("make", DATA, ids=lambda make: make.__name__)


@models
def test_the_plain_trainer_needs_no_setting(make: Any, tmp_path: Path) -> None:
    family, data = seeded(make), DATA[make]()
    before = weights(family)
    trainer = Trainer(family, arguments(tmp_path), train_dataset=data, eval_dataset=data)
    assert trainer.label_names == LABELS[make]
    trainer.train()
    assert not torch.equal(before, weights(family))
    midpoint = family.midpoint().eval()
    batch = {name: torch.stack([row[name] for row in data]) for name in data[0] if name != "unknown"}
    with torch.no_grad():
        expected = midpoint(**batch)
    predicted = trainer.predict(data)
    logits = (expected.start_logits, expected.end_logits) if make is answerer else (expected.logits,)
    found = predicted.predictions if make is answerer else (predicted.predictions,)
    for mine, right in zip(found, logits, strict=True):
        assert_close(torch.tensor(mine), right)
    if make is not language_model:  # whose batches do not have equally many labels that count
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.loss.item(), rel=1e-5)


def test_the_plain_trainer_continues_bit_for_bit(tmp_path: Path) -> None:
    settings = arguments(tmp_path, max_steps=4, save_strategy="steps", save_steps=2)
    whole = Trainer(seeded(classifier, ss.Simplex(3)), settings, train_dataset=classified())
    whole.train()
    again = Trainer(ss.Subspace(classifier, ss.Simplex(3)), settings, train_dataset=classified())
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_same(dict(again.model.state_dict()), dict(whole.model.state_dict()))


@models
def test_the_signature_shows_the_inputs_of_the_model(make: Any) -> None:
    family = seeded(make)
    expected = [*inspect.signature(make().forward).parameters]
    for place in (family, type(family)):
        found = [name for name in inspect.signature(place.forward).parameters if name != "self"]
        assert [name for name in found if name in expected] == expected
        assert set(found) - set(expected) == {"alpha", "samples", "features", "outside"}
    assert family.config is family.template.config


@models
def test_a_factory_draws_every_vertex_by_the_models_own_rule(make: Any) -> None:
    family = seeded(make, ss.Simplex(3))
    embeddings = [name for name in family.vertex(0) if name.endswith(("word_embeddings.weight", "wte.weight"))]
    assert len(embeddings) == 1
    for index in range(3):
        vertex = family.vertex(index)
        assert vertex[embeddings[0]].std() == pytest.approx(0.02, rel=0.15)
        assert all(vertex[name].std() < 0.05 for name in vertex if vertex[name].ndim > 1)
    assert family.distances().cos2[0, 1] < 0.05
    assert family.distances().cos2[1, 2] < 0.05


def test_vertices_have_the_scales_of_residual_paths() -> None:
    for network in (language_model, language_model()):
        family = seeded(network, ss.Simplex(3))
        for index in range(3):
            paths = [value for name, value in family.vertex(index).items() if name.endswith("mlp.c_proj.weight")]
            assert [path.std() for path in paths] == [pytest.approx(0.02 / 2**0.5, rel=0.1)]


def test_all_vertices_start_at_a_pretrained_model(tmp_path: Path) -> None:
    classifier().save_pretrained(tmp_path)
    model = BertForSequenceClassification.from_pretrained(tmp_path)
    family = ss.Subspace(model, ss.Line())
    for index in range(2):
        for name, value in family.vertex(index).items():
            weight = model.get_parameter(name).detach()
            size = 0.1 * weight.norm() if weight.ndim > 1 else torch.zeros(())
            assert_close((value - weight).norm(), size)


def test_a_language_model_stays_tied_and_writes() -> None:
    family = seeded(language_model, ss.Bezier(1))
    assert "lm_head.weight" not in {entry.names[0] for group in family.layout.groups for entry in group.entries}
    network = family.midpoint().eval()
    assert network.lm_head.weight is network.transformer.wte.weight
    written = network.generate(TOKENS[:2], max_new_tokens=3, do_sample=False, pad_token_id=0)
    with torch.no_grad():
        assert torch.equal(written[:, 8], family.eval()(TOKENS[:2]).logits[:, -1].argmax(-1))
    assert written.shape == (2, 11)


def test_several_points_of_a_batch() -> None:
    family, labels = seeded(classifier), TOKENS[:, 0] % 3
    found = family(input_ids=TOKENS, labels=labels, samples=2)
    assert found.logits.shape == (24, 3)
    assert found.loss.requires_grad


def test_an_ensemble_reads_the_logits() -> None:
    family = seeded(classifier).eval()
    pair = family.ensemble([0.1, 0.9]).eval()
    with torch.no_grad():
        each = [family(input_ids=TOKENS, alpha=alpha).logits.softmax(-1) for alpha in (0.1, 0.9)]
        assert_close(pair(input_ids=TOKENS), (each[0] + each[1]) / 2)
        assert pair.predict(input_ids=TOKENS).disagreement.shape == (24,)


def gradients(make: Any, data: Any, checkpointed: bool, compiled: bool = False) -> list[Tensor]:
    family = seeded(make, ss.Simplex(3))
    if checkpointed:
        family.gradient_checkpointing_enable()
        assert family.is_gradient_checkpointing
    call: Any = torch.compile(family, backend="aot_eager", fullgraph=True) if compiled else family
    batch = {name: torch.stack([row[name] for row in data()[:6]]) for name in ("input_ids", "labels")}
    torch.manual_seed(1)
    call(**batch, **({"use_cache": False} if make is language_model else {})).loss.backward()
    return [omega.grad for omega in family.omega.values() if omega.grad is not None]


@pytest.mark.parametrize(("make", "compiled"), [(language_model, False), (classifier, True)])
def test_gradient_checkpointing_gives_the_same_gradients(make: Any, compiled: bool) -> None:
    found = gradients(make, DATA[make], True, compiled)
    expected = gradients(make, DATA[make], False)
    assert len(found) == len(expected) > 1
    for mine, right in zip(found, expected, strict=True):
        assert_close(mine, right, atol=1e-7, rtol=1e-4) if compiled else assert_same({"": mine}, {"": right})


def test_autocast_leaves_the_vertices_in_float32() -> None:
    family, labels = seeded(classifier), TOKENS[:, 0] % 3
    with torch.autocast("cpu", torch.bfloat16):
        output = family(input_ids=TOKENS, labels=labels)
    output.loss.backward()
    assert output.logits.dtype == torch.bfloat16
    assert all(omega.grad is not None and omega.grad.dtype == torch.float32 for omega in family.omega.values())
