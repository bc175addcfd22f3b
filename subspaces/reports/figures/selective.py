"""Risk against coverage: what is won by leaving out the least confident predictions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.evaluation import statistics
from subspaces.reports.answers import Answer, confident
from subspaces.reports.figures import style
from subspaces.reports.reading import Curve, Group


def figure(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw single networks dashed and ensembles solid, with AURC in the legend."""
    drawing = style.blank(style.COLUMN, 2.5)
    axes = drawing.add_subplot()
    looks = dict(zip([group.label for group in groups], style.looks(groups), strict=True))
    handles = []
    for answer in confident(groups, split, "risk_coverage"):
        look = looks[answer.group.label]
        line = look.line if answer.group.runs[0].single else "-" if answer.networks > 1 else style.DASHED
        drawn = style.band(axes, curve(answer), 100, look, line, every=8)
        drawn.set_label(f"{answer.label} ({area(answer)})".replace(" ± ", "\u00a0±\u00a0"))
        drawn.set_clip_on(False)  # markers on the axes are whole
        handles.append(drawn)
    axes.set(xlabel="most confident answers kept (%)", ylabel="error among them (%)", xlim=(0, 100))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(style.heading(groups, split))
    style.legend(
        drawing, handles, columns=1, title=f"AURC, the area below a line, in %\n{style.seeds(groups)}".rstrip()
    )
    return drawing


def curve(answer: Answer) -> Curve:
    """Return the error over the coverage in percent, on the grid of the first seed."""
    curves = [row.risk_coverage for row in answer.rows if row.risk_coverage is not None]
    grid = np.array(curves[0].coverage)
    risks = [np.interp(grid, each.coverage, each.risk) for each in curves]
    return Curve(100 * grid, np.array(risks))


def area(answer: Answer) -> str:
    """Return the area under the curve, in percent."""
    return statistics.shown(answer.spread("aurc"), 100)
