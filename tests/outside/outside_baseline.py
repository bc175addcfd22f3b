"""A method that the package does not know: Polyak's average of the last epochs, in one file."""

from collections.abc import Mapping
from dataclasses import dataclass

from subspaces.methods import METHODS, POSITIVE, Hooks, Method, setting
from subspaces.methods.checkpoints import Checkpoints, spanned
from subspaces.shapes import Line, Shape, Simplex
from subspaces.subspace import Subspace
from subspaces.training import RECIPES, Recipe


class Collecting(Hooks["Polyak"]):
    """Keeps the weights after each of the last epochs."""

    def __init__(self, method: "Polyak", family: Subspace, epochs: int, seed: int) -> None:
        super().__init__(method, family, epochs, seed)
        self.checkpoints = Checkpoints(method.checkpoints(epochs))

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        self.checkpoints.offer(epoch, self.family)

    def result(self) -> Subspace:
        return spanned(self.family, self.checkpoints.networks(), self.method.result_shape(), self.seed)


@METHODS.add
@dataclass(frozen=True)
class Polyak(Method):
    """The average of the last epochs, at half the learning rate."""

    name = "polyak"
    meaning = "the average of the last epochs"
    answers = ("midpoint", "vertices")
    members = "epochs"
    schedule = "polyak"
    hooks = Collecting
    last_epochs: int = setting(2, "How many epochs are averaged.", POSITIVE, symbol="last")

    def result_shape(self) -> Shape:
        return Line() if self.last_epochs == 2 else Simplex(self.last_epochs)

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        return peak if epoch < epochs - self.last_epochs else peak / 2

    def checkpoints(self, epochs: int) -> list[int]:
        if epochs < self.last_epochs:
            raise ValueError(f"the last {self.last_epochs} of {epochs} epochs: expected as many epochs at least")
        return list(range(epochs - self.last_epochs + 1, epochs + 1))


RECIPES.add(Recipe(name="digits-polyak", dataset="digits", network="mlp", method="polyak", epochs=3, pad=0, flip=False))
