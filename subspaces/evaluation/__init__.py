"""From a family and its data to numbers: metrics, answers, tasks, points, planes, and the record of them all."""

from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import METRICS, Metric, average
from subspaces.evaluation.points import ANSWERS, Answer, Item
from subspaces.evaluation.rows import Choice, Plane, Row
from subspaces.evaluation.settings import Corruptions
from subspaces.evaluation.tasks import TASKS, Classification, Regression, Task

__all__ = ["ANSWERS", "METRICS", "TASKS", "Answer", "Choice", "Classification", "Corruptions", "Evaluation"]
__all__ += ["Item", "Metric", "Plane", "Regression", "Row", "Task", "average"]
