"""Choosing a point of a family for a new domain."""

from subspaces.core.selection.selection import Searched, Selection, select

__all__ = ["Searched", "Selection", "select"]
