"""What a reader needs to know to repeat a run."""

import dataclasses
from typing import Any

from subspaces.evaluation import environment as facts
from subspaces.evaluation.environment import commit as commit  # noqa: PLC0414
from subspaces.evaluation.environment import processor as processor  # noqa: PLC0414
from subspaces.experiments.training.execution import Execution


def environment(execution: Execution, processes: int = 1) -> dict[str, Any]:
    """Return versions, commit, hardware, processes and settings."""
    return facts.environment(dataclasses.asdict(execution), processes)
