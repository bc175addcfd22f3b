"""Risk against coverage: what is won by leaving out the least confident predictions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.evaluation import statistics
from subspaces.report.answers import Answer, headed
from subspaces.report.figures import style
from subspaces.report.reading import Curve, Group


def figure(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw single networks dashed and ensembles solid, with AURC in the legend."""
    with style.styled():
        drawing = style.blank(style.COLUMN, 2.5)
        axes = drawing.add_subplot()
        looks = dict(zip([group.label for group in groups], style.looks(groups), strict=True))
        handles = []
        for answer in headed(groups, split):
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
        style.legend(drawing, handles, columns=1, title=f"AURC, the area below a line, in %\n{style.seeds(groups)}")
    return drawing


def curve(answer: Answer) -> Curve:
    """Return the error over the coverage in percent, on the grid of the first seed."""
    grid = np.array(answer.rows[0].risk_coverage.coverage)
    risks = [np.interp(grid, row.risk_coverage.coverage, row.risk_coverage.risk) for row in answer.rows]
    return Curve(100 * grid, np.array(risks))


def area(answer: Answer) -> str:
    """Return the area under the curve, in percent."""
    return statistics.shown(answer.spread("aurc"), 100)
