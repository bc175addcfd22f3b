"""Taking a network into production: export a point, an ensemble or a family, and predict with what was exported."""

from typing import TYPE_CHECKING, Any

__all__ = ["export", "predict"]

if TYPE_CHECKING:
    from subspaces.export.exporting import export
    from subspaces.export.predicting import predict
else:

    def export(*args: Any, **options: Any) -> Any:
        """Write networks for production: see `subspaces.export.exporting.export`."""
        from subspaces.export import exporting

        return exporting.export(*args, **options)

    def predict(*args: Any, **options: Any) -> Any:
        """Predict with what was exported: see `subspaces.export.predicting.predict`."""
        from subspaces.export import predicting

        return predicting.predict(*args, **options)
