"""What a method does beyond training its family: after a step, with a gradient, after an epoch, at the end.

The engine asks the policy of its recipe at each of these moments; all that a policy does within a step can be
captured in a CUDA graph: it waits for nothing and changes its tensors in place.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from subspaces.baselines import integral, swag
from subspaces.baselines.averaging import MovingAverage
from subspaces.baselines.collecting import Checkpoints, Rows, rows, spanned
from subspaces.baselines.sam import sharp_gradient
from subspaces.baselines.stopping import BestEpoch
from subspaces.shapes import Point
from subspaces.subspace import Subspace
from subspaces.training.config import Recipe
from subspaces.training.methods import OWN_SCHEDULE

Backward = Callable[[bool], None]
"""Renews the gradients of a batch, and counts loss and right predictions if told so."""


class Policy:
    """Nothing more: what was trained is the result."""

    watch: int | None = None
    """Whether every epoch is evaluated, on all splits: with batch-norm statistics of so many batches."""

    def __init__(self, recipe: Recipe, family: Subspace) -> None:
        self.recipe = recipe
        self.family = family

    def outputs(self, family: Subspace, x: Tensor, features: str | None = None) -> Any:
        """Return what the loss is taken of: the outputs on a batch, with features where they are asked for."""
        return family(x, samples=self.recipe.samples, features=features)

    def gradient(self, backward: Backward) -> None:
        """Make the gradient of a batch."""
        backward(True)

    def after_step(self) -> None:
        """Take note of the weights that a step has made."""

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        """Take note of the weights after so many epochs, and of their accuracies where they are watched."""

    def so_far(self) -> Subspace:
        """Return the family whose midpoint an evaluation during training looks at."""
        return self.family

    def result(self) -> Subspace:
        """Return the family of the finished run."""
        return self.family

    @property
    def epoch(self) -> int:
        """After how many epochs the training of the result ended."""
        return self.recipe.epochs

    def summary(self) -> dict[str, Any]:
        """Return what belongs into the result beside the accuracies."""
        return {}

    def live(self) -> dict[str, Tensor]:
        """Return every tensor that a step changes, by name."""
        return {}

    def kept(self) -> dict[str, Tensor]:
        """Return what else it takes to continue, by name."""
        return {}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        """Continue with what `kept()` returned earlier."""


class Collecting(Policy):
    """Keep checkpoints, which span the result: SWA, snapshot and fast geometric ensembles."""

    def __init__(self, recipe: Recipe, family: Subspace) -> None:
        super().__init__(recipe, family)
        self.checkpoints = Checkpoints(recipe.checkpoints())

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        self.checkpoints.offer(epoch, self.family)

    def networks(self) -> list[Rows]:
        """Return the vertices of the result."""
        return self.checkpoints.networks()

    def result(self) -> Subspace:
        return spanned(self.family, self.networks(), self.recipe.result_shape(), self.recipe.seed)

    def kept(self) -> dict[str, Tensor]:
        return self.checkpoints.state()

    def load(self, kept: Mapping[str, Tensor]) -> None:
        self.checkpoints.load(kept, self.family.device)


class Sampling(Collecting):
    """Draw the vertices of the result from a Gaussian fitted to the checkpoints: SWA-Gaussian."""

    def networks(self) -> list[Rows]:
        return swag.draw(super().networks(), self.recipe.vertices, self.recipe.seed)


class Averaging(Policy):
    """Average the weights over the steps."""

    def __init__(self, recipe: Recipe, family: Subspace) -> None:
        super().__init__(recipe, family)
        self.average = MovingAverage(family.omega.values(), recipe.ema_decay)

    def after_step(self) -> None:
        self.average.update()

    def so_far(self) -> Subspace:
        averages = zip(self.family.omega, self.average.values(), strict=True)
        return spanned(self.family, [{name: value[0] for name, value in averages}], Point(), self.recipe.seed)

    def result(self) -> Subspace:
        return self.so_far()

    def live(self) -> dict[str, Tensor]:
        named = zip(self.family.omega, self.average.sums, strict=True)
        return {"steps": self.average.steps} | {f"sum.{name}": total for name, total in named}


class Sharpness(Policy):
    """Take the gradient of the worst neighbour: sharpness-aware minimisation."""

    def gradient(self, backward: Backward) -> None:
        sharp_gradient(list(self.family.parameters()), self.recipe.sam_rho, backward)


class Stopping(Policy):
    """Keep the weights of the epoch that is best on validation images."""

    watch = 50

    def __init__(self, recipe: Recipe, family: Subspace) -> None:
        super().__init__(recipe, family)
        self.best = BestEpoch()

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        self.best.offer(self.family, scores)

    def result(self) -> Subspace:
        return spanned(self.family, [self.best.best], Point(), self.recipe.seed)

    @property
    def epoch(self) -> int:
        return int(self.best.choices()[0]["epoch"])

    def summary(self) -> dict[str, Any]:
        return {"stopping": self.best.choices()}

    def kept(self) -> dict[str, Tensor]:
        return self.best.state()

    def load(self, kept: Mapping[str, Tensor]) -> None:
        self.best.load(kept, self.family.device)


class Integrating(Policy):
    """Train f on a line of networks g, whose end is the integral of f over the line."""

    def outputs(self, family: Subspace, x: Tensor, features: str | None = None) -> Any:
        return integral.outputs(family, x, self.recipe.epsilon)

    def so_far(self) -> Subspace:
        return spanned(self.family, [rows(self.family, vertex=-1)], Point(), self.recipe.seed)

    def result(self) -> Subspace:
        return self.so_far()


_POLICIES: dict[str, type[Policy]] = {
    **dict.fromkeys(OWN_SCHEDULE, Collecting),
    "swag": Sampling,
    "ema": Averaging,
    "sam": Sharpness,
    "early-stopping": Stopping,
    "integral": Integrating,
}


def policy_of(recipe: Recipe, family: Subspace) -> Policy:
    """Return the policy of a recipe's method, for its family."""
    return _POLICIES.get(recipe.method, Policy)(recipe, family)
