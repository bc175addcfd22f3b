"""`subspaces demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.shared import Quiet, out_option
from subspaces.evaluation import statistics

if TYPE_CHECKING:
    from subspaces.evaluation.group_answers import GroupAnswer
    from subspaces.experiments.demo import Setting


def demo(
    out: Annotated[Path, out_option("The folder for the runs and the report.", "DIR")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many times everything is trained.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs for each network and each line.")] = 60,
    label_noise: Annotated[float, typer.Option(min=0, max=0.99, help="Fraction of random training labels.")] = 0.4,
    quiet: Quiet = False,
) -> None:
    """Train networks and lines on scikit-learn's digits, compare them and write a report.

    What is in the folder already is not trained again.
    """
    import torch

    from subspaces.experiments import demo as study

    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is a file", param_hint="--out")
    torch.set_num_threads(1)  # the networks are so small that more threads only wait for each other
    with usage("seeds", "epochs", "label_noise"):
        setting = study.Setting(seeds=seeds, epochs=epochs, label_noise=label_noise)
    result = study.run(setting, out, "quiet" if quiet else "bar")
    _show(result.answers, setting)
    for sentence in study.findings(result.answers):
        printing.echo(f"- {sentence}")
    family = result.lines[-1].family_file
    printing.echo(f"The last line is {family}; read it with ss.load({str(family)!r}, ss.networks.MLP)")
    if result.report is None:
        printing.echo("For the report page: pip install 'subspaces[report]', then the same command again")
    else:
        printing.echo(f"The report: {result.report.resolve()}")


def _show(answers: "dict[str, GroupAnswer]", setting: "Setting") -> None:
    """Print the table of the demo."""
    numbers = ("accuracy %", "ECE %", "trained", "at test")
    table = printing.table(
        *("prediction by", *numbers),
        title=f"digits with {setting.label_noise:.0%} random training labels, {setting.epochs} epochs each",
        caption=f"mean ± standard deviation over {setting.seeds} seeds, clean test labels; two answer as an ensemble "
        "(of the line: alpha = 0.1 and 0.9); networks trained, and used at test",
        numbers=numbers,
    )
    for name, one in answers.items():
        spread = [statistics.shown(one.spread(metric), 100, 1) for metric in ("accuracy", "ece")]
        table.add_row(name, *spread, str(one.runs), str(one.networks))
    printing.show(table)
