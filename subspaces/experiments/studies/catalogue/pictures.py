"""Pictures that no figure of the reports is: along lines with a level, over epochs, and numbers beside answers."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from subspaces.evaluation.statistics import Spread
from subspaces.reports.figures import along, style
from subspaces.reports.measures import measure
from subspaces.reports.reading import Curve, Group

TOGETHER = style.Look("#000000", "*", style.DOTS[1])


def along_with(groups: Sequence[Group], label: str, values: Sequence[float]) -> Figure:
    """Draw accuracy along lines and curves, with one more number as a level: a value for each seed."""
    with style.styled():
        drawing = style.blank(style.COLUMN, 2.7)
        axes = drawing.add_subplot()
        methods, lines = along.panel(axes, groups, style.looks(groups), "accuracy", "test")
        level = style.level(axes, Curve(np.zeros(1), np.array(values)[:, None]), 100.0, TOGETHER)
        level.set_label(label)
        axes.set_title(style.heading(groups, "test"))
        axes.set_ylabel(measure("accuracy").axis)
        along.legends(drawing, [*methods, level], lines, groups, columns=2)
    return drawing


def bars(title: str, numbers: Mapping[str, Mapping[str, Spread]], names: Sequence[str]) -> Figure:
    """Draw a panel of bars for each measure, a bar for each method."""
    with style.styled():
        drawing = style.blank(style.PAGE, 0.9 + 0.3 * len(numbers))
        panels = drawing.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            for place, each in enumerate(numbers.values()):
                found = each[name]
                axes.barh(place, found.mean, 0.62, color=style.COLOURS[place % len(style.COLOURS)])
                if found.std is not None:
                    axes.errorbar(found.mean, place, xerr=found.std, color="#222222", capsize=2, linewidth=0.9)
            axes.set_xlabel(measure(name).label)
            axes.grid(False, axis="y")
            axes.tick_params(axis="y", length=0)
            axes.set_xlim(left=0)
        panels[0].set_yticks(range(len(numbers)), list(numbers))
        panels[0].invert_yaxis()
        drawing.suptitle(title, x=0.005, ha="left", fontsize=style.FONT)
    return drawing
