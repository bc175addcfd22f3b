"""`subspaces demo`."""

import argparse
from pathlib import Path
from typing import Any

import torch

from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.errors import ArgumentError
from subspaces.evaluation import statistics
from subspaces.evaluation.comparing import GroupAnswer
from subspaces.experiments import demo as study


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, demo)
    for name, type_, text in (
        ("seeds", int, "How many times everything is trained."),
        ("epochs", int, "Epochs for each network and each line."),
        ("label_noise", float, "Fraction of random training labels."),
    ):
        default = getattr(study.Setting, name)
        option, metavar = f"--{name.replace('_', '-')}", type_.__name__.upper()
        command.option(option, type=type_, metavar=metavar, default=default, help=f"{text} Default: {default}.")
    parser.add_output(command, Path("demo"), "The folder for the runs and the report.")


def demo(options: argparse.Namespace) -> None:
    """Train networks and lines on scikit-learn's digits, compare them and write a report.

    What is in the folder already is not trained again.
    """
    torch.set_num_threads(1)  # the networks are so small that more threads only wait for each other
    with usage("seeds", "epochs", "label_noise", "out"):
        setting = study.Setting(seeds=options.seeds, epochs=options.epochs, label_noise=options.label_noise)
        if options.out.exists() and not options.out.is_dir():
            raise ArgumentError(f"out={options.out}: it is a file, expected a folder")
    result = study.run(setting, options.out, "quiet" if options.quiet else "bar")
    _show(result.answers, setting)
    for sentence in study.findings(result.answers):
        printing.echo(f"- {sentence}")
    family = result.lines[-1].family_file
    printing.echo(f"The last line is {family}; read it with ss.load({str(family)!r}, ss.networks.MLP)")
    if result.report is None:
        printing.echo("For the report page: pip install 'subspaces[report]', then the same command again")
    else:
        printing.echo(f"The report: {result.report.resolve()}")


def _show(answers: dict[str, GroupAnswer], setting: study.Setting) -> None:
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
