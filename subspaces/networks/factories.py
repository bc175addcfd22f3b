"""Networks of the user's own: `package.module:factory`, imported and called.

A factory is a Python function or method, a class derived from `nn.Module`, or a `functools.partial`.
"""

import functools
import importlib
import inspect
import re
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.networks.small import ImageShape
from subspaces.text import hint

LIBRARIES = ("timm", "torchvision")


def is_factory(name: str) -> bool:
    """Say whether the name of a network is that of code to import, not of this package's or a library's networks."""
    source, colon, _ = name.partition(":")
    return bool(colon) and source not in LIBRARIES


def check_form(name: str) -> None:
    """Refuse what cannot be the name of a factory."""
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
        raise ArgumentError(
            f"network={name!r}: expected package.module:factory, which is the name of a module, a colon and the name "
            "of a function or class in it"
        )


def from_factory(name: str, classes: int, image_shape: ImageShape, dropout: float) -> nn.Module:
    """Import `package.module:factory` and call it with those of these arguments that its signature names."""
    factory = _imported(name)
    offered = {"classes": classes, "num_classes": classes, "image_shape": image_shape, "dropout": dropout}
    given = taken(factory, offered)
    try:
        inspect.signature(factory).bind(**given)
    except TypeError as error:
        raise ArgumentError(
            f"network {name!r}: the factory needs more than it is told ({error}): it may ask for "
            f"{', '.join(offered)}; give other arguments a default"
        ) from None
    try:
        network = factory(**given)
    except (Exception, SystemExit) as error:
        raise ArgumentError(f"network {name!r}: the factory failed with {in_words(error)}") from error
    if not isinstance(network, nn.Module):
        found = "None" if network is None else f"a {type(network).__name__}"
        raise ArgumentError(f"network {name!r}: the factory must return an nn.Module, and it returned {found}")
    return network


def in_words(error: BaseException) -> str:
    """Return the kind of an exception and its message, on one line."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def taken(factory: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the factory's signature names."""
    parameters = inspect.signature(factory).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    wanted = {parameter.name for parameter in parameters if parameter.kind in kinds}
    return {key: value for key, value in offered.items() if key in wanted}


def _imported(name: str) -> Callable[..., Any]:
    """Return the factory of that name from its module."""
    check_form(name)
    where, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(where)
    except ModuleNotFoundError as error:
        advice = "install what is missing"
        if error.name and f"{where}.".startswith(f"{error.name}."):
            advice = f"is its folder on the Python path, or named by --code DIR?{hint(where, LIBRARIES)}"
        message = f"network {name!r}: module {error.name!r} was not found; {advice}"
        raise MissingPackageError(message, name=error.name) from error
    except (Exception, SystemExit) as error:  # a script without `if __name__ == "__main__"` may end itself
        message = f"network {name!r}: module {where!r} cannot be imported, {in_words(error)}"
        raise MissingPackageError(message) from error
    factory = getattr(module, attribute, None)
    if factory is None:
        raise ArgumentError(f"network {name!r}: module {where!r} has no {attribute!r}{hint(attribute, vars(module))}")
    is_class = isinstance(factory, type)
    if not (issubclass(factory, nn.Module) if is_class else isinstance(factory, _FUNCTIONS)):
        found = f"the class {attribute}" if is_class else f"a {type(factory).__name__}"
        raise ArgumentError(
            f"network {name!r}: expected a Python function that makes a network, or a class derived from nn.Module, "
            f"and it is {found}"
        )
    return factory  # type: ignore[no-any-return]


_FUNCTIONS = (FunctionType, MethodType, functools.partial)
