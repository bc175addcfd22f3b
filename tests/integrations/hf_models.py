"""Tiny models and data for the tests with Hugging Face's libraries."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    TrainingArguments,
)

import subspaces as ss

BERT = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=12,
    num_labels=3,
    use_cache=False,
)
GPT2 = GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=12, bos_token_id=0, eos_token_id=0)
TOKENS = torch.randint(1, 50, (24, 8), generator=torch.Generator().manual_seed(0))


def classifier() -> nn.Module:
    return BertForSequenceClassification(BERT)


def answerer() -> nn.Module:
    return BertForQuestionAnswering(BertConfig(**{**BERT.to_dict(), "num_labels": 2}))


def language_model() -> nn.Module:
    return GPT2LMHeadModel(GPT2)


def seeded(network: Any, shape: ss.Shape | None = None, **options: Any) -> ss.Subspace:
    """Return a family that is always the same."""
    torch.manual_seed(0)
    return ss.Subspace(network, shape or ss.Line(), seed=0, **options)


def classified() -> list[dict[str, Tensor]]:
    """Return sentences with the class that their first word tells, and a column that no network knows."""
    return [{"input_ids": row, "labels": row[0] % 3, "unknown": torch.zeros(2)} for row in TOKENS]


def answered() -> list[dict[str, Tensor]]:
    places = [{"start_positions": row[0] % 8, "end_positions": row[1] % 8} for row in TOKENS]
    return [{"input_ids": row, **place} for row, place in zip(TOKENS, places, strict=True)]


def continued() -> list[dict[str, Tensor]]:
    """Return texts with their next words as labels, of which some count nothing."""
    return [{"input_ids": row, "labels": row.where(torch.arange(8) > row[0] % 4, -100)} for row in TOKENS]


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    default: dict[str, Any] = {"save_strategy": "no", "max_steps": 2, "per_device_train_batch_size": 4}
    quiet: dict[str, Any] = {"use_cpu": True, "report_to": [], "disable_tqdm": True}
    return TrainingArguments(str(folder), **(default | quiet | options))


class Normed(nn.Module):
    """A network with batch norm that answers as Hugging Face's do."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(50, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.dropout = nn.Dropout(0.1)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.head(self.dropout(self.norm(self.embedding(input_ids[:, 0]))))
        found = {"logits": logits}
        return found if labels is None else {"loss": nn.functional.cross_entropy(logits, labels), **found}


def vertices(family: ss.Subspace) -> dict[str, Tensor]:
    return {name: omega.detach().clone() for name, omega in family.omega.items()}


def weights(family: ss.Subspace) -> Tensor:
    """Return all weights of two or more dimensions, vertex by vertex."""
    return torch.cat(
        [family.omega[group.name].detach() for group in family.layout.groups if group.penalised], 1
    ).clone()


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
