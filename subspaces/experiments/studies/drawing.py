"""Figures of comparisons and studies, in the style of the report's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import Curve, described
from subspaces.evaluation.statistics import Difference, Spread
from subspaces.experiments.studies.setting import plain
from subspaces.experiments.studies.tables import Entry
from subspaces.reports.figures import lines, style

SHOWN = ("accuracy", "nll", "ece")
BETTER, WORSE, SEED = "#009E73", "#D55E00", "#8a8a8a"


def differences(title: str, entries: Sequence[Entry], reference: Entry) -> Figure:
    """Draw the paired differences to the reference: each seed, the mean and its interval, with the costs beside."""
    with style.styled():
        drawing = style.blank(style.PAGE, 0.85 + 0.24 * len(entries))
        axes = drawing.subplots(1, len(SHOWN), sharey=True)
        for each, metric in zip(axes, SHOWN, strict=True):
            _panel(each, entries, reference, metric)
        first, last = axes[0], axes[-1]
        first.set_yticks(range(len(entries)), [entry.label.replace("ensemble of ", "") for entry in entries])
        first.set_ylim(len(entries) - 0.5, -0.7)
        drawing.suptitle(title, x=0.005, ha="left", fontsize=style.FONT)
        right = last.secondary_yaxis("right")
        costs = [f"×\u2009{entry.relative_cost(reference):.3g} / {entry.networks}" for entry in entries]
        right.set_yticks(range(len(entries)), costs)
        right.spines["right"].set_visible(False)
        right.tick_params(length=0)
        last.text(1.04, 1.0, "cost", transform=last.transAxes, va="bottom", fontsize=style.FONT)
        _legend(drawing, reference, max(entry.count for entry in entries))
    return drawing


def _panel(axes: Axes, entries: Sequence[Entry], reference: Entry, metric: str) -> None:
    shown = described(metric)
    drawn = [each for entry in entries if (each := entry.against(reference, metric)) is not None]
    values = [0.0, *(shown.scale * value for each in drawn for value in each.values)]
    margin = 0.3 * (max(values) - min(values)) or 1.0
    limits = min(values) - margin, max(values) + margin  # of the seeds: few of them have intervals that dwarf them
    axes.axvline(0, color="black", linewidth=0.8, zorder=1.5)
    axes.set_xlim(limits)
    methods = list(dict.fromkeys(entry.method for entry in entries))
    for place, entry in enumerate(entries):
        if methods.index(entry.method) % 2:  # stripes keep the answers of a method together
            axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f4", linewidth=0, zorder=0)
    for place, each in enumerate(drawn):
        _row(axes, place, each, metric, shown.scale, limits)
    label = {"nll": "NLL"}.get(metric, shown.axis)
    axes.set_xlabel(f"Δ {label}\n{'right' if metric == 'accuracy' else 'left'} is better")
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _row(axes: Axes, place: int, found: Difference, metric: str, scale: float, limits: tuple[float, float]) -> None:
    """Draw one difference; an interval that is wider than the panel ends in arrows."""
    good = (found.mean > 0) == (metric == "accuracy")
    colour = "black" if round(found.mean, 9) == 0 else BETTER if good else WORSE
    marker = "o" if good else "D"
    if found.low is not None and found.high is not None:
        low, high = scale * found.low, scale * found.high
        ends = [max(low, limits[0]), min(high, limits[1])]
        axes.plot(ends, [place, place], color=colour, linewidth=1.1, solid_capstyle="butt", zorder=2)
        for end, cut, arrow in ((ends[0], low < limits[0], "<"), (ends[1], high > limits[1], ">")):
            axes.plot(end, place, marker=arrow if cut else "|", color=colour, markersize=4, clip_on=False, zorder=2)
    if len(found.values) > 1:
        values = [scale * value for value in found.values]
        axes.plot(values, [place + 0.27] * len(values), ".", color=SEED, markersize=3, zorder=2.2)
    axes.plot(scale * found.mean, place, marker, color=colour, markersize=5, markeredgecolor="white", zorder=3)


def _legend(drawing: Figure, reference: Entry, seeds: int) -> None:
    def key(marker: str, colour: str, label: str, size: float = 5) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=size, label=label)

    handles = [key("o", BETTER, "better on average"), key("D", WORSE, "worse on average")]
    if seeds > 1:
        handles.append(key(".", SEED, "each seed", 3))
        handles.append(Line2D([], [], color="#555555", linewidth=1.1, label="95 % interval; arrow: wider than shown"))
    told = f"{seeds} seeds" if seeds > 1 else "one seed: no interval"
    title = f"difference to {reference.named}, paired by the seed ({told})\n"
    title += "cost: training relative to it / networks at test"
    style.legend(drawing, handles, columns=len(handles), title=title)


def over(
    title: str, found: Mapping[str, tuple[list[float], list[Entry]]], seeds: int, below: str, told: str = ""
) -> Figure:
    """Draw accuracy and ECE over some number that is named below the axis."""
    with style.styled():
        drawing = style.blank(style.PAGE, 2.5)
        axes = drawing.subplots(1, 2)
        standard = [plain(entries[0].recipe) for _, entries in found.values()]
        looks = dict(zip(found, style.looks_of(standard), strict=True))
        for each, metric in zip(axes, ("accuracy", "ece"), strict=True):
            shown = described(metric)
            for name, (places, entries) in found.items():
                values = np.array([entry.spread(metric).values for entry in entries]).T  # [seeds, places]
                style.band(each, Curve(np.array(places), values), shown.scale, looks[name])
            each.set(xlabel=below, ylabel=shown.axis)
            each.set_xticks(sorted({place for places, _ in found.values() for place in places}))
        drawing.suptitle(title, x=0.005, ha="left", fontsize=style.FONT)
        spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
        style.legend(drawing, [style.key(looks[name], name) for name in found], columns=4, title=spread + told)
    return drawing


# Instability

AVERAGES, MIXTURES = ("average", "ensemble"), ("global", "layerwise", "per-weight")
LOOKS: dict[str, style.Look] = {
    "branch": style.Look(style.GREYS[0], "*", style.DOTS[0]),
    **{kind: style.Look(style.COLOURS[i], style.MARKERS[i]) for i, kind in enumerate((*AVERAGES, *MIXTURES))},
}
BELOW = 5.0  # points of accuracy below the lowest branch where a panel ends
Accuracy = Callable[[int, int, Any], Spread]
"""Of so many models that share so many epochs."""


def over_shared_epochs(
    title: str, models: Sequence[int], shared: Sequence[int], accuracy: Accuracy, words: Mapping[Any, str]
) -> Figure:
    """Draw averages and ensembles of the fewest models, their mixtures, and averages and ensembles of the most."""
    fewest, most = models[0], models[-1]
    wanted = [(fewest, AVERAGES), (fewest, MIXTURES), *([(most, AVERAGES)] if most > fewest else [])]
    found = [(kind, accuracy(m, k, kind)) for m in models for k in shared for kind in LOOKS]
    with style.styled():
        drawing = style.blank(style.PAGE, 2.4)
        axes = drawing.subplots(1, len(wanted), sharey=True)
        bottom, top = _limits(found)
        for each, (count, kinds) in zip(axes, wanted, strict=True):
            drawn: dict[str, list[Spread]] = {
                kind: [accuracy(count, k, kind) for k in shared] for kind in ("branch", *kinds)
            }
            _shared_panel(each, shared, drawn)
            each.set_title(f"{'random mixtures of' if kinds == MIXTURES else 'average and ensemble of'} {count}")
        axes[0].set(ylabel=described("accuracy").axis, ylim=(bottom, top))
        drawing.suptitle(title, x=0.005, ha="left", fontsize=style.FONT)
        handles = [style.key(look, words[kind]) for kind, look in LOOKS.items()]
        cut = "" if bottom is None else "; what is far worse lies below the panels"
        style.legend(drawing, handles, columns=3, title="mean ± standard deviation" + cut)
    return drawing


def _limits(found: Sequence[tuple[str, Spread]]) -> tuple[float | None, float]:
    """Return where panels end; below only if some means are so low that the others could not be told apart."""
    floor = 100 * min(each.mean for kind, each in found if kind == "branch") - BELOW
    lowest = 100 * min(each.mean for _, each in found)
    highest = 100 * max(each.mean + (each.std or 0.0) for _, each in found)
    bottom = floor if lowest < floor else None
    return bottom, highest + 0.05 * (highest - max(lowest, floor))


def _shared_panel(axes: Axes, shared: Sequence[int], found: dict[str, list[Spread]]) -> None:
    """Draw some kinds beside the branches themselves; the numbers of shared epochs are equally far apart."""
    places = np.arange(len(shared))
    for kind, each in found.items():
        mean, std = (
            100 * np.array(column) for column in zip(*((one.mean, one.std or 0.0) for one in each), strict=True)
        )
        look = LOOKS[kind]
        axes.plot(places, mean, color=look.colour, linestyle=look.line, **look.mark)
        axes.fill_between(places, mean - std, mean + std, color=look.colour, alpha=look.shade, linewidth=0)
    axes.set_xticks(places, [str(k) for k in shared])
    axes.set_xlabel("shared epochs")


# Of the paper

TOGETHER = style.Look("#000000", "*", style.DOTS[1])


def along_with(groups: Sequence[Group], label: str, values: Sequence[float]) -> Figure:
    """Draw accuracy along lines and curves, with one more number as a level: a value for each seed."""
    with style.styled():
        drawing = style.blank(style.COLUMN, 2.7)
        axes = drawing.add_subplot()
        methods, keys = lines.panel(axes, groups, style.looks(groups), "accuracy", "test")
        level = style.level(axes, Curve(np.zeros(1), np.array(values)[:, None]), 100.0, TOGETHER)
        level.set_label(label)
        axes.set_title(style.heading(groups, "test"))
        axes.set_ylabel(described("accuracy").axis)
        lines.legends(drawing, [*methods, level], keys, groups, columns=2)
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
            axes.set_xlabel(described(name).label)
            axes.grid(False, axis="y")
            axes.tick_params(axis="y", length=0)
            axes.set_xlim(left=0)
        panels[0].set_yticks(range(len(numbers)), list(numbers))
        panels[0].invert_yaxis()
        drawing.suptitle(title, x=0.005, ha="left", fontsize=style.FONT)
    return drawing
