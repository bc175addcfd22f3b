"""Options: made from the fields of a dataclass, or shared by several commands."""

import argparse
import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **settings)
        self._panels: dict[str, Any] = {}
        self.commands: dict[str, Parser] = {}
        self.typed: Mapping[str, str] = {}  # options that are not typed as an error calls them
        self.set_defaults(parser=self)

    def add_commands(self) -> Any:
        """Let this parser have commands; return what these are added to."""
        added = self.add_subparsers(title="commands", metavar="COMMAND", prog=self.prog, parser_class=type(self))
        self.commands = added.choices
        return added

    def panel(self, title: str) -> Any:
        """Return the group of options with a title."""
        if title not in self._panels:
            self._panels[title] = self.add_argument_group(title)
        return self._panels[title]

    def option(self, *names: str, panel: str | None = None, **settings: Any) -> None:
        """Add an option, to the group with a title or to none."""
        settings["help"] = settings["help"].replace("%", "%%")
        (self if panel is None else self.panel(panel)).add_argument(*names, **settings)

    def numbers(self, name: str, type_: type, text: str, panel: str | None = None, **settings: Any) -> None:
        """Add an option of one or more numbers."""
        settings |= {"nargs": "+", "action": "extend", "type": type_, "metavar": type_.__name__.upper()}
        self.option(name, panel=panel, help=text, **settings)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse arguments, of which the last may also follow options; the namespace holds the command's parser too."""
        options, unknown = self.parse_known_args(arguments)
        command: Parser = options.parser
        several = [each for each in command._actions if not each.option_strings and each.nargs in ("+", "*")]
        if several and not any(word.startswith("-") for word in unknown):
            made = map(several[0].type or str, unknown)  # type: ignore[arg-type]
            vars(options)[several[0].dest] += list(made)
        elif unknown:
            known = [name for name in command._option_string_actions if name.startswith("--")]
            name = unknown[0].partition("=")[0]
            closest = hint(name, known) if name.startswith("-") else ""
            command.error(f"unexpected argument {unknown[0]!r}{closest}")
        return options

    def as_typed(self, text: str, options: argparse.Namespace) -> str:
        """Return an error about an option (`label_noise=2: …`) as one about what was typed (`--label-noise=2: …`)."""
        name, equals, rest = text.partition("=")
        option = f"--{name.replace('_', '-')}"
        if name in self.typed and not (name in vars(options) and option in self._option_string_actions):
            option = f"--{self.typed[name]}"
        typed = f"{option}={rest}" if equals and option in self._option_string_actions else text
        return re.sub(r"^--([\w-]+)=(True|False)", r"--\1", typed)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"no command {value!r}: {nearest(value, action.choices)}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Raise an error of one line."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


class _Formatter(argparse.HelpFormatter):
    """Folds paragraphs as wide as the terminal, but no option at a hyphen."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """Show the arguments, and of many options none."""
        named = [self._format_args(each, str(each.metavar)) for each in actions if not each.option_strings]
        super().add_usage(" ".join([self._prog, *named, "[options]"]), actions, groups, prefix)

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._SubParsersAction):
            return "".join(map(super()._format_action, action._get_subactions()))
        return super()._format_action(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join("\n".join(self._split_lines(each, width)) for each in text.split("\n\n"))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def add_command(commands: Any, run: Callable[..., Any], name: str = "", text: str = "") -> Parser:
    """Add a command that a function runs; the help is the function's docstring, or a text."""
    text, called = text or inspect.getdoc(run) or "", name or run.__name__
    parser: Parser = commands.add_parser(called, help=text.partition("\n\n")[0], description=text)
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
            shown = argparse.SUPPRESS if field.name in without else text
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
    if NoneType in typing.get_args(type_):
        (type_,) = (part for part in typing.get_args(type_) if part is not NoneType)
    if type_ is bool:
        return {"action": argparse.BooleanOptionalAction}
    settings: dict[str, Any] = {}
    if typing.get_origin(type_) is Sequence:
        settings, (type_,) = {"nargs": "+", "action": "extend"}, typing.get_args(type_)
    elif "alone" in field.metadata:
        settings = {"nargs": "?", "const": field.metadata["alone"]}
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
        if field.default not in (None, "", False, dataclasses.MISSING) and not isinstance(field.default, tuple):
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
    if isinstance(things, Mapping) and things and hasattr(next(iter(things.values())), "meaning"):
        return f"{text} {'; '.join(f'{name}: {things[name].meaning}' for name in names)}."
    return f"{text} One of: {', '.join(names)}." if names else text


# Options that several commands have


def add_recipes(parser: Parser, **settings: Any) -> None:
    """Add the recipes as arguments."""
    parser.option("recipes", metavar="RECIPE", **({"nargs": "+", "help": "See `subspaces recipes`."} | settings))


def add_runs(parser: Parser, text: str = "Folders of finished runs.") -> None:
    """Add the folders of runs as arguments."""
    parser.option("runs", nargs="+", type=Path, metavar="RUN", help=text)


def add_seeds(parser: Parser, text: str = "Train each recipe once for each of these seeds: --seeds 0 1 2.") -> None:
    """Add --seeds."""
    parser.numbers("--seeds", int, text, RECIPE)


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


def add_plan(parser: Parser) -> None:
    """Add --runs, the folder of runs that several commands share, and --dry-run."""
    text = "The folder with the runs; finished ones are not trained again. Default: runs."
    parser.option("--runs", panel=OUTPUT, type=Path, metavar="DIR", default=Path("runs"), help=text)
    parser.option("--dry-run", panel=OUTPUT, action="store_true", help="Only print the plan.")
