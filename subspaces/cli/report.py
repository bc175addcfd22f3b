"""`subspaces report`."""

from pathlib import Path
from typing import Annotated

from subspaces import evaluations
from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.shared import RunFolders, out_option


def report(
    runs: RunFolders,
    out: Annotated[Path, out_option("The HTML file.", "FILE")] = Path("report.html"),
) -> None:
    """Write one page about evaluated runs, or files of saved evaluations, which opens offline in any browser.

    Tables, charts, a walk through each subspace, and how everything was trained and measured.

    Example: subspaces report runs/* -o report.html
    """
    with usage():
        path = evaluations.report(runs, out)
    printing.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
