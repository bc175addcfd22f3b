"""`subspaces compare` and `subspaces study noise | grid | integral | instability`: many runs, one table."""

import inspect
import json
from collections.abc import Callable, Collection
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subspaces.cli import printing, shared
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, Several, complete, with_fields
from subspaces.cli.shared import COMPARISON, Recipes, metric_names, option, recipe_names
from subspaces.errors import ArgumentError
from subspaces.evaluation.settings import PASSES
from subspaces.experiments.training import Execution, Recipe

if TYPE_CHECKING:
    from subspaces.experiments.studies.setting import Plan, Setting
    from subspaces.experiments.studies.tables import Result

TRIED = "0.05 0.1 0.2 0.4 0.8"
SHARED = "Study: what is shared, and how many branch"
CHOSEN = "Study: levels, and settings to choose from"
Numbers = list[float] | None
Levels = Annotated[
    Numbers,
    option("Fractions of training labels that are drawn at random.", "FLOAT...", shared.RECIPE, "0 0.2 0.4 0.6"),
]
Ensembles = Annotated[
    list[int] | None,
    option(
        "Also measure ensembles of this many independent standard runs; by default of 2, if there are 2 seeds.",
        "INT...",
        COMPARISON,
    ),
]
DropoutPasses = Annotated[
    int, typer.Option(help="How often a network with dropout is asked for MC-dropout.", rich_help_panel=COMPARISON)
]
Ask = Callable[..., "Setting"]
"""Makes the setting of a command's own options, and of those that all of these commands have."""
Build = Callable[..., "Plan[Any]"]


def study_command(out: str, without: Collection[str] = ()) -> Callable[[Build], Callable[..., None]]:
    """Make a command of a function that plans: of what is asked for and its own options to a plan.

    Args:
        out: where the tables go unless said otherwise.
        without: fields of recipes that it refuses.
    """

    def common(
        seeds: shared.Seeds = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Only show what would be trained.", rich_help_panel=shared.OUTPUT)
        ] = False,
        data: shared.Data = ROOT,
        code: shared.Code = None,
        runs: Annotated[
            Path, option("The folder with the runs; finished ones are not trained again.", "DIR", shared.OUTPUT, True)
        ] = Path("runs"),
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
            from subspaces.experiments.studies import setting
            from subspaces.experiments.studies.setting import Setting

            arguments = {one.name: fields.pop(one.name) for one in mine}
            with usage("out", *arguments):
                changes = shared.given(fields, quiet, as_json, seeds)
                show = "quiet" if quiet or as_json else "bar"
                plan = build(partial(Setting.of, seeds=seeds or None, show=show, **changes), **arguments)
            if dry_run:
                printing.show_plan(plan.recipes, plan.setting.runs, as_json)
            else:
                _show(setting.run(plan), as_json)

        rest = inspect.Parameter("fields", inspect.Parameter.VAR_KEYWORD, annotation=Any)
        shown = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*mine, *options.values())]
        command.__signature__ = inspect.Signature([*shown, rest])  # type: ignore[attr-defined]
        recipe = with_fields(Recipe, shared.RECIPE, defaults=False, without=without)
        return with_fields(Execution, shared.EXECUTION)(recipe(command))

    return decorate


def _show(made: "Result", as_json: bool) -> None:
    """Show what came of a study."""
    if as_json:
        typer.echo(json.dumps(made.summary()))
        return
    for table in made.tables():
        printing.show_table(table)
    for note in made.notes():
        printing.echo(f"- {note}")
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
    for reason in made.left_out:
        printing.echo(reason, err=True)


@study_command("comparison")
def compare(
    ask: Ask,
    recipes: Recipes,
    ensembles: Ensembles = None,
    reference: Annotated[
        str | None,
        option(
            "The recipe that all are compared with; by default the first standard one.",
            "RECIPE",
            COMPARISON,
            autocompletion=recipe_names,
        ),
    ] = None,
    dropout_passes: DropoutPasses = PASSES,
) -> "Plan[Any]":
    """Train and evaluate what is missing of several methods, and print and write one table of them all.

    Accuracy, NLL, ECE, Brier score and costs of every way in which a method answers, and differences that are
    paired by the seed. The same command again continues what was stopped; nothing is trained or measured twice.

    Example: subspaces compare digits-standard digits-line digits-simplex --seeds 0 1 2 -o comparison
    """
    from subspaces.experiments.studies.compare import plan

    return plan(recipes, ask(ensembles=ensembles or None, dropout_passes=dropout_passes), reference)


