"""Runs as what is evaluated: their folders bring family, data and task."""
