"""What of a batch goes into a network, and what is to be said about it."""

from collections.abc import Mapping
from typing import Any

from subspaces.errors import ArgumentError

LABELS = ("labels", "label", "targets", "target", "y")


def inputs(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what goes into the network: all but the target of a tuple, or of a dict by keyword."""
    if isinstance(batch, Mapping):
        return (), {name: value for name, value in batch.items() if name != _label(batch)}
    if isinstance(batch, (tuple, list)):
        return tuple(batch[:-1]) if len(batch) > 1 else tuple(batch), {}
    return (batch,), {}


def target(batch: Any, instead: str) -> Any:
    """Return what is to be predicted: the last of a tuple, or the labels of a dict; `instead` is another way out."""
    if isinstance(batch, Mapping) and (name := _label(batch)) is not None:
        return batch[name]
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return batch[-1]
    parts = f" of {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else ""
    raise ArgumentError(
        f"a batch is a {type(batch).__name__}{parts}: expected (inputs, target), a dict with 'labels', or {instead}"
    )


def _label(batch: Mapping[str, Any]) -> str | None:
    return next((name for name in LABELS if name in batch), None)
