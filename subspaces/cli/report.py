"""`subspaces report`."""

from pathlib import Path
from typing import Annotated

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.shared import RunFolders, out_option


def report(
    runs: RunFolders,
    out: Annotated[Path, out_option("The HTML file.", "FILE")] = Path("report.html"),
) -> None:
    """Write one page about evaluated runs, or files of saved evaluations, which opens offline in any browser.

    A summary in words, charts, a walk through each subspace, and how to make the runs again.

    Example: subspaces report runs/* -o report.html
    """
    from subspaces.reports.page import write_report

    with usage():
        path = write_report(runs, out)
    printing.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
