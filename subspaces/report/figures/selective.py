"""Risk against coverage: what is won by leaving out the least confident predictions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.report.figures import style
from subspaces.report.figures.predictors import Predictor, predictors
from subspaces.report.reading import Curve, Group


def figure(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw midpoints dashed and ensembles solid, with AURC in the legend."""
    with style.styled():
        drawing = style.blank(style.COLUMN, 2.5)
        axes = drawing.add_subplot()
        looks = dict(zip([group.label for group in groups], style.looks(groups), strict=True))
        handles = []
        for predictor in predictors(groups, split):
            look = looks[predictor.group.label]
            line = look.line if predictor.group.runs[0].single else "-" if predictor.ensemble else style.DASHED
            drawn = style.band(axes, curve(predictor), 100, look, line, every=8)
            drawn.set_label(f"{predictor.label} ({area(predictor)})".replace(" ± ", "\u00a0±\u00a0"))
            drawn.set_clip_on(False)  # markers on the axes are whole
            handles.append(drawn)
        axes.set(xlabel="coverage (%)", ylabel="error of the predictions kept (%)", xlim=(0, 100))
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_title(style.heading(groups, split))
        style.legend(drawing, handles, columns=1, title=f"AURC in %; {style.seeds(groups)}")
    return drawing


def curve(predictor: Predictor) -> Curve:
    """Return the error over the coverage in percent, on the grid of the first seed."""
    grid = np.array(predictor.rows[0].risk_coverage.coverage)
    risks = [np.interp(grid, row.risk_coverage.coverage, row.risk_coverage.risk) for row in predictor.rows]
    return Curve(100 * grid, np.array(risks))


def area(predictor: Predictor) -> str:
    """Return the area under the curve, in percent."""
    values = 100 * np.array([row.metrics["aurc"] for row in predictor.rows])
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"
