"""`subspaces select`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from subspaces import api
from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.cli.shared import EXECUTION, Code, Data, Trust, completing, json_option, option, out_option
from subspaces.core.selection.criteria import CRITERIA
from subspaces.core.selection.selection import shown
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.files import to_json
from subspaces.experiments.evaluating import selection as run_selection
from subspaces.experiments.evaluating.selection import RunSelection
from subspaces.experiments.training import Execution
from subspaces.export.exporting import check_target

DEVICE = ("device", "precision", "workers")
DOMAIN = "The new domain"
CHOICE = "The choice"


@with_fields(Execution, EXECUTION, only=DEVICE)
def select(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    corruption: Annotated[
        str | None,
        option(
            f"Spoil the run's test images, as ImageNet-C does: {', '.join(CORRUPTIONS)}.",
            "NAME",
            DOMAIN,
            autocompletion=completing(lambda: CORRUPTIONS),
        ),
    ] = None,
    severity: Annotated[int, option("How much, from 1 to 5.", "INT", DOMAIN, True)] = 3,
    images: Annotated[
        Path | None,
        option(
            "Other images instead: an .npz file with images (uint8) and labels, or a folder with images.npy and "
            "labels.npy.",
            "PATH",
            DOMAIN,
        ),
    ] = None,
    examples: Annotated[
        int, option("Choose on so many, drawn at random; the others are measured.", "INT", CHOICE, True)
    ] = 100,
    by: Annotated[
        str,
        option(
            "nll, accuracy, or entropy, which looks at no labels.",
            "NAME",
            CHOICE,
            True,
            autocompletion=completing(lambda: CRITERIA),
        ),
    ] = "nll",
    per: Annotated[
        str, option("One point for the network, or one for each layer.", "network|layer", CHOICE, True)
    ] = "network",
    statistics_batches: Annotated[
        int, option("Training batches for the batch-norm statistics of a point.", "INT", CHOICE, True, min=1)
    ] = 100,
    seed: Annotated[int, option("Of the examples that are drawn.", "INT", CHOICE, True, min=0, max=2**32 - 1)] = 0,
    out: Annotated[
        Path | None,
        out_option("Also export the chosen network: FILE.safetensors, .pt2 or .onnx, with a card.", "FILE"),
    ] = None,
    data: Data = ROOT,
    code: Code = None,
    trust: Trust = False,
    as_json: Annotated[bool, json_option("a line of JSON instead")] = False,
    **fields: Any,
) -> None:
    """Choose the point of a finished run for a new domain, on a few labelled images of it.

    The midpoint is left only where a gain is certain. The choice goes to selection.json in the run's folder.

    Example: subspaces select runs/cifar10-line-* --corruption fog --severity 3 --examples 100
    """
    with usage("corruption", "severity", "images", "examples", "by", "per"):
        run_selection.check(corruption, severity, images, examples, by, per)
        execution = Execution(**{name: fields.pop(name) for name in DEVICE})
        execution.resolved()  # which refuses what is not there
    with usage(path="out"):
        if out is not None:
            check_target(out)
    found = run_selection.select_run(
        run,
        corruption=corruption,
        severity=severity,
        images=images,
        examples=examples,
        by=by,
        per=per,
        statistics_batches=statistics_batches,
        seed=seed,
        data=data,
        execution=execution,
        trust=trust,
    )
    if out is not None:
        api.export(run, out, point="selected", data=data, trust=trust, progress=not as_json)
    if as_json:
        typer.echo(to_json({"run": str(run), **dataclasses.asdict(found)}))
    else:
        _show(found)
        if out is not None:
            printing.echo(f"wrote {out}")
            printing.echo(f"wrote {out}.md")


def _show(found: RunSelection) -> None:
    for line in f"{found.domain}\n{found.selection}\n".split("\n"):
        printing.echo(line)
    title = f"on the {found.others:,} other images"
    listed = printing.table("network", "point", "accuracy %", "nll", title=title, numbers=("accuracy %", "nll"))
    for row in found.rows:
        listed.add_row(row.name, escape(shown(row.alpha)), f"{100 * row.accuracy:.2f}", f"{row.nll:.4f}")
    printing.show(listed)
    printing.echo("best and worst: of the walk, with hindsight on these images")
