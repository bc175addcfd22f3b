"""Options that are made from the fields of a dataclass, and options that take several values."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand

from subspaces.data import loading
from subspaces.text import nearest

Command = TypeVar("Command", bound=Callable[..., None])
Root = Annotated[Path, typer.Option("--root", help="The folder for data sets.", metavar="DIR")]
ROOT = Path(loading.ROOT)


def with_fields(
    kind: type[Any], panel: str, defaults: bool = True, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command that takes `**fields` an option for every field of a dataclass.

    Args:
        kind: the dataclass; its fields carry their help text in `metadata["help"]`.
        panel: the heading of the options in the help.
        defaults: whether an option that is not given has the default of the field, or is None.
        without: fields that the command refuses: the help does not list them, and who gives one is told why.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        *given, rest = signature.parameters.values()
        added = list(_parameters(kind, panel, defaults, without))
        command.__signature__ = signature.replace(parameters=[*given, *added, rest])  # type: ignore[attr-defined]
        command.__annotations__ |= {parameter.name: parameter.annotation for parameter in added}
        return command

    return decorate


def without_rest(command: Command) -> Command:
    """Take the `**fields` away, when all options have been added."""
    signature = inspect.signature(command)
    *given, rest = signature.parameters.values()
    command.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
    del command.__annotations__[rest.name]
    return command


def _parameters(kind: type[Any], panel: str, defaults: bool, without: Collection[str]) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, text, settings = hints[field.name], field.metadata["help"], dict[str, Any]()
        if typing.get_origin(hint) is Literal:
            choices = typing.get_args(hint)
            hint, text = str, f"{text} One of: {', '.join(choices)}."
            settings = {"metavar": "NAME", "callback": _one_of(choices)}
        settings["hidden"] = field.name in without
        option = typer.Option(help=text, rich_help_panel=panel, show_default=defaults, **settings)
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default if defaults else None,
            annotation=Annotated[hint | None, option],
        )


def _one_of(choices: Sequence[str]) -> Callable[[str | None], str | None]:
    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise typer.BadParameter(f"{value!r}: {nearest(value, choices)}")
        return value

    return check


class Several(TyperCommand):
    """A command whose repeated options also take several numbers in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeated = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, expanded(args, repeated))


def expanded(arguments: Sequence[str], repeated: set[str]) -> list[str]:
    """Return the arguments with `--seeds 0 1 2` as `--seeds 0 --seeds 1 --seeds 2`."""
    result: list[str] = []
    option = ""  # whose values these may be
    for index, argument in enumerate(arguments):
        if argument == "--":
            return [*result, *arguments[index:]]
        if not re.fullmatch(r"-?(\d+\.?\d*|\.\d+)", argument):
            name = argument.partition("=")[0]
            option = name if name in repeated else ""
        elif option and result[-1] != option:
            result.append(option)
        result.append(argument)
    return result
