"""Choosing a point of a family for a new domain."""

from subspaces.selection.selecting import Selecting
from subspaces.selection.selection import Searched, Selection

__all__ = ["Searched", "Selecting", "Selection"]
