"""What `compare` and the studies share: their options, and the way from a plan to its table."""

import inspect
import json
from collections.abc import Callable, Collection
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subspaces.cli import printing, shared
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.training import Execution, Recipe

if TYPE_CHECKING:
    from subspaces.studies.setting import Setting
    from subspaces.studies.tables import Result


Ask = Callable[..., "Setting"]
"""Makes the setting of a command's own options, and of those that all of these commands have."""
Build = Callable[..., tuple[Any, Callable[[Any], "Result"]]]


def study_command(out: str, *own: str, without: Collection[str] = ()) -> Callable[[Build], Callable[..., None]]:
    """Make a command of a function that plans: of what is asked for and its own options to a plan and what runs it.

    Args:
        out: where the tables go unless said otherwise.
        own: options of the command that an error may begin with.
        without: fields of recipes that it refuses.
    """

    def common(
        seeds: shared.Seeds = None,
        dry_run: shared.DryRun = False,
        data: shared.Data = ROOT,
        code: shared.Code = None,
        runs: shared.Runs = Path("runs"),
        out: Annotated[Path, shared.out_option("The folder for tables and figures.", "DIR")] = Path(out),
        quiet: shared.Quiet = False,
        as_json: Annotated[bool, shared.json_option("everything as one line of JSON instead of tables")] = False,
        tensorboard: shared.TensorBoard = True,
    ) -> None: ...

    options = inspect.signature(common).parameters

    def decorate(build: Build) -> Callable[..., None]:
        _, *mine = inspect.signature(build).parameters.values()

        @wraps(build)
        def command(dry_run: bool, quiet: bool, as_json: bool, seeds: Any, code: Any, **fields: Any) -> None:
            from subspaces.studies.setting import Setting

            arguments = {one.name: fields.pop(one.name) for one in mine}
            with usage("out", *own):
                changes = shared.given(fields, quiet, as_json, seeds)
                show = "quiet" if quiet or as_json else "bar"
                plan, run = build(partial(Setting.of, seeds=seeds or None, show=show, **changes), **arguments)
            carry_out(plan, run, dry_run, as_json)

        rest = inspect.Parameter("fields", inspect.Parameter.VAR_KEYWORD, annotation=Any)
        shown = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*mine, *options.values())]
        command.__signature__ = inspect.Signature([*shown, rest])  # type: ignore[attr-defined]
        recipe = with_fields(Recipe, shared.RECIPE, defaults=False, without=without)
        return with_fields(Execution, shared.EXECUTION)(recipe(command))

    return decorate


def carry_out(plan: Any, run: Callable[[Any], "Result"], dry_run: bool, as_json: bool) -> None:
    """Show what would be done, or do it and show what came of it."""
    if dry_run:
        printing.show_plan(plan.recipes, plan.setting.runs, as_json)
        return
    made = run(plan)
    if as_json:
        typer.echo(json.dumps(made.summary()))
        return
    for table in made.tables():
        printing.show_table(table)
    for note in made.notes():
        typer.echo(f"- {note}")
    typer.echo(f"wrote {', '.join(map(str, made.files))}")
    for reason in made.left_out:
        typer.echo(reason, err=True)
