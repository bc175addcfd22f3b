"""What is trained (`Recipe`) and where and how fast (`Execution`)."""

from subspaces.training.execution import Execution, Precision
from subspaces.training.recipe import COMMON, Recipe, all_fields

__all__ = ["COMMON", "Execution", "Precision", "Recipe", "all_fields"]
