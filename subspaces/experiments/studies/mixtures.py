"""Networks measured alone, on average, together and in random mixtures, each with batch-norm statistics of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from subspaces.core import randomness
from subspaces.core.family import Subspace
from subspaces.core.shapes import Simplex
from subspaces.evaluation.classification import Classes, log_mean
from subspaces.evaluation.metrics import of_task, tally
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.evaluating.run_subject import RunSubject
from subspaces.experiments.kept import Kept

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
