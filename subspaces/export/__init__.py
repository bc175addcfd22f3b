"""One file for production, checked against its network and described by a card, and predictions from it."""

from subspaces.errors import ArgumentError

FORMATS = ("safetensors", "pt2", "onnx")


class ExportError(ArgumentError):
    """A network that cannot be exported, or an export that does not compute what the network does."""


class ModelError(ArgumentError):
    """A file that is not a whole export, or one that runs code and was not trusted."""


def damaged(path: object, why: object) -> ModelError:
    """Return the error of a file that is not as it was written."""
    return ModelError(f"{path} is damaged ({why}): use another copy")
