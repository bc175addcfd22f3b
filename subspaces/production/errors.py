"""What can be wrong with an export, or with a file that was given as one."""


class ExportError(ValueError):
    """A network that cannot be exported, or an export that does not compute what the network does."""


class ModelError(ValueError):
    """A file that is not a whole export, or one that would run code nobody asked for."""


def install(library: str, what: str, extra: str) -> ImportError:
    """Return the error that says which library is missing, for what, and how to get it."""
    return ImportError(f"{what} needs {library}, which is not installed: pip install 'subspaces[{extra}]'")
