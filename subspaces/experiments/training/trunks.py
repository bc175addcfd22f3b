"""What branches share: the state after so many epochs, left by the first run that comes there.

It lies beside the runs, in `.trunks`, named by the run that all are branches of.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from subspaces.core import files
from subspaces.experiments.training import run_files
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run


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
        run_files.write_tensors(target, tensors, {"log": json.dumps(run.log())}, stem(run.recipe))


def enter(run: Run) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the state that is nearest to the end of a run's trunk, and begin the run's log with that of the state."""
    epochs = [epoch for epoch in range(run.recipe.trunk, 0, -1) if path(run, epoch).is_file()]
    if run.recipe.trunk and path(run, 0).parent.is_dir():
        files.sweep(path(run, 0).parent)
    if not epochs:
        return None
    found, remedy = path(run, epochs[0]), "remove it, and the trunk is trained again"
    header, tensors = run_files.read_tensors(found, stem(run.recipe), remedy)
    run.begin_log(json.loads(header["log"]))
    return tensors, {"epoch": epochs[0], "done": 0}
