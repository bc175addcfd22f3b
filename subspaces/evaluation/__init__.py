"""From a family and its data to numbers: metrics, answers, tasks, points, planes, and the record of them all."""

from subspaces.evaluation.answers import ANSWERS, Answer
from subspaces.evaluation.integrity import check
from subspaces.evaluation.metrics import METRICS, Metric, average
from subspaces.evaluation.points import Item
from subspaces.evaluation.record import Check, Choice, Plane, Record, Row
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
    "Item",
    "Metric",
    "Plane",
    "Record",
    "Regression",
    "Row",
    "Task",
    "average",
    "check",
]
