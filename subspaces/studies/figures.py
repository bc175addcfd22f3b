"""Figures of comparisons and studies, in the style of the report's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from subspaces.evaluation.statistics import Difference
from subspaces.report.figures import style
from subspaces.report.measures import measure
from subspaces.report.reading import Curve
from subspaces.studies import noise_tables, setting, tables
from subspaces.studies.compare import Comparison
from subspaces.studies.entries import Entry
from subspaces.studies.noise import Line, Study

SHOWN = ("accuracy", "nll", "ece")
BETTER, WORSE, SEED = "#009E73", "#D55E00", "#8a8a8a"


def write(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and PDF."""
    style.settle(figure)
    made = [path.with_suffix(ending) for ending in (".png", ".pdf")]
    for one in made:
        style.save(figure, one)
    return made


def differences(comparison: Comparison) -> Figure:
    """Draw the paired differences to the reference: each seed, the mean and its interval, with the costs beside."""
    reference = comparison.reference
    entries = [entry for entry in comparison.entries if entry.against(reference, SHOWN[0]) is not None]
    with style.styled():
        drawing = style.blank(style.PAGE, 0.85 + 0.24 * len(entries))
        axes = drawing.subplots(1, len(SHOWN), sharey=True)
        for each, metric in zip(axes, SHOWN, strict=True):
            _panel(each, comparison, entries, metric)
        first, last = axes[0], axes[-1]
        first.set_yticks(range(len(entries)), [entry.short for entry in entries])
        first.set_ylim(len(entries) - 0.5, -0.7)
        drawing.suptitle(f"{tables.heading(comparison)}", x=0.005, ha="left", fontsize=style.FONT)
        right = last.secondary_yaxis("right")
        right.set_yticks(range(len(entries)), [_cost(entry, reference) for entry in entries])
        right.spines["right"].set_visible(False)
        right.tick_params(length=0)
        last.text(1.04, 1.0, "cost", transform=last.transAxes, va="bottom", fontsize=style.FONT)
        _legend(drawing, comparison, entries)
    return drawing


def _panel(axes: Axes, comparison: Comparison, entries: Sequence[Entry], metric: str) -> None:
    shown = measure(metric)
    found = [entry.against(comparison.reference, metric) for entry in entries]
    drawn = [each for each in found if each is not None]
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


def _cost(entry: Entry, reference: Entry | None) -> str:
    """Return both costs: of training, relative to the reference, and networks at test."""
    return f"×\u2009{entry.relative_cost(reference):.3g} / {entry.networks}"


def _legend(drawing: Figure, comparison: Comparison, entries: Sequence[Entry]) -> None:
    def key(marker: str, colour: str, label: str, size: float = 5) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=size, label=label)

    handles = [key("o", BETTER, "better on average"), key("D", WORSE, "worse on average")]
    several = max(len(entry.seeds) for entry in entries)
    if several > 1:
        handles.append(key(".", SEED, "each seed", 3))
        handles.append(Line2D([], [], color="#555555", linewidth=1.1, label="95 % interval; arrow: wider than shown"))
    seeds = f"{several} seeds" if several > 1 else "one seed: no interval"
    named = comparison.reference.name if comparison.reference else ""
    style.legend(
        drawing,
        handles,
        columns=len(handles),
        title=f"difference to {named}, paired by the seed ({seeds})\ncost: training relative to it / networks at test",
    )


def noise(study: Study) -> Figure:
    """Draw accuracy and ECE of every method's own answer over the level of label noise."""
    found = noise_tables.own_lines(study)
    with style.styled():
        drawing = style.blank(style.PAGE, 2.5)
        axes = drawing.subplots(1, 2)
        looks = _looks(found)
        for each, metric in zip(axes, ("accuracy", "ece"), strict=True):
            shown = measure(metric)
            for name, lines in found.items():
                values = np.array([line.chosen.values(metric) for line in lines]).T  # [seeds, levels]
                curve = Curve(np.array([100 * line.level for line in lines]), values)
                style.band(each, curve, shown.scale, looks[name])
            each.set(xlabel="random training labels (%)", ylabel=shown.axis)
            each.set_xticks([100 * level for level in study.levels])
        drawing.suptitle(noise_tables.heading(study), x=0.005, ha="left", fontsize=style.FONT)
        seeds = len(study.comparisons[0].seeds)
        spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
        chosen = any(len(line.candidates) > 1 for line in study.lines)
        title = spread + ("; settings chosen on held-out images" if chosen else "")
        style.legend(drawing, [style.key(looks[name], name) for name in found], columns=4, title=title)
    return drawing


def _looks(found: Mapping[str, Sequence[Line]]) -> dict[str, style.Look]:
    """Return greys for standard training and its ensembles, colours for all others."""
    plain = [name for name, lines in found.items() if setting.plain(lines[0].chosen.recipe)]
    others = [name for name in found if name not in plain]
    shade = style.shading(len(others))
    looks = {name: style.Look(style.GREYS[i % 3], "*", style.DOTS[i % 3]) for i, name in enumerate(plain)}
    for i, name in enumerate(others):
        marker = style.MARKERS[i % len(style.MARKERS)]
        line = "-" if i < len(style.COLOURS) else style.DASHED
        looks[name] = style.Look(style.COLOURS[i % len(style.COLOURS)], marker, line, shade)
    return looks
