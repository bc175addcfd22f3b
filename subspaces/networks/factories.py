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
from subspaces.networks.models import ImageShape
from subspaces.text import hint, shown

LIBRARIES = ("timm", "torchvision")


def is_factory(name: str) -> bool:
    """Say whether the name of a network is that of code to import, not of this package's or a library's networks."""
    source, colon, _ = name.partition(":")
    return bool(colon) and source not in LIBRARIES


def check_form(name: str) -> None:
    """Refuse what cannot be the name of a factory."""
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
        raise ArgumentError(f"network={name!r}: expected package.module:factory, the name of a function or class in it")


def from_factory(name: str, classes: int, image_shape: ImageShape, dropout: float) -> nn.Module:
    """Import `package.module:factory` and call it with those of these arguments that its signature names."""
    factory = _imported(name)
    offered = {"classes": classes, "num_classes": classes, "image_shape": image_shape, "dropout": dropout}
    try:
        network = factory(**taken(factory, offered))
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"network {name!r}: the factory failed with {in_words(error)}; it may ask for {', '.join(offered)}, and "
            "has to have defaults for all others"
        ) from error
    if not isinstance(network, nn.Module):
        raise ArgumentError(f"network {name!r}: the factory must return an nn.Module, and it returned {shown(network)}")
    return network


def in_words(error: BaseException) -> str:
    """Return the kind of an exception and its message, on one line."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def taken(factory: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the factory's signature names."""
    parameters = inspect.signature(factory).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {each.name: offered[each.name] for each in parameters if each.kind in kinds and each.name in offered}


def _imported(name: str) -> Callable[..., Any]:
    """Return the factory of that name from its module."""
    check_form(name)
    where, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(where)
    except (Exception, SystemExit) as error:  # a script without `if __name__ == "__main__"` may end itself
        advice = f"is its folder on the Python path, or named by --code DIR?{hint(where, LIBRARIES)}"
        raise MissingPackageError(
            f"network {name!r}: module {where!r} cannot be imported ({in_words(error)}); {advice}",
            name=getattr(error, "name", None),
        ) from error
    factory = getattr(module, attribute, None)
    if factory is None:
        raise ArgumentError(f"network {name!r}: module {where!r} has no {attribute!r}{hint(attribute, vars(module))}")
    kinds = (FunctionType, MethodType, functools.partial)
    if not (issubclass(factory, nn.Module) if isinstance(factory, type) else isinstance(factory, kinds)):
        raise ArgumentError(
            f"network {name!r}: expected a Python function that makes a network, or a class derived from nn.Module, "
            f"and it is {shown(factory)}"
        )
    return factory  # type: ignore[no-any-return]
