"""Options: made from the fields of a dataclass, or shared by several commands."""

import argparse
import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from subspaces.cli.errors import UsageError
from subspaces.errors import ArgumentError
from subspaces.experiments.data import loading
from subspaces.experiments.methods import own_fields
from subspaces.experiments.methods.fields import choices
from subspaces.experiments.methods.rates import SCHEDULES
from subspaces.experiments.training import Execution
from subspaces.experiments.training.recipe import COMMON, Recipe, all_fields
from subspaces.text import hint, listed, nearest

RECIPE = "recipe: what is trained (by default as in the recipe)"
EXECUTION = "execution: where and how it runs"
OUTPUT = "output"
DEVICE = ("device", "precision", "workers")  # the fields of execution that evaluations have


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are raised and name the nearest option."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", _Formatter)
        super().__init__(allow_abbrev=False, **settings)
        self._panels: dict[str, Any] = {}
        self.commands: dict[str, Parser] = {}
        self.set_defaults(parser=self)

    def add_commands(self) -> Any:
        """Let this parser have commands; return what these are added to."""
        added = self.add_subparsers(title="commands", metavar="COMMAND", prog=self.prog, parser_class=type(self))
        self.commands = added.choices
        return added

    def panel(self, title: str | None) -> Any:
        """Return the group of options with a title; without one the parser itself."""
        if title is None:
            return self
        if title not in self._panels:
            self._panels[title] = self.add_argument_group(title)
        return self._panels[title]

    def option(self, *names: str, panel: str | None = None, **settings: Any) -> None:
        """Add an option to a panel."""
        self.panel(panel).add_argument(*names, **settings)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse arguments; the namespace holds the parser of the command too."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            known = [name for name in options.parser._option_string_actions if name.startswith("--")]
            name = unknown[0].partition("=")[0]
            closest = hint(name, known) if name.startswith("-") else ""
            options.parser.error(f"unexpected argument {unknown[0]!r}{closest}")
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"no command {value!r}: {nearest(value, action.choices)}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Raise an error of one line."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """Show the arguments, and of many options none."""
        named = [self._format_args(each, str(each.metavar)) for each in actions if not each.option_strings]
        super().add_usage(" ".join([self._prog, *named, "[options]"]), actions, groups, prefix)


def add_command(commands: Any, run: Callable[..., Any], name: str = "", text: str = "") -> Parser:
    """Add a command that a function runs; the help is the function's docstring, or a text."""
    text = (text or inspect.getdoc(run) or "").replace("%", "%%")
    called = name or run.__name__
    parser: Parser = commands.add_parser(called, help=text.partition("\n\n")[0].replace("\n", " "), description=text)
    parser.set_defaults(function=run, command=called)
    return parser


def add_group(commands: Any, name: str, text: str) -> Any:
    """Add a command that has commands of its own; return what these are added to."""
    parser: Parser = commands.add_parser(name, help=text, description=text)
    return parser.add_commands()


# Options from the fields of a dataclass


def add_fields(
    parser: Parser, kind: type[Any], panel: str, only: Collection[str] | None = None, without: Collection[str] = ()
) -> None:
    """Add an option for each field of a configuration; one that is not given is not in the namespace.

    Args:
        parser: of the command.
        kind: a dataclass whose fields have help texts; recipes also have the fields of all methods.
        panel: the title of the options, but for fields that name one.
        only: the fields to add; by default all.
        without: fields that the command refuses: the help does not list them, and who gives one is told why.
    """
    for field, type_, text in _of_recipes() if kind is Recipe else _of(kind):
        if only is None or field.name in only:
            title = field.metadata.get("panel", panel)
            shown = argparse.SUPPRESS if field.name in without else text.replace("%", "%%")
            name = f"--{field.name.replace('_', '-')}"
            parser.option(name, panel=title, default=argparse.SUPPRESS, help=shown, **_typed(field, type_))


