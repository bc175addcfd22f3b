"""The figure of the instability analysis: three panels over the number of shared epochs."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from subspaces.evaluation.statistics import Spread
from subspaces.reports.figures import style
from subspaces.reports.measures import measure
from subspaces.studies.mixing import KINDS, WORDS, Kind

AVERAGES: tuple[Kind, ...] = ("average", "ensemble")
MIXTURES: tuple[Kind, ...] = ("global", "layerwise", "per-weight")
LOOKS: dict[Kind, style.Look] = {
    "branch": style.Look(style.GREYS[0], "*", style.DOTS[0]),
    **{kind: style.Look(style.COLOURS[i], style.MARKERS[i]) for i, kind in enumerate((*AVERAGES, *MIXTURES))},
}
BELOW = 5.0  # points of accuracy below the lowest branch where a panel ends
Accuracy = Callable[[int, int, Kind], Spread]
"""Of so many models that share so many epochs."""


def panels(title: str, models: Sequence[int], shared: Sequence[int], accuracy: Accuracy) -> Figure:
    """Draw averages and ensembles of the fewest models, their mixtures, and averages and ensembles of the most."""
    fewest, most = models[0], models[-1]
    wanted = [(fewest, AVERAGES), (fewest, MIXTURES), *([(most, AVERAGES)] if most > fewest else [])]
    found = [(kind, accuracy(m, k, kind)) for m in models for k in shared for kind in KINDS]
    with style.styled():
        drawing = style.blank(style.PAGE, 2.4)
        axes = drawing.subplots(1, len(wanted), sharey=True)
        bottom, top = _limits(found)
        for each, (count, kinds) in zip(axes, wanted, strict=True):
            _panel(
                each, shared, {kind: [accuracy(count, k, kind) for k in shared] for kind in ("branch", *kinds)}, bottom
            )
            each.set_title(f"{'random mixtures of' if kinds == MIXTURES else 'average and ensemble of'} {count}")
        axes[0].set(ylabel=measure("accuracy").axis, ylim=(bottom, top))
        drawing.suptitle(title, x=0.005, ha="left", fontsize=style.FONT)
        handles = [style.key(look, WORDS[kind]) for kind, look in LOOKS.items()]
        cut = "" if bottom is None else "; triangles at the bottom: below the panel"
        style.legend(drawing, handles, columns=3, title="mean ± standard deviation" + cut)
    return drawing


def _limits(found: Sequence[tuple[Kind, Spread]]) -> tuple[float | None, float]:
    """Return where panels end; below only if some means are so low that the others could not be told apart."""
    floor = 100 * min(each.mean for kind, each in found if kind == "branch") - BELOW
    lowest = 100 * min(each.mean for _, each in found)
    highest = 100 * max(each.mean + (each.std or 0.0) for _, each in found)
    bottom = floor if lowest < floor else None
    return bottom, highest + 0.05 * (highest - max(lowest, floor))


def _panel(axes: Axes, shared: Sequence[int], found: dict[Kind, list[Spread]], bottom: float | None) -> None:
    """Draw some kinds beside the branches themselves; the numbers of shared epochs are equally far apart."""
    places = np.arange(len(shared))
    for index, (kind, each) in enumerate(found.items()):
        mean, std = (
            100 * np.array(column) for column in zip(*((one.mean, one.std or 0.0) for one in each), strict=True)
        )
        look = LOOKS[kind]
        axes.plot(places, mean, color=look.colour, linestyle=look.line, **look.mark)
        axes.fill_between(places, mean - std, mean + std, color=look.colour, alpha=look.shade, linewidth=0)
        if bottom is not None and (low := mean < bottom).any():
            beside = places[low] + 0.16 * (index - len(found) / 2)  # others may be there too
            axes.plot(beside, [bottom] * int(low.sum()), "v", color=look.colour, markersize=4, clip_on=False)
    axes.set_xticks(places, [str(k) for k in shared])
    axes.set_xlabel("shared epochs")
