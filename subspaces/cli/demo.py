"""`subspaces demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from subspaces.cli.errors import usage
from subspaces.cli.shared import Quiet

if TYPE_CHECKING:
    from subspaces.demo import Row, Setting


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the runs and the report.", metavar="DIR")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many times everything is trained.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs for each network and each line.")] = 60,
    label_noise: Annotated[float, typer.Option(min=0, max=0.99, help="Fraction of random training labels.")] = 0.4,
    quiet: Quiet = False,
) -> None:
    """Train networks and lines on scikit-learn's digits, compare them and write a report.

    What is in the folder already is not trained again.
    """
    import torch

    from subspaces import demo as study

    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is a file", param_hint="--out")
    torch.set_num_threads(1)  # the networks are so small that more threads only wait for each other
    with usage("seeds", "epochs", "label_noise"):
        setting = study.Setting(seeds=seeds, epochs=epochs, label_noise=label_noise)
    result = study.run(setting, out, "quiet" if quiet else "bar")
    _show(result.rows, setting)
    for sentence in study.findings(result.rows):
        typer.echo(f"- {sentence}")
    family = result.lines[-1].family_file
    typer.echo(f"The last line is {family}; read it with ss.load({str(family)!r}, ss.networks.MLP)")
    if result.report is None:
        typer.echo("For the report page: pip install 'subspaces[report]', then the same command again")
    else:
        typer.echo(f"The report: {result.report.resolve()}")


def _show(rows: "list[Row]", setting: "Setting") -> None:
    """Print the table of the demo."""
    table = Table(
        title=f"digits with {setting.label_noise:.0%} random training labels, {setting.epochs} epochs each",
        caption=f"mean ± standard deviation over {setting.seeds} seeds, clean test labels; two answer as an ensemble "
        "(of the line: alpha = 0.1 and 0.9); networks trained, and used at test",
    )
    table.add_column("prediction by")
    for title in ("accuracy %", "ECE %", "trained", "at test"):
        table.add_column(title, justify="right")
    for row in rows:
        spread = [f"{v.mean():.1f} ± {v.std(correction=min(1, len(v) - 1)):.1f}" for v in (row.accuracy, row.ece)]
        table.add_row(row.name, *spread, str(row.networks_trained), str(row.networks_at_test))
    Console().print(table)
