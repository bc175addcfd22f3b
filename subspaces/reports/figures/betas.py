"""A metric along lines and curves for several strengths of the penalty."""

import math
from collections.abc import Sequence
from dataclasses import replace

import matplotlib as mpl
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from subspaces.reports.figures import style
from subspaces.reports.figures.along import Keys, legends, panel
from subspaces.reports.figures.style import MARKERS, Look
from subspaces.reports.measures import measure, usual
from subspaces.reports.reading import Group
from subspaces.training.runs import RunError


def figure(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel for every method, with colours from dark to light as beta grows."""
    metric = metric or usual(groups)[0].name
    families = by_method([group for group in groups if group.runs[0].interval and not math.isnan(beta_of(group))])
    if not any(len(members) > 1 for members in families.values()):
        raise RunError(
            f"no line or curve with several β among the runs ({style.listed(groups)}): "
            "expected two or more that differ in β alone"
        )
    singles = [group for group in groups if group.runs[0].single]
    betas = sorted({beta_of(group) for members in families.values() for group in members})
    looks = dict(zip(betas, shades(len(betas)), strict=True))
    width = style.COLUMN if len(families) == 1 else style.PAGE
    drawing = style.blank(width, 2.35)
    panels = drawing.subplots(1, len(families), sharey=True, squeeze=False)[0]
    methods: dict[str, Line2D] = {}
    lines: dict[str, Line2D] = {}
    for axes, (name, members) in zip(panels, families.items(), strict=True):
        named = [*(replace(group, label=f"β = {beta_of(group):g}") for group in members), *singles]
        shown = [*(looks[beta_of(group)] for group in members), *style.looks(singles)]
        keys = panel(axes, named, shown, metric, split)
        methods |= {str(handle.get_label()): handle for handle in keys.methods}
        lines |= {str(handle.get_label()): handle for handle in keys.lines}
        axes.set_title(name if len(families) > 1 else f"{name} · {style.heading(groups, split)}")
    panels[0].set_ylabel(measure(metric, groups).axis)
    if len(families) > 1:
        drawing.suptitle(style.heading(groups, split), fontsize=style.FONT)
    ordered = sorted(methods.values(), key=lambda handle: _rank(str(handle.get_label()), betas))
    keys = Keys(ordered, list(lines.values()))
    legends(drawing, keys, groups, columns=2 if len(families) == 1 else 4)
    return drawing


def beta_of(group: Group) -> float:
    """Return the strength of the penalty; NaN where there is none."""
    found = None if group.recipe is None else group.recipe.to_dict().get("beta")
    return math.nan if found is None else float(found)


def by_method(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return groups that differ in beta only, in order of beta, by what they are called without it."""
    families: dict[str, list[Group]] = {}
    for group in sorted(groups, key=beta_of):
        rest = [part for part in group.label.split(", ") if not part.startswith("β = ")]
        families.setdefault(", ".join(rest) or group.label, []).append(group)
    return families


def shades(count: int) -> list[Look]:
    """Return looks of a sequential colour map that is even in grey too, short of its lightest part."""
    colours = mpl.colormaps["viridis"]
    places = [0.8 * k / max(count - 1, 1) for k in range(count)]
    return [
        Look(to_hex(colours(place)), MARKERS[k % len(MARKERS)], shade=style.shading(count))
        for k, place in enumerate(places)
    ]


def _rank(label: str, betas: Sequence[float]) -> int:
    """Return the place of a label in the legend: betas first, in order."""
    names = [f"β = {beta:g}" for beta in betas]
    return names.index(label) if label in names else len(names)
