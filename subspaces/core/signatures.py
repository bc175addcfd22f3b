"""The inputs of a network, which are those of a family of it: what `family.forward` shows and takes."""

import copy
import inspect
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from torch import nn

from subspaces.errors import ArgumentError

OWN = ("alpha", "samples", "features", "outside")
"""What a family's call takes beside the network's inputs, always by keyword."""

SHOWN = (
    *("config", "generation_config", "main_input_name", "loss_type", "accepts_loss_kwargs"),
    *("gradient_checkpointing_enable", "gradient_checkpointing_disable", "is_gradient_checkpointing"),
)
"""What libraries ask a network for, and a family of it has to answer; none of it depends on the weights."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (*_POSITIONAL, Parameter.KEYWORD_ONLY)
_known: WeakKeyDictionary[type, dict[Any, type]] = WeakKeyDictionary()
"""The classes of families that were made, by the class of their network, with which they go."""


def inputs(network: nn.Module) -> Signature:
    """Return the inputs of a network, or `(*args, **kwargs)` where they cannot be known; ours are refused."""
    try:
        found = inspect.signature(network.forward)
        base = getattr(network, "get_base_model", None)
        if callable(base) and all(each.kind not in _NAMED for each in found.parameters.values()):  # as peft's wrapper
            found = inspect.signature(base().forward)
    except (TypeError, ValueError):
        unknown = [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]
        return Signature(unknown)
    for name in OWN:
        if name in found.parameters:
            raise ArgumentError(
                f"the network has an input named {name!r}, which a family's own call takes: wrap the network in a "
                f"module whose forward has another name for it and passes it on, self.network(…, {name}=other)"
            )
    return found


def most(signature: Signature) -> int | None:
    """Return how many inputs can be given by position; None: any number."""
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    return None if Parameter.VAR_POSITIONAL in kinds else sum(kind in _POSITIONAL for kind in kinds)


def with_inputs_of(kind: type, network: nn.Module) -> type:
    """Return a subclass of `kind` whose forward shows the network's inputs: its code is the same.

    Libraries look at the signature of an instance or of its class to find out what a batch may hold. It also has
    what of `SHOWN` the network has.
    """
    shown = _shown(kind, inputs(network))
    names = tuple(name for name in SHOWN if hasattr(network, name) and not hasattr(kind, name))
    known, key = _known.setdefault(type(network), {}), (kind, str(shown), names)
    if key not in known:
        forward = _copied(kind.forward)  # type: ignore[attr-defined]
        forward.__signature__ = shown  # type: ignore[attr-defined]
        name = f"{kind.__name__}Of{type(network).__name__}"
        parts = {"forward": forward, "__module__": kind.__module__, "plain_class": kind}
        known[key] = type(name, (kind,), {each: _OfTheNetwork(each) for each in names} | parts)
    return known[key]


def _shown(kind: type, network: Signature) -> Signature:
    """Return the network's inputs with our keywords; a subclass whose forward takes no others shows its own."""
    found = inspect.signature(kind.forward)  # type: ignore[attr-defined]
    if all(each.kind is not Parameter.VAR_KEYWORD for each in found.parameters.values()):
        return found
    forwards = (inspect.signature(part.forward).parameters for part in kind.__mro__ if hasattr(part, "forward"))
    own = next(each for each in forwards if each.keys() >= set(OWN))
    theirs = network.parameters.values()
    open_end = [each for each in theirs if each.kind is Parameter.VAR_KEYWORD]
    ours = [own[name] for name in OWN]
    return Signature([own["self"], *(each for each in theirs if each not in open_end), *ours, *open_end])


class _OfTheNetwork:
    """An attribute that a family has from its network, as long as it has none of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, family: Any, kind: type | None = None) -> Any:
        return self if family is None else getattr(family.template, self.name)


def _has(network: nn.Module, name: str) -> bool:
    """Say whether a network has an attribute, without running a property of it."""
    if name.startswith("__"):
        return False
    kept = (network.__dict__, network._parameters, network._buffers, network._modules)
    if hasattr(type(network), name) or any(name in each for each in kept):
        return True
    return type(network).__getattr__ is not nn.Module.__getattr__ and hasattr(network, name)  # as peft passes on


def _copied(function: FunctionType) -> FunctionType:
    """Return a function with the same code and an own signature."""
    parts = function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    like = FunctionType(*parts)
    like.__kwdefaults__ = copy.copy(function.__kwdefaults__)
    like.__doc__, like.__annotations__ = function.__doc__, function.__annotations__
    like.__qualname__, like.__module__ = function.__qualname__, function.__module__
    return like


class ShowingInputs(nn.Module):
    """A module around a network whose `forward` shows the network's inputs, also when it is copied or pickled."""

    template: nn.Module
    plain_class: ClassVar[type | None] = None
    """The class without the network's inputs in its signature, which has a name to be found by."""
    most_inputs: int | None
    """How many inputs the network takes by position; None: any number."""

    def show_inputs(self) -> None:
        """Make the signature of `forward` that of the network; it is a signature of the class."""
        self.most_inputs = most(inputs(self.template))
        self.__class__ = with_inputs_of(self.plain_class or type(self), self.template)

    def __getattr__(self, name: str) -> Any:
        kept = self.__dict__  # as torch does, with another error
        for kind in ("_parameters", "_buffers", "_modules"):
            if kind in kept and name in kept[kind]:
                return kept[kind][name]
        if "_modules" in kept and "template" in kept["_modules"] and _has(self.template, name):
            call = "(…)" if callable(getattr(type(self.template), name, None)) else ""
            raise AttributeError(
                f"{self._get_name()!r} object has no attribute {name!r}, the network has it: with family.point() as "
                f"net: net.{name}{call}"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return object.__new__, (self.plain_class,), self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.show_inputs()

    def _get_name(self) -> str:
        return (self.plain_class or type(self)).__name__
