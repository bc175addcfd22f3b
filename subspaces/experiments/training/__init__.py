"""Training: recipes, the engine, run folders."""

from subspaces.experiments.locks import Stopped
from subspaces.experiments.training.api import train
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import RECIPES, Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.trainer import TrainingError

__all__ = ["RECIPES", "Execution", "Recipe", "Run", "RunError", "Stopped", "TrainingError", "train"]
