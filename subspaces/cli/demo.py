"""`subspaces demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from subspaces.cli.options import Quiet

if TYPE_CHECKING:
    from subspaces.demo import Row, Setting


def demo(
    out: Annotated[Path, typer.Option(help="Where to save the last line.")] = Path("demo.safetensors"),
    seeds: Annotated[int, typer.Option(min=1, help="How many times everything is trained.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs for each network and each line.")] = 60,
    label_noise: Annotated[float, typer.Option(min=0, max=1, help="Fraction of random training labels.")] = 0.4,
    quiet: Quiet = False,
) -> None:
    """Train two networks and one line on scikit-learn's digits, compare them and save the line."""
    import torch

    from subspaces import demo as study
    from subspaces.storage import save

    if out.is_dir() or not out.parent.is_dir():
        problem = f"{out} is a folder" if out.is_dir() else f"the folder {out.parent} does not exist"
        raise typer.BadParameter(problem, param_hint="--out")
    torch.set_num_threads(1)  # the networks are so small that more threads only wait for each other
    setting = study.Setting(seeds=seeds, epochs=epochs, label_noise=label_noise)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        task = progress.add_task("training", total=3 * seeds * setting.steps)
        rows, family = study.run(setting, lambda: progress.advance(task))
    save(family, out)
    _show(rows, setting)
    for sentence in study.findings(rows):
        typer.echo(f"- {sentence}")
    typer.echo(f"The last line is saved in {out}; read it with ss.load({str(out)!r}, ss.networks.MLP)")


def _show(rows: "list[Row]", setting: "Setting") -> None:
    """Print the table of the demo."""
    table = Table(
        title=f"digits with {setting.label_noise:.0%} random training labels, {setting.epochs} epochs each",
        caption=f"mean ± standard deviation over {setting.seeds} seeds, clean test labels; two answer as an ensemble "
        "(of the line: alpha = 0.1 and 0.9); steps in training, networks at test",
    )
    table.add_column("prediction by")
    for title in ("accuracy %", "ECE %", "steps", "networks"):
        table.add_column(title, justify="right")
    for row in rows:
        spread = [f"{v.mean():.1f} ± {v.std(correction=min(1, len(v) - 1)):.1f}" for v in (row.accuracy, row.ece)]
        table.add_row(row.name, *spread, str(row.training_steps), str(row.networks_at_test))
    Console().print(table)
