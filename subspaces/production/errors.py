"""What can be wrong with an export, or with a file that was given as one."""

import importlib

from subspaces.errors import ArgumentError, MissingPackageError


class ExportError(ArgumentError):
    """A network that cannot be exported, or an export that does not compute what the network does."""


class ModelError(ArgumentError):
    """A file that is not a whole export, or one that would run code nobody asked for."""


def install(library: str, what: str, extra: str) -> ImportError:
    """Return the error that says which library is missing, for what, and how to get it."""
    return MissingPackageError(f"{what} needs {library}, which is not installed: pip install 'subspaces[{extra}]'")


def require(what: str, extra: str, *libraries: str) -> None:
    """Refuse to begin something whose libraries are missing."""
    for library in libraries:
        try:
            importlib.import_module(library)
        except ImportError:
            raise install(library, what, extra) from None
