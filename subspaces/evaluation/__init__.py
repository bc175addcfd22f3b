"""From a family and its data to numbers: metrics, answers, tasks, points, planes, and the record of them all."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subspaces.evaluation.evaluation import Evaluation
    from subspaces.evaluation.metrics import METRICS, Metric, average
    from subspaces.evaluation.points import ANSWERS, Answer, Item
    from subspaces.evaluation.rows import Choice, Plane, Row
    from subspaces.evaluation.settings import Corruptions
    from subspaces.evaluation.tasks import TASKS, Classification, Regression, Task

__all__ = ["ANSWERS", "METRICS", "TASKS", "Answer", "Choice", "Classification", "Corruptions", "Evaluation"]
__all__ += ["Item", "Metric", "Plane", "Regression", "Row", "Task", "average"]
_HOMES = {
    "evaluation": ("Evaluation",),
    "metrics": ("METRICS", "Metric", "average"),
    "points": ("ANSWERS", "Answer", "Item"),
    "rows": ("Choice", "Plane", "Row"),
    "settings": ("Corruptions",),
    "tasks": ("TASKS", "Classification", "Regression", "Task"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that parts of the package are importable alone."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
