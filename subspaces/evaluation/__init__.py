"""From a family and its data to numbers: metrics, answers, tasks, points, planes, and the record of them all."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subspaces.evaluation.answers import ANSWERS, Answer
    from subspaces.evaluation.evaluation import Evaluation
    from subspaces.evaluation.metrics import METRICS, Metric, average
    from subspaces.evaluation.points import Item
    from subspaces.evaluation.rows import Check, Choice, Plane, Row
    from subspaces.evaluation.shifted_data import Corruptions
    from subspaces.evaluation.tasks import TASKS, Classification, Regression, Task

__all__ = [
    "ANSWERS",
    "METRICS",
    "TASKS",
    "Answer",
    "Check",
    "Choice",
    "Classification",
    "Corruptions",
    "Evaluation",
    "Item",
    "Metric",
    "Plane",
    "Regression",
    "Row",
    "Task",
    "average",
]
_HOME = {
    **dict.fromkeys(("ANSWERS", "Answer"), "answers"),
    **dict.fromkeys(("METRICS", "Metric", "average"), "metrics"),
    "Item": "points",
    "Evaluation": "evaluation",
    **dict.fromkeys(("Check", "Choice", "Plane", "Row"), "rows"),
    "Corruptions": "shifted_data",
    **dict.fromkeys(("TASKS", "Classification", "Regression", "Task"), "tasks"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that a single module is importable alone."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
