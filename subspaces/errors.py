"""What a user can fix, as exceptions; everything else that is raised is a bug of this package or of the user's code."""


class UserError(Exception):
    """Something that the user can fix: the command line prints it as one line, without a traceback.

    Example:
        >>> try:
        ...     ss.Simplex(1)
        ... except ss.UserError as error:
        ...     print(error)
        m=1: expected ...
    """


class ArgumentError(UserError, ValueError, TypeError):
    """An argument that is not as expected; `except ValueError` and `except TypeError` catch it too."""


class DataError(ArgumentError):
    """A data file that is not what its publisher wrote."""


class MissingPackageError(UserError, ModuleNotFoundError):
    """An optional package that is not installed, or cannot be imported."""
