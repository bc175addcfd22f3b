"""Instability analysis: networks that share their first k epochs and then see the images in another order.

theta_i = Train^(k -> T)(theta_k, order i) (Frankle et al., 2020; Wortsman et al., 2021, appendix). Measured are each
theta_i, the network of their average, the ensemble of their outputs, and random mixtures: sum_i alpha_i theta_i with
alpha uniform on the simplex, one for the whole network, one for each layer, or one for each weight. Batch-norm
statistics are made anew for every network.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from subspaces.core import checks, randomness
from subspaces.core.family import Subspace
from subspaces.core.shapes import Simplex
from subspaces.errors import ArgumentError
from subspaces.evaluation.classification import Classes, log_mean
from subspaces.evaluation.comparing import heading
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.metrics import of_task, tally
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.statistics import Spread, shown, spread
from subspaces.experiments import locks
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects
from subspaces.experiments.locks import Kept, stop_on_signals
from subspaces.experiments.opening import training_of
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.setting import Folder, OneRecipe, Plan, Setting, resolve, run, whole_numbers
from subspaces.experiments.studies.tables import Drawing, Result, Table, headlines
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run

if TYPE_CHECKING:
    import pandas as pd

PARTS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the epochs, shared beside none
MODELS = (2, 5)
MOST_MODELS, SEEDS = 255, 1000
FIXED = ("keep_epoch", "start_from")  # fields of recipes that the study sets itself
FILE = "measured.json"
DRAWS = 2**16 - 1  # which have 16 bits of the seeds
KEY = ["models", "shared", "kind"]
Scores = dict[str, dict[str, float]]
"""Metrics by split."""
Kind = Literal["branch", "average", "ensemble", "global", "layerwise", "per-weight"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PER: dict[Kind, Literal["network", "layer"]] = {"global": "network", "layerwise": "layer"}
MIXTURES: tuple[Kind, ...] = (*PER, "per-weight")
WORDS: dict[Kind, str] = {
    "branch": "each branch",
    "average": "weight average",
    "ensemble": "ensemble of outputs",
    "global": "mixture, global",
    "layerwise": "mixture, layerwise",
    "per-weight": "mixture, per weight",
}


@dataclass(frozen=True)
class InstabilityPlan(Plan["InstabilityStudy"]):
    """All that a study of instability is to do."""

    recipe: Recipe
    seeds: list[int]
    shared: list[int]
    models: list[int]
    draws: int

    def branches(self, seed: int, shared: int) -> list[Recipe]:
        """Return as many runs as the largest number of models: the others start from a checkpoint of the first.

        They have seeds of their own, which fix their order of the images: 1000, 2000, … more than the first.
        """
        name = f"{self.recipe.name}-shared{shared}"
        first = replace(self.recipe, name=f"{name}-branch1", seed=seed, keep_epoch=shared)
        rest = replace(self.recipe, start_from=Run.under("", first).folder.name)
        numbers = range(1, max(self.models))
        return [first, *(replace(rest, name=f"{name}-branch{b + 1}", seed=seed + SEEDS * b) for b in numbers)]

    @property
    def recipes(self) -> list[Recipe]:
        """All runs."""
        return [one for seed in self.seeds for shared in self.shared for one in self.branches(seed, shared)]

    def measure(self, runs: Sequence[Run]) -> "InstabilityStudy":
        import pandas as pd

        kept, named = Kept(self.setting.out / FILE), {run.recipe.key: run for run in runs}
        trunks = [(seed, shared) for seed in self.seeds for shared in self.shared]
        subject = run_subjects(self.setting.data, self.setting.measured_on.resolved())
        with stop_on_signals() as stop, bars(self.setting.show == "bar", stop.raise_if_stopped) as display:
            total = len(trunks) * sum(models + 2 + len(MIXTURES) * self.draws for models in self.models)
            tick = counted(display, "networks that share epochs", 0, total)

            def of_trunk(trunk: tuple[int, int]) -> list[dict[str, Any]]:
                """Measure the branches of one trunk, for every number of models."""
                subjects = [subject(named[one.key]) for one in self.branches(*trunk)]
                known: dict[int, dict[str, Tensor]] = {}
                found = []
                for models in self.models:
                    mixing = Mixing(subjects[:models], self.draws, kept, self.setting.execution.precision, known)
                    for kind, scores in mixing.measure():
                        about = {"models": models, "shared": trunk[1], "kind": kind, "seed": trunk[0]}
                        found.append({**about, **scores["test"]})
                        tick(1)
                return found

            found = locks.share(
                trunks,
                lambda trunk: locks.beside(kept.path, trunk),
                of_trunk,
                lambda trunk: f"the branches of seed {trunk[0]} that share {trunk[1]} epochs",
                stop,
            )
        frame = pd.DataFrame([row for rows in found for row in rows])
        frame = frame.assign(order=frame["kind"].map(KINDS.index))
        frame = frame.sort_values(["models", "shared", "order"], kind="stable").drop(columns="order")
        return InstabilityStudy(self, frame, list(runs), len(subject(runs[0]).images_of.test))


def study_instability(
    recipe: OneRecipe = "cifar10-standard",
    *,
    shared: Sequence[int] | None = None,
    models: Sequence[int] = MODELS,
    draws: int = 5,
    out: Folder = "instability",
    **settings: Any,
) -> "InstabilityStudy":
    """Train and measure what is missing of networks that share their first epochs; write a table and a figure.

    The first network of each number of shared epochs keeps its checkpoint there, from which the others start.

    Args:
        recipe: the training that is branched; its result is one network.
        shared: the numbers k of shared epochs; by default none and 1/32, 1/16, …, 3/4 of them.
        models: of how many networks averages, ensembles and mixtures are made.
        draws: how many random mixtures of each kind.
        out: the folder for the table and the figure.
        settings: seeds, data, runs, show and changes, as in `compare`.

    Example:
        >>> ss.studies.study_instability("digits-standard", shared=[0, 10, 30], seeds=[0, 1])
    """
    return run(plan(recipe, Setting.of(out=out, **settings), shared, models, draws))


def plan(
    recipe: OneRecipe, setting: Setting, shared: Sequence[int] | None, models: Sequence[int] = MODELS, draws: int = 5
) -> InstabilityPlan:
    """Check everything and return what is to be done; nothing is."""
    for name in FIXED:
        if setting.changes.get(name) is not None:
            raise ArgumentError(f"{name}={setting.changes[name]}: the study sets it itself, see shared and models")
    found, resolved = resolve(recipe, setting)
    base = found[0]
    if base.shape().vertices > 1 or base.result_shape().vertices > 1:
        raise ArgumentError(f"method={base.method!r}: branches are of one network; expected a method such as standard")
    numbers = {"shared": shared_epochs(base, shared), "models": list(whole_numbers("models", models))}
    for count in numbers["models"]:
        checks.whole("models", count, 2, MOST_MODELS)
    checks.whole("draws", draws, 1, DRAWS)
    for name, given in numbers.items():
        if not given:
            raise ArgumentError(f"{name}={len(given)}: expected at least one")
    several = {name: sorted(set(given)) for name, given in numbers.items()}
    return InstabilityPlan(resolved, base, sorted({one.seed for one in found}), draws=draws, **several)


def shared_epochs(recipe: Recipe, shared: Sequence[int] | None) -> list[int]:
    """Return how many epochs are shared: as told, or none and parts of those of the recipe."""
    if shared is None:
        return [0, *(min(round(part * recipe.epochs), recipe.epochs - 1) for part in PARTS)]
    found = list(whole_numbers("shared", shared))
    for k in found:
        if k >= recipe.epochs:
            raise ArgumentError(
                f"shared={k}: expected at least 0 and less than the {recipe.epochs} epochs of the training"
            )
    return found


@dataclass(frozen=True)
class InstabilityStudy(Result):
    """All cells, by the number of models and the shared epochs."""

    plan: InstabilityPlan
    frame: "pd.DataFrame"  # a row for each branch, draw or seed: models, shared, kind, seed and the metrics
    runs: list[Run]
    images: int
    name: str = field(default="instability", kw_only=True)

    @cached_property
    def cells(self) -> "dict[tuple[int, int, Kind], pd.DataFrame]":
        """The rows of so many models that share so many epochs, by what is made of them."""
        return dict(iter(self.frame.groupby(KEY, sort=False)))

    def accuracy(self, models: int, shared: int, kind: Kind) -> Spread:
        """Return the accuracy of so many models that share so many epochs."""
        return spread(self.cells[models, shared, kind]["accuracy"].tolist())

    def tables(self) -> list[Table]:
        def cells(models: int, shared: int) -> list[str]:
            return [shown(self.accuracy(models, shared, kind), 100) for kind in KINDS]

        lines = [[str(m), str(k), *cells(m, k)] for m in self.plan.models for k in self.plan.shared]
        return [Table(self.heading(), ("models", "shared epochs", *(f"{WORDS[kind]} %" for kind in KINDS)), lines)]

    def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        return {self.name: summary["cells"]}

    def draw(self) -> Drawing:
        from subspaces.experiments.studies import drawing

        return drawing.over_shared_epochs(self.heading(), self.plan.models, self.plan.shared, self.accuracy, WORDS)

    def summary(self) -> dict[str, Any]:
        return {
            "recipe": tables.without_seed(self.plan.recipe),
            **{name: getattr(self.plan, name) for name in ("seeds", "shared", "models", "draws")},
            "split": "test",
            "images": self.images,
            "notes": self.notes(),
            "environments": tables.environments(self.runs),
            "cells": [
                {
                    **dict(zip(KEY, cell, strict=True)),
                    "n": len(found),
                    "metrics": {each.name: asdict(spread(found[each.name].tolist())) for each in headlines()},
                }
                for cell, found in self.cells.items()
            ],
        }

    def heading(self) -> str:
        """Return what all networks share."""
        recipe = self.plan.recipe
        return heading([training_of(recipe)], f"{recipe.epochs} epochs", f"{self.images:,} test images")

    def notes(self) -> list[str]:
        plan = self.plan
        return [
            "The networks share their first epochs and then see the images in another order; "
            f"{tables.named_seeds(plan.seeds)}. Accuracies: mean ± standard deviation (n − 1) over branches, draws and "
            "seeds.",
            f"Mixtures: {plan.draws} draws of coefficients that are uniform on the simplex, one for the network, for "
            "each layer, or for each weight.",
            "Batch-norm statistics are made anew for every network from all training images.",
        ]


# Measuring


@dataclass
class Mixing:
    """Some branches of one trunk, measured alone, on average, together and mixed."""

    subjects: Sequence[RunSubject]  # the branches
    draws: int  # how many random mixtures of each kind
    kept: Kept  # where everything measured is kept
    precision: str  # the one that was asked for
    known: dict[int, dict[str, Tensor]]  # what branches answer, by number, as far as it was computed; it is added to

    @property
    def first(self) -> RunSubject:
        """The first branch, for what all of them share."""
        return self.subjects[0]

    def measure(self) -> Iterator[tuple[Kind, Scores]]:
        """Yield everything, measured or found in the file."""
        for index, one in enumerate(self.subjects):
            yield "branch", self._one([one], {"kind": "branch"}, partial(self._vertex, index))
        yield "average", self._one(self.subjects, {"kind": "average"}, self._average)
        yield "ensemble", self._one(self.subjects, {"kind": "ensemble"}, self._ensemble)
        for kind in MIXTURES:
            for draw in range(self.draws):
                what = {"kind": kind, "draw": draw}
                yield kind, self._one(self.subjects, what, partial(self._mixture, kind, draw))

    def _one(
        self, subjects: Sequence[RunSubject], what: Mapping[str, Any], answer: Callable[[], Mapping[str, Tensor]]
    ) -> Scores:
        key = {**what, "families": [one.checksum for one in subjects], "precision": self.precision}
        found: Scores | None = self.kept.find(key)
        if found is None or not {each.name for each in of_task("classification")} <= found["test"].keys():
            found = {split: self._scores(split, logits) for split, logits in answer().items()}
            self.kept.add(key, found)
        return found

    def _scores(self, split: str, logits: Tensor) -> dict[str, float]:
        labels = getattr(self.first.images_of, split).labels.to(logits.device)
        return tally(of_task("classification"), [(Classes(logits.log_softmax(1)), labels)])

    @cached_property
    def family(self) -> Subspace:
        """The simplex of the branches."""
        networks = [one.family.midpoint() for one in self.subjects]
        return Subspace.from_modules(networks, Simplex(len(networks)), seed=0).to(self.first.execution.device)

    @cached_property
    def _predictor(self) -> Predictor:
        return self.first.predictor(self.first.splits, None)

    @torch.no_grad()
    def _with(self, coefficients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._predictor.whole(self.family.theta(coefficients))

    def _at(self, alpha: Any) -> dict[str, Tensor]:
        return self._with(self.family.coefficients(alpha))

    def _vertex(self, index: int) -> dict[str, Tensor]:
        if index not in self.known:
            self.known[index] = self._at(torch.eye(len(self.subjects))[index])
        return self.known[index]

    def _average(self) -> dict[str, Tensor]:
        return self._at(self.family.shape.midpoint())

    def _ensemble(self) -> dict[str, Tensor]:
        members = [self._vertex(index) for index in range(len(self.subjects))]
        return {split: log_mean(torch.stack([one[split] for one in members])) for split in members[0]}

    def _mixture(self, kind: Kind, draw: int) -> dict[str, Tensor]:
        self.family.rng.copy_(randomness.stream(self.first.recipe.seed, "mixtures", (kind, draw)))
        if kind in PER:
            return self._at(self.family.sample(PER[kind]))
        shape, random = self.family.shape, partial(randomness.uniform, self.family.rng)
        each = {name: shape.sample((omega.shape[1],), random) for name, omega in self.family.omega.items()}
        return self._with({name: alpha.T for name, alpha in each.items()})
