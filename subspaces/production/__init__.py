"""Taking a network into production: export a point, an ensemble or a family, and predict with what was exported."""

from subspaces.production.exporting import export
from subspaces.production.predicting import predict

__all__ = ["export", "predict"]
