"""The compiler's limits, which count over all engines of a process."""

import pytest
import torch
from training_cases import made_dataset

from subspaces.training import Execution, Recipe
from subspaces.training.engine import Engine


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
