"""Some exhibits at a scale: what is to be done for them, every run once, and what cannot be done here."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.experiments.studies.catalogue import EXHIBITS, SCALES, Bench, Exhibit, Plan, Scale
from subspaces.experiments.studies.catalogue.compared import TWIN
from subspaces.experiments.studies.catalogue.costs import obstacle
from subspaces.experiments.studies.catalogue.exhibit import below
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.text import nearest

ALL = "all"
Place = tuple[Exhibit[Any], Bench]
"""An exhibit, and what it is made on."""


class Obstacle(NamedTuple):
    """What cannot be made here, and why."""

    plan: Plan
    reason: str


@dataclass(frozen=True)
class Program:
    """All that is to be done for some exhibits, and what cannot be done here."""

    scale: Scale
    plans: list[Plan]
    obstacles: list[Obstacle]
    setting: Setting

    @property
    def recipes(self) -> list[Recipe]:
        """Every run once, whichever exhibits share it."""
        return list({one.key: one for plan in self.plans for one in plan.recipes}.values())

    @property
    def benches(self) -> list[list[Plan]]:
        """The plans by their bench: what is on one is trained together."""
        found: dict[str, list[Plan]] = {}
        for plan in self.plans:
            found.setdefault(plan.bench.base.key, []).append(plan)
        return list(found.values())


def plan(name: str | Sequence[str], scale: str, setting: Setting, on: str | Sequence[str] | None = None) -> Program:
    """Check everything and return what is to be done; nothing is."""
    size = SCALES.find(scale)
    known = {entry.name for entry in fields(Execution)}
    for field_name in setting.changes:
        if field_name not in known:
            raise ArgumentError(f"{field_name}=…: the scale decides what is trained; {nearest(field_name, known)}")
    setting = setting if setting.seeds is not None else replace(setting, seeds=size.seeds)
    _check_seeds(setting.seeds or ())
    plans, obstacles = list[Plan](), list[Obstacle]()
    chosen = [(exhibit, bench) for exhibit in named(name) for bench in exhibit.benches(size)]
    for exhibit, bench in _only(chosen, on):
        one = exhibit.plan(bench, below(setting, exhibit, bench))
        if (reason := obstacle(bench.base, setting.data)) is not None:
            obstacles.append(Obstacle(one, reason))
        else:
            plans.append(one)
    resolved = replace(setting, execution=Execution(**setting.changes), seeds=None, changes={})
    return Program(size, plans, obstacles, resolved)


def _check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds of which one is the twin of another: their ensembles would have a network in common."""
    for seed in checks.several("seeds", seeds, "one or more of them, such as [0, 1]"):
        if isinstance(seed, int) and seed + TWIN in seeds:
            raise ArgumentError(
                f"seeds={seed}, {seed + TWIN}: the second is kept for a twin of the first; take another"
            )


def _only(chosen: list[Place], on: str | Sequence[str] | None) -> list[Place]:
    """Return what is on these benches, or everything."""
    if on is None:
        return chosen
    wanted = checks.all_of("on", on, (str,), "the name of a network and its data, such as cifar10, or several")
    known = dict.fromkeys(bench.name for _, bench in chosen)
    for one in wanted:
        if one not in known:
            raise ArgumentError(f"on={one!r}: {nearest(one, known)}")
    return [(exhibit, bench) for exhibit, bench in chosen if bench.name in wanted]


def named(name: str | Sequence[str]) -> list[Exhibit[Any]]:
    """Return the exhibits of these names, each once."""
    several = checks.all_of("name", name, (str,), "the name of an exhibit, or several")
    for one in several:
        if one != ALL and one not in EXHIBITS:
            raise ArgumentError(f"no exhibit {one!r}: {nearest(one, [*EXHIBITS, ALL])} (`subspaces reproduce list`)")
    return [kind() for each, kind in EXHIBITS.items() if ALL in several or each in several]
