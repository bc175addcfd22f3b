"""The compiler's limits, which count over all engines of a process."""

import dataclasses
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from training_cases import CPU, DIGITS, made_dataset, train_one

from subspaces.experiments.training import Execution, Recipe
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.trainer import Trainer


@pytest.mark.filterwarnings("ignore")
def test_runs_that_differ_in_numbers_share_a_program():
    base = Recipe(name="small", dataset="made", network="mlp", batch=16, method="line")
    execution, dataset, counter = Execution(device="cpu", compile=True).resolved(), made_dataset(), CompileCounter()
    changes = [{}, {"seed": 1}, {"beta": 0.5}, {"learning_rate": 0.01}, {"name": "other", "epochs": 3}]
    for change in changes:
        engine = Engine(dataclasses.replace(base, **change), dataset, execution)
        torch.compile(engine.objective, backend=counter, dynamic=False)(*engine.loader.take(16)).backward()
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore")
def test_many_runs_may_be_compiled_and_the_limits_of_the_caller_stay(tmp_path, monkeypatch):
    limits: list[int] = []
    before = torch._dynamo.config.recompile_limit
    begin = Trainer.__init__

    def noting(*given: Any, **named: Any) -> None:
        limits.append(torch._dynamo.config.recompile_limit)
        begin(*given, **named)

    monkeypatch.setattr(Trainer, "__init__", noting)
    recipe = dataclasses.replace(DIGITS, epochs=1, batch=45)
    train_one(recipe, tmp_path, made_dataset(), dataclasses.replace(CPU, compile=True))
    assert limits == [2**16]
    assert torch._dynamo.config.recompile_limit == before
