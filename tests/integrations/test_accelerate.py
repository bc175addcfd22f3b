"""A loop of accelerate's: prepare, accumulate, save and load."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

import accelerate
from hf_models import assert_same, classified, classifier, seeded, vertices
from torch.testing import assert_close

import subspaces as ss


def loader() -> DataLoader[Any]:
    rows = [{name: row[name] for name in ("input_ids", "labels")} for row in classified()]
    return DataLoader(rows, batch_size=4)


def prepared(**options: Any) -> tuple[Any, Any, Any, Any]:
    accelerator = accelerate.Accelerator(cpu=True, **options)
    family = seeded(classifier, ss.Simplex(3))
    optimizer = torch.optim.AdamW(family.parameter_groups(others={"weight_decay": 0}), lr=0.01)
    return accelerator, *accelerator.prepare(family, optimizer, loader())


def train(accelerator: Any, model: Any, optimizer: Any, batches: Any) -> None:
    family = accelerator.unwrap_model(model)
    model.train()
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss + family.penalty(beta=0.3))
            optimizer.step()
            optimizer.zero_grad()


def test_accumulated_steps_are_those_of_a_plain_loop() -> None:
    everything = prepared(gradient_accumulation_steps=2)
    torch.manual_seed(1)
    train(*everything)
    family = seeded(classifier, ss.Simplex(3))
    optimizer = torch.optim.AdamW(family.parameter_groups(others={"weight_decay": 0}), lr=0.01)
    torch.manual_seed(1)
    for index, batch in enumerate(loader()):
        ((family(**batch).loss + family.penalty(beta=0.3)) / 2).backward()
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()
    found: ss.Subspace = everything[0].unwrap_model(everything[1])
    assert_close(vertices(found), vertices(family))
    assert torch.equal(found.rng, family.rng)


def test_a_saved_state_continues_bit_for_bit(tmp_path: Path) -> None:
    everything = prepared()
    torch.manual_seed(1)
    train(*everything)
    everything[0].save_state(str(tmp_path))
    train(*everything)
    accelerate.state.AcceleratorState._reset_state(True)
    again = prepared()
    again[0].load_state(str(tmp_path))
    train(*again)
    assert_same(dict(again[1].state_dict()), dict(everything[1].state_dict()))


@pytest.fixture(autouse=True)
def _an_accelerator_of_its_own() -> Any:
    """Forget the settings that accelerate keeps for a whole process."""
    accelerate.state.AcceleratorState._reset_state(True)
    yield
    accelerate.state.AcceleratorState._reset_state(True)
