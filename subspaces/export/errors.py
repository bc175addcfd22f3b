"""What can be wrong with an export, or with a file that was given as one."""

import importlib
import os

from subspaces.errors import ArgumentError, MissingPackageError

TELEMETRY = "ORT_DISABLE_TELEMETRY"


class ExportError(ArgumentError):
    """A network that cannot be exported, or an export that does not compute what the network does."""


class ModelError(ArgumentError):
    """A file that is not a whole export, or one that would run code nobody asked for."""


def install(library: str, what: str, extra: str) -> ImportError:
    """Return the error that says which library is missing, for what, and how to get it."""
    return MissingPackageError(f"{what} needs {library}, which is not installed: pip install 'subspaces[{extra}]'")


def require(what: str, extra: str, *libraries: str) -> None:
    """Import the libraries that something needs, or say which is missing.

    onnxruntime sends telemetry and leaves a file in the folder of temporary files, unless a variable of the environment
    is set when it is first imported.
    """
    before = os.environ.get(TELEMETRY)
    os.environ[TELEMETRY] = "1"
    try:
        for library in libraries:
            try:
                importlib.import_module(library)
            except ImportError:
                raise install(library, what, extra) from None
    finally:
        os.environ.pop(TELEMETRY)
        if before is not None:
            os.environ[TELEMETRY] = before