@study_command("instability", without=("keep_epoch", "start_from"))
def instability(
    ask: Ask,
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="The training that is branched; its result is one network.",
            autocompletion=recipe_names,
        ),
    ] = "cifar10-standard",
    shared: Annotated[
        list[int] | None,
        option("How many epochs are shared: numbers; by default 0, and 1/32, 1/16, …, 3/4 of all.", "INT...", SHARED),
    ] = None,
    models: Annotated[
        list[int] | None,
        option("How many networks are averaged, put together and mixed: numbers.", "INT...", SHARED, "2 5"),
    ] = None,
    draws: Annotated[int, typer.Option(help="Random mixtures of each kind.", rich_help_panel=SHARED)] = 5,
) -> "Plan[Any]":
    """Train networks that share their first epochs, and measure their averages, ensembles and random mixtures.

    The first run keeps its checkpoint after the shared epochs, from which the others start. The same command again
    continues what was stopped.

    Example: subspaces study instability digits-standard --shared 0 4 15 30 45 --seeds 0 1 -o instability
    """
    from subspaces.experiments.studies.instability import MODELS, plan

    return plan(recipe, ask(), shared or None, models or MODELS, draws)


@study_command("integral", without=("label_noise",))
def integral(
    ask: Ask,
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE",
            help="The methods, one of them integral.",
            show_default="mnist-standard mnist-line mnist-integral",
            autocompletion=recipe_names,
        ),
    ] = None,
    levels: Levels = None,
) -> "Plan[Any]":
    """Compare Integral, whose ensemble of all networks of a line is one network, with others under label noise.

    All methods train with the learning rate 0.02 unless --learning-rate says otherwise: with 0.1 the training of
    Integral breaks down. The same command again continues what was stopped.

    Example: subspaces study integral --data data --seeds 0 1 2 -o integral
    """
    from subspaces.experiments.studies.grid import INTEGRAL, LEVELS, plan_integral

    return plan_integral(recipes or INTEGRAL, ask(), levels or LEVELS)


@study_command("noise", without=("label_noise",))
def noise(
    ask: Ask,
    recipes: Recipes,
    levels: Levels = None,
    dropout_rates: Annotated[
        Numbers,
        option("Rates of dropout to try on standard training; 0 leaves dropout out.", "FLOAT...", CHOSEN, TRIED),
    ] = None,
    smoothing_rates: Annotated[
        Numbers,
        option("Rates of label smoothing to try on standard training; 0 leaves it out.", "FLOAT...", CHOSEN, TRIED),
    ] = None,
    by: Annotated[
        str,
        option("The metric that chooses, on held-out images.", "NAME", CHOSEN, True, autocompletion=metric_names),
    ] = "accuracy",
    ensembles: Ensembles = None,
    dropout_passes: DropoutPasses = PASSES,
) -> "Plan[Any]":
    """Compare methods over levels of label noise: accuracy and calibration, one table and one figure.

    Dropout and label smoothing are tried at several rates; the best on held-out images (--validation) is reported.
    The same command again continues what was stopped.

    Example: subspaces study noise cifar10-standard cifar10-simplex --validation 5000 --seeds 0 1 -o noise
    """
    from subspaces.experiments.studies.grid import LEVELS, RATES, plan

    lists = {"dropout": dropout_rates or RATES, "label_smoothing": smoothing_rates or RATES}
    asked = ask(ensembles=ensembles or None, dropout_passes=dropout_passes)
    try:
        return plan(recipes, asked, levels or LEVELS, lists, by)
    except ValueError as error:
        hint = "; --dropout-rates 0 leaves dropout out of the study" if str(error).startswith("dropout=") else ""
        raise ArgumentError(f"{error}{hint}") from None


def build() -> typer.Typer:
    """Return the commands of the studies, with an option for every field that there is."""
    app = typer.Typer(help="Studies: many runs, one table and one figure.", no_args_is_help=True)
    for command in (instability, integral, noise):
        app.command(cls=Several)(complete(command))
    return app
