"""What all figures share: size, colours, bands, legends, files."""

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from subspaces.core import storage
from subspaces.evaluation import comparing
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import Curve

COLUMN, PAGE = 3.4, 6.9  # inches: the widths of a column and of a page of two columns
FONT = 8.0
CHARACTERS = 43  # of a label that fits into a column
TEXTS = ("font.size", "axes.labelsize", "axes.titlesize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
THIN = ("axes.linewidth", "xtick.major.width", "ytick.major.width", "hatch.linewidth")
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a figure is the same everywhere
    **dict.fromkeys((*TEXTS, "legend.title_fontsize"), FONT),
    **dict.fromkeys(THIN, 0.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "axes.titlelocation": "left",
    "grid.color": "#e3e3e3",
    **dict.fromkeys(("grid.linewidth", "lines.markeredgewidth"), 0.5),
    "legend.handlelength": 3.2,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.3,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType, as publishers ask for
}
# Okabe and Ito's palette without yellow, which is too light for a thin line; black is for single networks.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
GREYS = ("#000000", "#6e6e6e", "#a0a0a0")
DOTS: tuple[Any, ...] = ((0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)))
DASHED: Any = (0, (4, 1.6))
GREY, DARK = "#555555", "#222222"
# the best point of a line; hollow, for it was chosen on the very images that it is reported on
BEST: dict[str, Any] = {"marker": "*", "markersize": 7, "markeredgewidth": 0.7, "linestyle": "none"}
BEST["markerfacecolor"] = "white"
BEST_LABEL = "best network, chosen on these images"


@dataclass(frozen=True)
class Look:
    """How a group is drawn, with and without colour."""

    colour: str
    marker: str
    line: Any = "-"
    shade: float = 0.13  # of the band
    hollow: bool = False

    @property
    def mark(self) -> dict[str, Any]:
        """The marker; a star needs more room than the others to be as large."""
        mark = {"marker": self.marker, "markersize": 9 if self.marker == "*" else 4.8, "markeredgecolor": "white"}
        edge = {"markeredgecolor": self.colour, "markerfacecolor": "white", "markeredgewidth": 1.0}
        return {**mark, **edge} if self.hollow else mark


def looks(groups: Sequence[Group]) -> list[Look]:
    """Return a look for each group: greys for single networks, colours for subspaces."""
    return looks_of([group.single for group in groups])


def looks_of(grey: Sequence[bool]) -> list[Look]:
    """Return greys where asked for and colours elsewhere; the first grey has a star, the others have hollow markers."""
    shade, marks = shading(len(grey) - sum(grey)), ("*", *MARKERS)
    greys = (Look(GREYS[k % 3], marks[k % 11], DOTS[k % 3], hollow=k % 11 > 0) for k in count())
    colours = (Look(COLOURS[k % 6], MARKERS[k % 10], shade=shade) for k in count())
    return [next(greys if each else colours) for each in grey]


def shading(count: int) -> float:
    """Return how dark bands may be where so many of them lie on top of each other."""
    return 0.13 if count <= 3 else 0.07


@contextmanager
def styled() -> Iterator[None]:
    """Use this package's style and nothing of the user's."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def blank(width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """Return an empty figure of so many inches, which makes room for what lies outside of its axes."""
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def band(axes: Axes, curve: Curve, scale: float, look: Look, line: Any = None, every: int = 1) -> Line2D:
    """Draw the mean over seeds, and one standard deviation to both sides if there are several.

    One point of `every` so many has a marker; where it begins depends on the marker, which tells equal curves apart.
    """
    mean, std = curve.mean * scale, curve.std * scale
    first = (MARKERS.index(look.marker) + look.hollow * (every // 2)) % every if look.marker in MARKERS else 0
    (drawn,) = axes.plot(curve.grid, mean, color=look.colour, linestyle=line or look.line, **look.mark)
    drawn.set_markevery((first, every))
    if len(curve.values) > 1:
        axes.fill_between(curve.grid, mean - std, mean + std, color=look.colour, alpha=look.shade, linewidth=0)
    return drawn


def level(axes: Axes, curve: Curve, scale: float, look: Look, marked: bool = True) -> Line2D:
    """Draw one number as a horizontal line, with the same band, and a marker near its end unless that is a star."""
    mean, std = float(curve.mean[0]) * scale, float(curve.std[0]) * scale
    drawn = axes.axhline(mean, color=look.colour, linestyle=look.line, zorder=1.5)
    if marked and look.marker != "*":  # stars are for what was chosen
        place = 0.93 if look.hollow else 0.985  # a subspace's marker beside it can be seen
        axes.plot(place, mean, color=look.colour, transform=axes.get_yaxis_transform(), **look.mark)
    if len(curve.values) > 1:
        axes.axhspan(mean - std, mean + std, color=look.colour, alpha=min(look.shade, 0.1), linewidth=0)
    return drawn


def heading(groups: Sequence[Group], split: str | None = None, *more: str) -> str:
    """Return what all groups have in common: data set, network, split; and what is said beside."""
    runs = [group.training for group in groups if group.training is not None]
    return comparing.heading(runs if len(runs) == len(groups) else [], f"{split} set" if split else "", *more)


def seeds(groups: Sequence[Group]) -> str:
    """Return what a band or an error bar is, in words."""
    counts = sorted({len(group.evaluations) for group in groups})
    if counts == [1]:
        return "one seed" if any(group.training is not None for group in groups) else ""
    return f"mean ± standard deviation over {'–'.join(map(str, (counts[0], counts[-1])[: len(counts)]))} seeds"


def key(look: Look, label: str, line: Any = None) -> Line2D:
    """Return the entry of a group in a legend."""
    return Line2D([], [], color=look.colour, linestyle=line or look.line, label=wrapped(label), **look.mark)


def wrapped(text: str, characters: int = CHARACTERS) -> str:
    """Return text in lines of so many characters at most."""
    return textwrap.fill(text, characters)


def legend(
    figure: Figure, handles: Sequence[Any], columns: int, title: str = "", place: Any = "outside lower center"
) -> Legend:
    """Put a legend below the axes, or above them, in as many columns as fit, and lengthen the figure by its height."""
    width, height = figure.get_size_inches()
    for across in range(columns, 0, -1):
        made = figure.legend(handles=list(handles), loc=place, ncols=across, title=title or None)
        if across == 1 or made.get_window_extent().width <= width * figure.dpi:
            break
        made.remove()
    made.get_title().set_multialignment("center")
    figure.set_size_inches(width, height + made.get_window_extent().height / figure.dpi)
    return made


def settle(figure: Figure, fit: bool = False) -> None:
    """Place everything for good, so that all files of a figure are the same whichever is written first.

    With `fit` the figure is as high as its axes and a heading: axes of a fixed aspect leave room above and below.
    """
    if (engine := figure.get_layout_engine()) is None:
        return
    with styled():
        for _ in range(2 * fit):  # they move a little when the height changes
            engine.execute(figure)
            boxes = [box for axes in figure.axes if (box := axes.get_tightbbox()) is not None]
            figure.set_size_inches(figure.get_size_inches()[0], Bbox.union(boxes).height / figure.dpi + 0.3)
        engine.execute(figure)
        figure.set_layout_engine("none")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its file's ending says; the same figure gives the same bytes."""
    ending = path.suffix.lower()
    undated = {"CreationDate": None} if ending == ".pdf" else {"Software": None}
    content = io.BytesIO()
    with styled():
        figure.savefig(content, format=ending[1:], dpi=STYLE["savefig.dpi"], metadata=undated)
    storage.write(path, content.getvalue())
