"""A loop of accelerate's: prepare, accumulate, save and load, and the penalty below its wrappers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

import accelerate
from hf_models import assert_same, classified, classifier, seeded, vertices
from torch.testing import assert_close

import subspaces as ss
from subspaces.experiments.training.world import leave


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


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo")
def test_the_penalty_below_a_wrapper_of_many_processes(tmp_path: Path) -> None:
    dist.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        family = seeded(classifier)
        model = DistributedDataParallel(family)
        accelerator = accelerate.Accelerator(cpu=True)
        assert accelerator.unwrap_model(model) is family
        torch.manual_seed(1)
        (model(**next(iter(loader()))).loss + accelerator.unwrap_model(model).penalty()).backward()
        expected = seeded(classifier)
        torch.manual_seed(1)
        (expected(**next(iter(loader()))).loss + expected.penalty()).backward()
        for name, omega in family.omega.items():
            assert_close(omega.grad, expected.omega[name].grad)
        ss.save(model, tmp_path / "family.safetensors")
        assert_same(vertices(ss.load(tmp_path / "family.safetensors", classifier)), vertices(family))
    finally:
        leave()


@pytest.fixture(autouse=True)
def _an_accelerator_of_its_own() -> Any:
    """Forget the settings that accelerate keeps for a whole process."""
    accelerate.state.AcceleratorState._reset_state(True)
    yield
    accelerate.state.AcceleratorState._reset_state(True)