def given(options: argparse.Namespace, kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a configuration that were given, by name."""
    names = all_fields() if kind is Recipe else {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in vars(options).items() if name in names}


def changes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of recipes and of their execution that were given."""
    found = given(options, Recipe) | given(options, Execution)
    if options.seeds and "seed" in found:
        raise ArgumentError("--seed and --seeds exclude each other")
    return found


def device_of(options: argparse.Namespace) -> Execution:
    """Return where the networks of finished runs are run, after checking that it is there."""
    execution = Execution(**given(options, Execution))
    execution.resolved()
    return execution


def _typed(field: "dataclasses.Field[Any]", type_: Any) -> dict[str, Any]:
    """Return the settings of an option whose values have the type of a field."""
    names = choices(field, type_)
    parts = [part for part in typing.get_args(type_) if part is not NoneType]
    if NoneType in typing.get_args(type_):
        (type_,) = parts
    if type_ is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(type_) is Sequence:
        settings: dict[str, Any] = {"nargs": "+", "action": "extend"}
        (type_,) = typing.get_args(type_)
    else:
        settings = {"nargs": "?", "const": field.metadata["alone"]} if "alone" in field.metadata else {}
    if names:
        return settings | {"type": one_of(names), "metavar": "NAME"}
    return settings | {"type": type_, "metavar": {int: "INT", float: "FLOAT"}.get(type_, "TEXT")}


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return a type of arguments that are one of these names."""

    def name(value: str) -> str:
        if value not in (known := list(names)):
            raise argparse.ArgumentTypeError(f"{value!r}: {nearest(value, known)}")
        return value

    return name


def _of(kind: type[Any]) -> "Iterator[tuple[dataclasses.Field[Any], Any, str]]":
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        text = _explained(field, hints[field.name])
        if field.default not in (None, (), "", False, dataclasses.MISSING):
            text += f" Default: {field.default}."
        yield field, hints[field.name], text


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


def _explained(field: "dataclasses.Field[Any]", type_: Any, known: Iterable[str] | None = None) -> str:
    """Return the help of a field with the names that it may be, and what each of them is where that is known."""
    text, names = field.metadata["help"], tuple(known or choices(field, type_))
    things = field.metadata.get("choices", dict)()
    if isinstance(things, typing.Mapping) and things and hasattr(next(iter(things.values())), "meaning"):
        return f"{text} {'; '.join(f'{name}: {things[name].meaning}' for name in names)}."
    return f"{text} One of: {', '.join(names)}." if names else text


# Options that several commands have


def add_recipes(parser: Parser, **settings: Any) -> None:
    """Add the recipes as arguments."""
    settings = {"nargs": "+", "help": "See `subspaces recipes`."} | settings
    parser.add_argument("recipes", metavar="RECIPE", **settings)


def add_runs(parser: Parser) -> None:
    """Add the folders of runs as arguments."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="Folders of finished runs.")


def add_seeds(parser: Parser, text: str = "Train each recipe once for each of these seeds: --seeds 0 1 2.") -> None:
    """Add --seeds."""
    parser.option("--seeds", panel=RECIPE, nargs="+", action="extend", type=int, metavar="INT", help=text)


def add_data(parser: Parser, code: bool = True, trust: bool = False) -> None:
    """Add --data, and where networks are built --code and --trust."""
    text = f"The folder with the data sets. Default: {loading.ROOT}."
    parser.option("--data", panel=EXECUTION, type=Path, metavar="DIR", default=Path(loading.ROOT), help=text)
    if code:
        add_code(parser, trust)


def add_code(parser: Parser, trust: bool) -> None:
    """Add --code and --trust."""
    text = "The folder with the module of your own network (package.module:factory), if it is not installed."
    parser.option("--code", panel=EXECUTION, type=_folder, metavar="DIR", help=text)
    if trust:
        text = "Also run code that files name: the network (package.module:factory) of a run."
        parser.option("--trust", panel=EXECUTION, action="store_true", help=text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}; expected that of the network's module")
    return Path(text)


@contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Let modules of a folder be imported, after all others."""
    entries = [] if folder is None else [str(folder.resolve())]
    sys.path += entries
    try:
        yield
    finally:
        for entry in entries:
            sys.path.remove(entry)


def add_output(
    parser: Parser, out: Path | None = None, text: str = "", metavar: str = "DIR", json: str = "", quiet: bool = True
) -> None:
    """Add --out with its default and help text, --quiet and --json, for which `json` says what is printed."""
    if text:
        shown = text if out is None else f"{text} Default: {out}."
        parser.option("--out", "-o", panel=OUTPUT, type=Path, metavar=metavar, default=out, help=shown)
    exclusive = parser.panel(OUTPUT).add_mutually_exclusive_group()
    if quiet:
        exclusive.add_argument("--quiet", "-q", action="store_true", help="Show no progress bars, only the result.")
    if json:
        exclusive.add_argument("--json", action="store_true", help=f"Print {json}.")


def add_tensorboard(parser: Parser) -> None:
    """Add --tensorboard."""
    text = "Also log for TensorBoard, if it is installed."
    parser.option("--tensorboard", panel=OUTPUT, action=argparse.BooleanOptionalAction, default=True, help=text)


def add_plan(parser: Parser) -> None:
    """Add --runs, the folder of runs that several commands share, and --dry-run."""
    text = "The folder with the runs; finished ones are not trained again. Default: runs."
    parser.option("--runs", panel=OUTPUT, type=Path, metavar="DIR", default=Path("runs"), help=text)
    parser.option("--dry-run", panel=OUTPUT, action="store_true", help="Only print the plan.")
