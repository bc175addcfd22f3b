"""Training: recipes, the engine, run folders."""

from subspaces.training.api import train
from subspaces.training.config import Execution, Recipe
from subspaces.training.loop import Stopped, TrainingError
from subspaces.training.recipes import RECIPES
from subspaces.training.runs import Run, RunError

__all__ = ["RECIPES", "Execution", "Recipe", "Run", "RunError", "Stopped", "TrainingError", "train"]
