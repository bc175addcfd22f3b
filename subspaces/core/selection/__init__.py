"""Choosing a point of a family for a new domain."""

from subspaces.core.selection.selecting import Selecting
from subspaces.core.selection.selection import Searched, Selection

__all__ = ["Searched", "Selecting", "Selection"]
