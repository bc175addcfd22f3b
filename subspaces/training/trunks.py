"""What branches share: the state after so many epochs, left by the first run that comes there.

It lies beside the runs, in `.trunks`, named by the run that all are branches of.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from subspaces import files
from subspaces.training.config import Recipe
from subspaces.training.runs import Run, RunError, stored


def stem(recipe: Recipe) -> str:
    """Return what all branches of one run have in common."""
    return dataclasses.replace(recipe, trunk=0, branch=0).key


def path(run: Run, epoch: int) -> Path:
    """Return where the state of a run's stem after so many epochs lies."""
    return run.folder.parent / ".trunks" / f"{stem(run.recipe)}-epoch{epoch}.safetensors"


def leave(run: Run, tensors: Mapping[str, Tensor]) -> None:
    """Write the state at the end of the trunk, with the log so far, unless it is there."""
    target = path(run, run.recipe.trunk)
    if not target.is_file():
        target.parent.mkdir(exist_ok=True)
        log = "".join(json.dumps(row) + "\n" for row in run.log())
        files.write(target, safetensors.torch.save(stored(tensors), {"log": log}))


def enter(run: Run) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the state that is nearest to the end of a run's trunk, and begin the run's log with that of the state."""
    epochs = [epoch for epoch in range(run.recipe.trunk, 0, -1) if path(run, epoch).is_file()]
    if not epochs:
        return None
    found = path(run, epochs[0])
    try:
        with safe_open(found, framework="pt") as file:
            log = (file.metadata() or {})["log"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError) as error:
        raise RunError(f"{found} is damaged ({error}): remove it") from None
    files.write(run.folder / "log.jsonl", log.encode())
    return tensors, {"epoch": epochs[0], "done": 0}
