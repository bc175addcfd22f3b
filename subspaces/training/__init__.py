"""Training: recipes, the engine, run folders."""

from subspaces.training.api import train
from subspaces.training.execution import Execution
from subspaces.training.recipe import Recipe
from subspaces.training.recipes import RECIPES
from subspaces.training.runs import Run, RunError
from subspaces.training.signals import Stopped
from subspaces.training.trainer import TrainingError

__all__ = ["RECIPES", "Execution", "Recipe", "Run", "RunError", "Stopped", "TrainingError", "train"]
