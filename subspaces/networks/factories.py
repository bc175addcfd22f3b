"""Networks of the user's own: `package.module:factory` imported, looked at, and called.

A factory is a Python function or method, a class derived from `nn.Module`, or a `functools.partial` of one of these.
Nothing else is ever called: `os:abort` and `builtins:exec` are names of this form too.
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
    """Import `package.module:factory` and call it with what its signature takes."""
    check_form(name)
    factory = _found(name, *name.split(":"))
    offered = {"classes": classes, "num_classes": classes, "image_shape": image_shape, "dropout": dropout}
    given = _arguments(name, factory, offered)
    try:
        network = factory(**given)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # SystemExit too: a factory ends no program
        raise ArgumentError(f"network {name!r}: the factory failed with {in_words(error)}") from error
    if not isinstance(network, nn.Module):
        found = "None" if network is None else f"a {type(network).__name__}"
        raise ArgumentError(f"network {name!r}: the factory must return an nn.Module, and it returned {found}")
    return network


def in_words(error: BaseException) -> str:
    """Return the kind of an exception and what it says, on one line."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def taken(factory: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Return what is offered under the names of the factory's arguments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # some callables written in C have none
        return {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    wanted = {parameter.name for parameter in parameters if parameter.kind in kinds}
    return {key: value for key, value in offered.items() if key in wanted}


def _found(name: str, where: str, attribute: str) -> Callable[..., Any]:
    """Import the module and return what the name stands for, if it may be called."""
    try:
        module = importlib.import_module(where)
        factory: Any = getattr(module, attribute, None)
    except ModuleNotFoundError as error:
        missing = f"module {error.name!r} was not found"
        advice = "install what is missing"
        if error.name and f"{where}.".startswith(f"{error.name}."):
            advice = f"is its folder on the Python path, or named by --code DIR?{hint(where, LIBRARIES)}"
        raise MissingPackageError(f"network {name!r}: {missing}; {advice}", name=error.name) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise MissingPackageError(
            f"network {name!r}: module {where!r} cannot be imported, {in_words(error)}"
        ) from error
    if factory is None:
        raise ArgumentError(f"network {name!r}: module {where!r} has no {attribute!r}{hint(attribute, vars(module))}")
    if not _may_be_called(factory):
        found = f"the class {attribute}" if isinstance(factory, type) else f"a {type(factory).__name__}"
        raise ArgumentError(
            f"network {name!r}: expected a Python function that makes a network, or a class derived from nn.Module, "
            f"and it is {found}"
        )
    return factory  # type: ignore[no-any-return]


def _may_be_called(value: Any) -> bool:
    if isinstance(value, functools.partial):
        return _may_be_called(value.func)
    if isinstance(value, MethodType):
        return isinstance(value.__func__, FunctionType)
    return isinstance(value, FunctionType) or (isinstance(value, type) and issubclass(value, nn.Module))


def _arguments(name: str, factory: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Return what a factory is called with, if that is all that it needs."""
    given = taken(factory, offered)
    try:
        inspect.signature(factory).bind(**given)
    except TypeError as error:
        raise ArgumentError(
            f"network {name!r}: the factory needs more than it is told ({error}): it may ask for "
            f"{', '.join(offered)}; give other arguments a default"
        ) from None
    return given
