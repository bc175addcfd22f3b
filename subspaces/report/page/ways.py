"""The ways to predict with what was trained, each with its quality for every seed and its cost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from subspaces.evaluation.metrics import metric
from subspaces.evaluation.record import Row
from subspaces.report.reading import Group, Reading

METRICS = ("accuracy", "ece", "nll", "brier", "adaptive_ece", "aurc")
HIGHER_IS_BETTER = {name for name in METRICS if not metric(name).lower_is_better}
SMALL = dict(enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 1))


@dataclass(frozen=True)
class Way:
    """One way to predict, measured for each seed of a group."""

    kind: str  # "network", "ends", "midpoint", "ensemble" or "random", the ensemble of random points
    name: str
    by_seed: dict[int, dict[str, float]]
    networks: int  # at test; all ways take one training run

    def values(self, metric: str, seeds: Sequence[int] | None = None) -> list[float]:
        """Return a metric for some seeds, by default for all."""
        chosen = self.by_seed if seeds is None else seeds
        return [self.by_seed[seed].get(metric, float("nan")) for seed in chosen]

    def mean(self, metric: str) -> float:
        """Return the mean over seeds."""
        return float(np.mean(self.values(metric)))

    def std(self, metric: str) -> float | None:
        """Return the standard deviation over seeds; None for one seed."""
        values = self.values(metric)
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


def ways(group: Group, split: str) -> list[Way]:
    """Return the ways to predict with the runs of a group, from the plainest to the ensembles."""
    found: dict[tuple[str, str, int], dict[int, dict[str, float]]] = {}
    for run in group.runs:
        for kind, way, networks, rows in _of_run(run, split):
            mean = {name: float(np.mean([row.metrics[name] for row in rows])) for name in rows[0].metrics}
            found.setdefault((kind, way, networks), {})[run.recipe.seed] = mean
    return [Way(kind, name, by_seed, networks) for (kind, name, networks), by_seed in found.items()]


def _of_run(run: Reading, split: str) -> list[tuple[str, str, int, list[Row]]]:
    """Return kind, name, networks at test and rows of each way; several rows are meant on average."""
    center, rows = run.center(split), run.rows(split)
    if run.single:
        return [("network", "one network", 1, [center])] if center else []
    found: list[tuple[str, str, int, list[Row]]] = []
    ends = ends_of(run, split)
    if ends:
        found.append(("ends", "ends, on average" if run.interval else "vertices, on average", 1, ends))
    if center:
        found.append(("midpoint", "midpoint", 1, [center]))
    together = [row for row in rows if row.kind == "ensemble" and row.average == "probabilities"]
    chosen = run.ensemble(split)
    if run.interval and chosen:
        found.append(("ensemble", f"ensemble of {named(run, chosen)}", len(chosen.alphas), [chosen]))
    elif not run.interval:
        found += [
            ("random" if row.role == "random" else "ensemble", f"ensemble of {named(run, row)}", len(row.alphas), [row])
            for row in together
        ]
    return found


def ends_of(run: Reading, split: str) -> list[Row]:
    """Return the two ends of a line or curve, or the vertices of a simplex."""
    if run.interval:
        points = run.points(split)
        return [points[alpha] for alpha in (0.0, 1.0)] if {0.0, 1.0} <= set(points) else []
    return [row for row in run.rows(split) if row.kind == "point" and row.role == "vertex"]


def named(run: Reading, row: Row) -> str:
    """Return the points of an ensemble in words."""
    if run.interval:
        return "α = " + " and ".join(f"{float(alpha):.3g}" for alpha in row.alphas if not isinstance(alpha, list))
    count = SMALL.get(len(row.alphas), str(len(row.alphas)))
    return f"the {count} vertices" if row.role == "vertex" else f"{count} random points"


def standard_for(group: Group, groups: Sequence[Group]) -> Group | None:
    """Return the standard training that differs from a subspace's in nothing but the subspace."""
    told = group.recipe.distinguishing().keys() & group.recipe.common().keys() - {"method", "trunk"}

    def rest(other: Group) -> dict[str, object]:
        return {name: value for name, value in other.recipe.common().items() if name in told}

    found = [other for other in groups if other.recipe.method == "standard" and rest(other) == rest(group)]
    return found[0] if found else None
