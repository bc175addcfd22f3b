"""Options that are made from the fields of a dataclass, and options that take several values."""

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from subspaces import networks
from subspaces.cli.shared import completing, data_names
from subspaces.evaluation.answers import ANSWERS
from subspaces.evaluation.conditions import EXTRA
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.experiments.data import NAMES, loading
from subspaces.experiments.methods import own_fields
from subspaces.experiments.methods.fields import choices
from subspaces.experiments.methods.rates import SCHEDULES
from subspaces.experiments.training.execution import ADDRESS
from subspaces.experiments.training.recipe import COMMON, Recipe
from subspaces.text import listed, nearest

Command = TypeVar("Command", bound=Callable[..., None])
ROOT = Path(loading.ROOT)
COMPLETED = {  # beside what is one of a few
    "dataset": data_names,
    "network": completing(lambda: (*networks.names(), "timm:", "torchvision:")),
}


def with_fields(
    kind: type[Any],
    panel: str,
    defaults: bool = True,
    without: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Callable[[Command], Command]:
    """Let a command that takes `**fields` have the options of a configuration, once `complete` is called.

    Args:
        kind: a dataclass whose fields have help texts; recipes also have the fields of all methods.
        panel: the heading of the options in the help, but for fields that name one.
        defaults: whether an option that is not given has the default of the field, or is None.
        without: fields that the command refuses: the help does not list them, and who gives one is told why.
        only: the fields that it takes, where it has no options for others.
    """

    def parameters() -> Iterator[inspect.Parameter]:
        for field, hint, text in _of_recipes() if kind is Recipe else _of(kind):
            if only is None or field.name in only:
                shown = {"rich_help_panel": field.metadata.get("panel", panel), "hidden": field.name in without}
                yield _parameter(field, hint, defaults, help=text, **shown)

    def decorate(command: Command) -> Command:
        vars(command).setdefault("fields", []).append(parameters)
        return command

    return decorate


def _parameter(field: "dataclasses.Field[Any]", hint: Any, defaults: bool, **settings: Any) -> inspect.Parameter:
    """Return the parameter of a command for a field of a configuration."""
    names, kind, default = choices(field, hint), hint, field.default
    settings |= {"show_default": defaults, "autocompletion": COMPLETED.get(field.name)}
    several = typing.get_origin(hint) is Sequence
    if several:
        (inner,) = typing.get_args(hint)
        kind, default = list[inner], None  # type: ignore[valid-type]
        settings["metavar"] = f"{inner.__name__.upper()}..."
    if names:
        kind, complete = kind if several else str, completing(partial(choices, field, hint))
        settings |= {"metavar": "NAME", "callback": one_of(names), "autocompletion": complete}
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default if defaults else None,
        annotation=Annotated[kind | None, typer.Option(**settings)],
    )


def complete(command: Command) -> Command:
    """Return a command with the options for all fields that there are by now, in place of its `**fields`."""

    @functools.wraps(command)
    def whole(**given: Any) -> None:
        command(**given)

    signature = inspect.signature(command)
    *own, _ = signature.parameters.values()
    added = [parameter for parameters in vars(command)["fields"] for parameter in parameters()]
    whole.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    whole.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
    return whole  # type: ignore[return-value]


def _of(kind: type[Any]) -> "Iterator[tuple[dataclasses.Field[Any], Any, str]]":
    """Yield the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        yield field, hints[field.name], _explained(field, hints[field.name])


def _of_recipes() -> "Iterator[tuple[dataclasses.Field[Any], Any, str]]":
    """Yield the fields of recipes, with those of all methods, each of which says which methods it is for."""
    hints = typing.get_type_hints(Recipe)
    for name, field in COMMON.items():
        known = SCHEDULES if name == "schedule" else None  # methods may have others of their own
        yield field, hints[name], _explained(field, hints[name], known)
        for own in own_fields().values() if name == "method" else ():
            by_text: dict[str, list[str]] = {}
            for kind, entry in own:
                by_text.setdefault(entry.metadata["help"], []).append(kind.name)
            text = " ".join(f"{text} For {listed(names)}." for text, names in by_text.items())
            yield own[0][1], typing.get_type_hints(own[0][0])[own[0][1].name], text


def _explained(field: "dataclasses.Field[Any]", hint: Any, known: Iterable[str] | None = None) -> str:
    """Return the help of a field with the names that it may be, and what each of them is where that is known."""
    text, names = field.metadata["help"], tuple(known or choices(field, hint))
    things = field.metadata.get("choices", dict)()
    if things:
        return f"{text} {'; '.join(f'{name}: {things[name].meaning}' for name in names)}."
    return f"{text} One of: {', '.join(names)}." if names else text


def one_of(choices: Sequence[str]) -> Callable[[Any], Any]:
    """Return what refuses a name that is none of these."""

    def check(value: str | Sequence[str] | None) -> Any:
        for each in [value] if isinstance(value, str) else value or ():
            if each not in choices:
                raise typer.BadParameter(f"{each!r}: {nearest(each, choices)}")
        return value

    return check


def corruption_names() -> tuple[str, ...]:
    """Return what --corruptions takes."""
    return ("all", EXTRA, *CORRUPTIONS)


class Several(TyperCommand):
    """A command whose repeated options also take several numbers in a row, or several of the names that they know."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeated = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        words = {"--corruptions": corruption_names(), "--outliers": NAMES, "--answers": tuple(ANSWERS)}
        return super().parse_args(ctx, expanded(addressed(args), repeated, words))


def addressed(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--ray` as `--ray auto` where no address of a cluster follows."""
    result: list[str] = []
    for index, argument in enumerate(arguments):
        if argument == "--":
            return [*result, *arguments[index:]]
        result.append(argument)
        if argument == "--ray" and not re.fullmatch(ADDRESS, "".join(arguments[index + 1 : index + 2])):
            result.append("auto")
    return result


def expanded(
    arguments: Sequence[str], repeated: set[str], words: Mapping[str, Collection[str]] = MappingProxyType({})
) -> list[str]:
    """Return the arguments with `--seeds 0 1 2` as `--seeds 0 --seeds 1 --seeds 2`, and so the words of an option."""
    result: list[str] = []
    option = ""  # whose values these may be
    for index, argument in enumerate(arguments):
        if argument == "--":
            return [*result, *arguments[index:]]
        if not re.fullmatch(r"-?(\d+\.?\d*|\.\d+)", argument) and argument not in words.get(option, ()):
            name = argument.partition("=")[0]
            option = name if name in repeated else ""
        elif option and result[-1] != option:
            result.append(option)
        result.append(argument)
    return result
