"""Methods: the subspaces, and what they are compared with, in the order in which they are listed."""

# isort: off
from subspaces.experiments.methods import subspaces, checkpoints, baselines, integral
from subspaces.experiments.methods.fields import ABOVE_ZERO, FRACTION, NATURAL, POSITIVE, Limit, setting
from subspaces.experiments.methods.method import METHODS, Backward, Hooks, Method, own_fields, users

__all__ = [
    "ABOVE_ZERO",
    "FRACTION",
    "METHODS",
    "NATURAL",
    "POSITIVE",
    "Backward",
    "Hooks",
    "Limit",
    "Method",
    "baselines",
    "checkpoints",
    "integral",
    "own_fields",
    "setting",
    "subspaces",
    "users",
]
