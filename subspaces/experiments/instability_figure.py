"""The figure of the instability analysis: three panels over the number of shared epochs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from subspaces.experiments import instability_tables as tables
from subspaces.experiments.instability import InstabilityStudy, Kind
from subspaces.experiments.statistics import spread
from subspaces.report.figures import style

AVERAGES: tuple[Kind, ...] = ("average", "ensemble")
MIXTURES: tuple[Kind, ...] = ("global", "layerwise", "per-weight")
LOOKS: dict[Kind, style.Look] = {
    "branch": style.Look(style.GREYS[0], "*", style.DOTS[0]),
    **{kind: style.Look(style.COLOURS[i], style.MARKERS[i]) for i, kind in enumerate((*AVERAGES, *MIXTURES))},
}
BELOW = 10.0  # points of accuracy below the lowest branch where a panel ends


def panels(study: InstabilityStudy) -> Figure:
    """Draw averages and ensembles of the fewest models, their mixtures, and averages and ensembles of the most."""
    fewest, most = study.plan.models[0], study.plan.models[-1]
    wanted = [(fewest, AVERAGES), (fewest, MIXTURES), *([(most, AVERAGES)] if most > fewest else [])]
    with style.styled():
        drawing = style.blank(style.PAGE, 2.4)
        axes = drawing.subplots(1, len(wanted), sharey=True)
        bottom = _bottom(study)
        for each, (models, kinds) in zip(axes, wanted, strict=True):
            _panel(each, study, models, kinds, bottom)
        axes[0].set_ylabel(style.measure("accuracy").label)
        drawing.suptitle(tables.heading(study), x=0.005, ha="left", fontsize=style.FONT)
        handles = [style.key(look, tables.WORDS[kind]) for kind, look in LOOKS.items()]
        cut = "" if bottom is None else "; triangles at the bottom: below the panel"
        style.legend(drawing, handles, columns=3, title="mean ± standard deviation" + cut)
    return drawing


def _bottom(study: InstabilityStudy) -> float | None:
    """Return where panels end, if some means are so far below the branches that these could not be told apart."""
    means = [(cell.kind, 100 * spread(cell.values()).mean) for cell in study.cells]
    floor = min(mean for kind, mean in means if kind == "branch") - BELOW
    return floor if min(mean for _, mean in means) < floor else None


def _panel(axes: Axes, study: InstabilityStudy, models: int, kinds: Sequence[Kind], bottom: float | None) -> None:
    shared = np.array(study.plan.shared, float)
    for kind in ("branch", *kinds):
        found = [spread(study.cell(models, k, kind).values()) for k in study.plan.shared]
        mean = 100 * np.array([each.mean for each in found])
        std = 100 * np.array([each.std or 0.0 for each in found])
        look = LOOKS[kind]
        axes.plot(shared, mean, color=look.colour, linestyle=look.line, **look.mark)
        axes.fill_between(shared, mean - std, mean + std, color=look.colour, alpha=look.shade, linewidth=0)
        if bottom is not None and (low := mean < bottom).any():
            axes.plot(shared[low], [bottom] * low.sum(), "v", color=look.colour, markersize=4.8, clip_on=False)
    if bottom is not None:
        axes.set_ylim(bottom=bottom)
    _epochs(axes, study)
    words = "random mixtures of" if kinds == MIXTURES else "averages of"
    axes.set_title(f"{words} {models} models")


def _epochs(axes: Axes, study: InstabilityStudy) -> None:
    """Scale the axis of shared epochs so that short trunks have room."""
    shared = study.plan.shared
    first = next((k for k in shared if k), 1)
    if max(shared) > 8 * first:
        axes.set_xscale("symlog", linthresh=first, linscale=0.6)
    axes.xaxis.set_major_locator(FixedLocator(shared))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(shared, [str(k) for k in shared])
    axes.set_xlabel("shared epochs")
