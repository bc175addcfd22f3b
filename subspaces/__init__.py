"""One training run, a whole family of networks: lines, curves and simplexes in weight space."""

from subspaces import importing  # noqa: F401 (before all else: it decides where that comes from)

# isort: split
import importlib
from typing import TYPE_CHECKING, Any

from subspaces import networks
from subspaces.batchnorm import recalibrate
from subspaces.distributed import distribute, reduce_theta
from subspaces.ensembles import Ensemble
from subspaces.errors import UserError
from subspaces.features import Sampled
from subspaces.memory import keep_memory
from subspaces.selection import Selection
from subspaces.shapes import Bezier, Line, Point, Shape, Simplex
from subspaces.storage import FileError, load, save
from subspaces.subspace import Subspace
from subspaces.version import __version__

if TYPE_CHECKING:
    from subspaces import studies
    from subspaces.api import Evaluation, evaluate, plot, report
    from subspaces.evaluation import Classification, Corruptions, Metric, Regression, Task, check
    from subspaces.production import export, predict
    from subspaces.studies.compare import compare
    from subspaces.studies.reproduce import reproduce
    from subspaces.training import Recipe, train

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
    "reduce_theta",
    "report",
    "reproduce",
    "save",
    "studies",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import what is not the core when it is first asked for, so that the core stays quick to import."""
    if name in ("Recipe", "train"):
        from subspaces import training

        return getattr(training, name)
    if name in ("Evaluation", "evaluate", "plot", "report"):
        from subspaces import api

        return getattr(api, name)
    if name in ("Answer", "Classification", "Corruptions", "Metric", "Regression", "Task", "check"):
        from subspaces import evaluation

        return getattr(evaluation, name)
    if name in ("export", "predict"):
        from subspaces import production

        return getattr(production, name)
    if name in ("compare", "reproduce"):
        return getattr(importlib.import_module(f"subspaces.studies.{name}"), name)
    if name == "studies":
        return importlib.import_module("subspaces.studies")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
