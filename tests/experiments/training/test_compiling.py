"""The compiler's limits, which count over all engines of a process."""

import dataclasses

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from training_cases import made_dataset

from subspaces.experiments.training import Execution, Recipe
from subspaces.experiments.training.engine import Engine


@pytest.mark.filterwarnings("ignore")  # what the compiler's own parts warn of
def test_many_engines_may_be_compiled():
    recipe = Recipe(name="small", dataset="made", network="mlp", batch=16)
    with torch._dynamo.config.patch(recompile_limit=8, accumulated_recompile_limit=256):
        engine = Engine(recipe, made_dataset(), Execution(device="cpu", compile=True).resolved())
        plain = (engine.optimizer.step, engine.loader.take, engine.objective)
        made = (engine.step._update, engine.step._take, engine.step._objective)
        assert all(one != other for one, other in zip(plain, made, strict=True))
        assert torch._dynamo.config.recompile_limit >= 10_000
        assert torch._dynamo.config.accumulated_recompile_limit >= 10_000


@pytest.mark.filterwarnings("ignore")
def test_runs_that_differ_in_numbers_share_a_program():
    base = Recipe(name="small", dataset="made", network="mlp", batch=16, method="line")
    execution, dataset, counter = Execution(device="cpu", compile=True).resolved(), made_dataset(), CompileCounter()
    changes = [{}, {"seed": 1}, {"beta": 0.5}, {"learning_rate": 0.01}, {"name": "other", "epochs": 3}]
    for change in changes:
        engine = Engine(dataclasses.replace(base, **change), dataset, execution)
        torch.compile(engine.objective, backend=counter, dynamic=False)(*engine.loader.take(16)).backward()
    assert counter.frame_count == 1
