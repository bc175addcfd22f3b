"""One training run, a whole family of networks: lines, curves and simplexes in weight space."""

import importlib
from typing import TYPE_CHECKING, Any

from subspaces import networks
from subspaces.api import export, predict
from subspaces.core.batchnorm import recalibrate
from subspaces.core.distributed import distribute
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.loading import load
from subspaces.core.memory import keep_memory
from subspaces.core.nested import Sampled
from subspaces.core.selection import Selection
from subspaces.core.shapes import Bezier, Line, Point, Shape, Simplex
from subspaces.core.storage import FileError, save
from subspaces.errors import UserError
from subspaces.version import __version__

if TYPE_CHECKING:
    from subspaces.evaluation import Classification, Corruptions, Metric, Regression, Task
    from subspaces.evaluations import Evaluation, evaluate, plot, report
    from subspaces.experiments import studies
    from subspaces.experiments.evaluating.integrity import check
    from subspaces.experiments.paper.reproduce import reproduce
    from subspaces.experiments.studies.compare import compare
    from subspaces.experiments.training import Recipe, train

__all__ = [
    "Bezier",
    "Classification",
    "Corruptions",
    "Ensemble",
    "Evaluation",
    "FileError",
    "Line",
    "Metric",
    "Point",
    "Recipe",
    "Regression",
    "Sampled",
    "Selection",
    "Shape",
    "Simplex",
    "Subspace",
    "Task",
    "UserError",
    "__version__",
    "check",
    "compare",
    "distribute",
    "evaluate",
    "export",
    "keep_memory",
    "load",
    "networks",
    "plot",
    "predict",
    "recalibrate",
    "report",
    "reproduce",
    "save",
    "studies",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import what is not the core when it is first asked for, so that the core stays quick to import."""
    if name in ("Recipe", "train"):
        from subspaces.experiments import training

        return getattr(training, name)
    if name in ("Evaluation", "evaluate", "plot", "report"):
        return getattr(importlib.import_module("subspaces.evaluations"), name)
    if name == "check":
        return importlib.import_module("subspaces.experiments.evaluating.integrity").check
    if name in ("Answer", "Classification", "Corruptions", "Metric", "Regression", "Task"):
        from subspaces import evaluation

        return getattr(evaluation, name)
    if name in ("compare", "reproduce"):
        package = "studies" if name == "compare" else "paper"
        return getattr(importlib.import_module(f"subspaces.experiments.{package}.{name}"), name)
    if name in ("data", "studies"):
        return importlib.import_module(f"subspaces.experiments.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
