"""The pictures that only figures of the paper have."""

from collections.abc import Callable
from dataclasses import replace

from subspaces.evaluation.comparing import Group, heading
from subspaces.evaluation.statistics import spread
from subspaces.experiments.evaluating.training import training_of
from subspaces.experiments.paper.measured import STANDARD, TWO, Measured
from subspaces.experiments.studies.tables import Drawing
from subspaces.reports.figures import draw_groups


def with_two_networks(found: Measured) -> Drawing:
    """Draw accuracy along lines and curves, and the level of two networks together."""
    from subspaces.experiments.studies import drawing

    level = found.value("standard: runs", "accuracy")
    return drawing.along_with(found.result.groups, "two networks together", list(level.values()))


def planes(found: Measured) -> Drawing:
    """Draw the planes of one seed, as a plane is of one run."""
    firsts = [(group, group.evaluations[0]) for group in map(found.group, ("curve", "simplex", "line"))]
    drawn = [Group(group.label, [replace(one, planes=found.planes(one))]) for group, one in firsts]
    return draw_groups("plane", drawn, "accuracy")


def endpoints(found: Measured) -> Drawing:
    """Draw how different the ends of lines are, and two networks."""
    from subspaces.experiments.studies import drawing

    labels, names = [*(each for each in found.recipes if each != STANDARD), TWO], ("tv", "l2", "cos2")
    values = {each: {name: found.value(f"{each}: {name}", name) for name in names} for each in labels}
    means = {each: {name: spread(list(some.values())) for name, some in own.items()} for each, own in values.items()}
    return drawing.bars(heading([training_of(found.setup.standard)]), means, names)


PICTURES: dict[str, Callable[[Measured], Drawing]] = {
    "with two networks": with_two_networks,
    "planes": planes,
    "endpoints": endpoints,
}
