"""A method that the package does not know: Polyak's average of the last epochs, in one file."""

from dataclasses import dataclass

from subspaces.core.shapes import Line, Shape, Simplex
from subspaces.experiments.methods import METHODS, POSITIVE, Method, setting
from subspaces.experiments.methods.checkpoints import Collecting
from subspaces.experiments.training import RECIPES, Recipe


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
