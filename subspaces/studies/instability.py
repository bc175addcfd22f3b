"""Instability analysis: networks that share their first k epochs and then see the images in another order.

theta_i = Train^(k -> T)(theta_k, order i) (Frankle et al., 2020; Wortsman et al., 2021, appendix). Measured are each
theta_i, the network of their average, the ensemble of their outputs, and random mixtures: sum_i alpha_i theta_i with
alpha uniform on the simplex, one for the whole network, one for each layer, or one for each weight. Batch-norm
statistics are made anew for every network.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from subspaces import files, streams, values
from subspaces.evaluation.api import heeding, workbench
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.measured import Measured, Shelf
from subspaces.studies.compare import trained
from subspaces.studies.mixing import KINDS, PER, Kind, Mixing
from subspaces.studies.setting import Folder, OneRecipe, Setting, check_output, prepared, several
from subspaces.training import feasible, sharing
from subspaces.training.config import Execution, Recipe
from subspaces.training.display import Mode
from subspaces.training.runs import Run
from subspaces.training.signals import stop_on_signals

PARTS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the epochs, shared beside none
FILE = "measured.json"
DRAWS = 2**16 - 1  # which have 16 bits of the seeds


@dataclass(frozen=True)
class Cell:
    """What was measured of some models that share k epochs: one value for each branch, draw or seed."""

    models: int
    shared: int
    kind: Kind
    scores: list[dict[str, dict[str, float]]]  # by split and metric

    def values(self, metric: str = "accuracy", split: str = "test") -> list[float]:
        """Return a metric of all of them."""
        return [score[split][metric] for score in self.scores]


@dataclass(frozen=True)
class Plan:
    """All that a study is to do."""

    recipe: Recipe
    seeds: list[int]
    shared: list[int]
    models: list[int]
    draws: int
    setting: Setting

    def branch(self, seed: int, shared: int, branch: int) -> Recipe:
        """Return the recipe of a branch, counted from 1."""
        name = f"{self.recipe.name}-shared{shared}-branch{branch}"
        return replace(self.recipe, name=name, seed=seed, trunk=shared, branch=branch)

    def branches(self, seed: int, shared: int) -> list[Recipe]:
        """Return the branches of one trunk, as many as the largest number of models."""
        return [self.branch(seed, shared, index + 1) for index in range(max(self.models))]

    def recipes(self) -> list[Recipe]:
        """Return all runs, those of short trunks first: a longer trunk goes on from there."""
        return [one for seed in self.seeds for shared in self.shared for one in self.branches(seed, shared)]


@dataclass(frozen=True)
class InstabilityStudy:
    """All cells, by the number of models and the shared epochs."""

    plan: Plan
    cells: list[Cell]
    runs: list[Run]
    images: int
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def cell(self, models: int, shared: int, kind: Kind) -> Cell:
        """Return one of them."""
        key = (models, shared, kind)
        return next(one for one in self.cells if (one.models, one.shared, one.kind) == key)


def study_instability(
    recipe: OneRecipe = "cifar10-standard",
    *,
    shared: Sequence[int] | None = None,
    models: Sequence[int] = (2, 5),
    draws: int = 5,
    seeds: Sequence[int] | None = None,
    data: Folder | None = None,
    out: Folder = "runs",
    to: Folder = "instability",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> InstabilityStudy:
    """Train and measure what is missing of networks that share their first epochs; write a table and a figure.

    The shared epochs are trained once, for all branches and for longer trunks; they stay in `.trunks` beside the runs,
    for further branches.

    Args:
        recipe: the training that is branched; its result is one network.
        shared: the numbers k of shared epochs; by default none and 1/32, 1/16, …, 3/4 of them.
        models: of how many networks averages, ensembles and mixtures are made.
        draws: how many random mixtures of each kind.
        seeds, data, out, to, show, tensorboard, changes: as in `compare`.

    Example:
        >>> ss.studies.study_instability("digits-standard", shared=[0, 10, 30], seeds=[0, 1])
    """
    from subspaces.studies import instability_tables

    setting = Setting(values.folder("out", out), values.folder("to", to), data, show=show, tensorboard=tensorboard)
    plan = planned(recipe, setting, shared, models, draws, seeds, changes)
    with files.made(plan.setting.to):
        runs = trained(plan.recipes(), plan.setting)
        return instability_tables.write_all(measured(plan, runs), plan.setting.to)


def planned(
    recipe: OneRecipe,
    setting: Setting,
    shared: Sequence[int] | None,
    models: Sequence[int],
    draws: int,
    seeds: Sequence[int] | None,
    changes: dict[str, Any],
) -> Plan:
    """Check everything and return what is to be done; nothing is."""
    for name in ("trunk", "branch"):
        if changes.get(name) is not None:
            raise ValueError(f"{name}={changes[name]}: the study sets it itself, see shared and models")
    check_output(setting)
    found, execution = prepared(recipe, seeds, changes)
    base = found[0]
    if base.shape().vertices > 1 or base.result_shape().vertices > 1:
        raise ValueError(f"method={base.method!r}: branches are of one network; expected a method such as standard")
    parts = [0, *(round(part * base.epochs) for part in PARTS)] if shared is None else list(several("shared", shared))
    for k in parts:
        if not 0 <= k < base.epochs:
            raise ValueError(f"shared={k}: expected at least 0 and less than the {base.epochs} epochs of the training")
    models = several("models", models)
    for count in models:
        if not 2 <= count <= streams.BRANCHES - 1:
            raise ValueError(f"models={count}: expected 2 to {streams.BRANCHES - 1}, which branch from one")
    values.whole("draws", draws, 1, DRAWS)
    for name, given in (("shared", len(parts)), ("models", len(models))):
        if given < 1:
            raise ValueError(f"{name}={given}: expected at least one")
    feasible.check(found, setting.data)
    setting = replace(setting, execution=execution)
    return Plan(base, sorted({one.seed for one in found}), sorted(set(parts)), sorted(set(models)), draws, setting)


def measured(plan: Plan, runs: Sequence[Run]) -> InstabilityStudy:
    """Measure what is missing, and return all of it."""
    asked = plan.setting.measuring()
    progress = asked.pop("progress")
    bench = workbench(asked.pop("data"), Execution(**asked).resolved())
    named = {run.recipe.key: run for run in runs}
    shelf = Shelf(plan.setting.to / FILE)
    trunks = [(seed, shared) for seed in plan.seeds for shared in plan.shared]
    with stop_on_signals() as stop, bars(progress) as shown:
        total = len(trunks) * sum(models + 2 + len(PER) * plan.draws for models in plan.models)
        tick = counted(partial(heeding, stop, shown), "networks that share epochs", 0, total)

        def of_trunk(trunk: tuple[int, int]) -> list[tuple[int, Kind, Measured]]:
            benches = [bench(named[one.key]) for one in plan.branches(*trunk)]
            known: dict[int, dict[str, Tensor]] = {}
            found = []
            for models in plan.models:
                mixing = Mixing(benches[:models], plan.draws, shelf, asked.get("precision", "auto"), known)
                for kind, one in mixing.measured():
                    found.append((models, kind, one))
                    tick(1)
            return found

        found = sharing.share(
            trunks,
            lambda trunk: sharing.beside(shelf.path, trunk),
            of_trunk,
            lambda trunk: f"the branches of seed {trunk[0]} that share {trunk[1]} epochs",
            stop,
        )
    cells: dict[tuple[int, int, Kind], list[Measured]] = {}
    for (_, shared), each in zip(trunks, found, strict=True):
        for models, kind, one in each:
            cells.setdefault((models, shared, kind), []).append(one)
    made = [Cell(*key, [one.metrics for one in each]) for key, each in sorted(cells.items(), key=_order)]
    return InstabilityStudy(plan, made, list(runs), found[0][0][2].images["test"])


def _order(item: tuple[tuple[int, int, Kind], Any]) -> tuple[int, int, int]:
    models, shared, kind = item[0]
    return models, shared, KINDS.index(kind)
