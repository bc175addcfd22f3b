"""Families of Hugging Face's models: how they are called, and trained by the plain `Trainer`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed")

from hf_models import (
    answered,
    answerer,
    arguments,
    classified,
    classifier,
    continued,
    language_model,
    seeded,
    weights,
)
from torch.testing import assert_close
from transformers import Trainer

DATA = {classifier: classified, answerer: answered, language_model: continued}


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
    if make is not language_model:  # whose batches do not have equally many labels that count
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.loss.item(), rel=1e-5)
