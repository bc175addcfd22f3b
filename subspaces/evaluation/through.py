"""The three networks that a plane goes through: a run's own vertices, or those of other runs.

A network of another run is named by its folder, `runs/a`, which is the midpoint of that run's subspace, or
by folder and point, `runs/a:0.3` and `runs/a:0.2,0.3,0.5`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from subspaces.evaluation.bench import Bench
from subspaces.evaluation.points import Place, coefficients, kind, to_place, vertex_names
from subspaces.points import to_alpha
from subspaces.subspace import Subspace
from subspaces.training.runs import Run

Name = str | os.PathLike[str]


@dataclass(frozen=True)
class Network:
    """One network of a run's family, by its coefficients."""

    label: str
    bench: Bench
    coefficients: tuple[float, ...]

    @property
    def family(self) -> Subspace:
        """The family that it is one of."""
        return self.bench.family


def parse(name: Name) -> tuple[Path, Place | None]:
    """Return the folder of a run and the point that is named with it; None for the midpoint."""
    path = Path(name)
    folder, colon, numbers = str(name).rpartition(":")
    if path.is_dir() or not colon:
        return path, None
    try:
        values = [float(number) for number in numbers.split(",")]
    except ValueError:
        raise ValueError(
            f"{str(name)!r}: expected a run folder, or one with a point such as {folder}:0.5 or {folder}:0.2,0.3,0.5"
        ) from None
    return Path(folder), values[0] if len(values) == 1 else tuple(values)


def named(name: Name, open_run: Callable[[Run], Bench]) -> Network:
    """Return a network of another run."""
    folder, place = parse(name)
    bench = open_run(Run.open(folder))
    recipe, shape = bench.recipe, bench.shape
    label = f"{recipe.name} seed {recipe.seed}"
    if place is None:
        place = to_place(shape.midpoint().tolist())
        label += "" if kind(shape) == "single" else " midpoint"
    else:
        checked = to_alpha(place, shape, shape.midpoint(), outside=True)
        if checked.shape != shape.point:
            raise ValueError(f"{str(name)!r}: expected one point of {shape}, {shape.domain}")
        label += f" at {str(name).rpartition(':')[2]}"
    return Network(label, bench, tuple(coefficients(shape, place)))


def corners(bench: Bench, others: Sequence[Network]) -> list[Network]:
    """Return the three networks of a run's plane: its own, as many as are needed, before the others.

    Without others these are its first three vertices; with one other its first and last, with two its midpoint.
    """
    m, shape = bench.shape.vertices, bench.shape
    if len(others) > 3:
        raise ValueError(f"{len(others)} networks for one plane: expected three at most")
    chosen = {0: [0, 1, 2], 1: [0, m - 1]}.get(len(others), [])
    if len(set(chosen)) < len(chosen) or max(chosen, default=0) >= m:
        raise ValueError(
            f"{bench.run.folder} has {m} of the three networks that a plane goes through: name "
            f"{3 - m if m > 1 else 'two'} of other runs, --plane-through RUN"
        )
    names = vertex_names(shape)
    own = [Network(names[index], bench, tuple(float(index == each) for each in range(m))) for index in chosen]
    if len(others) == 2:
        middle = to_place(shape.midpoint().tolist())
        label = "network" if kind(shape) == "single" else "midpoint"
        own = [Network(label, bench, tuple(coefficients(shape, middle)))]
    for other in others:
        _check_alike(bench, other.bench)
    return [*own, *others]


def _check_alike(first: Bench, other: Bench) -> None:
    """Refuse runs of other data sets or networks."""
    for field, what in (("dataset", "data set"), ("network", "network")):
        ours, theirs = getattr(first.recipe, field), getattr(other.recipe, field)
        if ours != theirs:
            raise ValueError(
                f"{first.run.folder} has the {what} {ours!r} and {other.run.folder} {theirs!r}: "
                f"a plane goes through networks of one {what}"
            )
