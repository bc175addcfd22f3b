"""What is measured: a family with its data and its task, each part made when it is first needed.

A run folder brings its own data; for any other family the user brings loaders.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.ensembles import Ensemble
from subspaces.evaluation.answers import Family, usual
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.predictor import GivenNetworks, Predictor
from subspaces.evaluation.tasks import Task
from subspaces.shapes import Point, Shape, Simplex
from subspaces.subspace import Subspace
from subspaces.training.engine import spread

Loaders = Mapping[str, Iterable[Any]]
"""The batches of each split, by its name."""


class Subject:
    """Something that has points, and answers with the networks at them.

    Args:
        name: what it is called.
        shape: of the subspace.
        task: what is predicted.
        splits: the names of the splits that there are, "test" and perhaps "validation".
        seed: of random points.
    """

    def __init__(self, name: str, shape: Shape, task: Task, splits: Sequence[str], seed: int = 0) -> None:
        self.name, self.shape, self.task, self.splits, self.seed = name, shape, task, list(splits), seed
        self.answers: tuple[str, ...] = usual(shape)
        self.device = "cpu"
        self.walks = True  # whether points between the vertices are measured too

    @property
    def label(self) -> str:
        """What planes call it."""
        return self.name

    @property
    def terms(self) -> Family:
        """What answers may depend on."""
        return Family(self.shape)

    @property
    def family(self) -> Subspace:
        """The family."""
        raise ValueError(f"{self.name} is no family: there is no plane through its vertices")

    @property
    def distances(self) -> dict[str, float]:
        """How far apart the vertices are, where that is known."""
        return {}

    @property
    def dataset(self) -> dict[str, Any]:
        """Name, classes and sizes of the splits, as far as they are known."""
        return {"name": "", "classes": [], "splits": dict.fromkeys(self.splits, 0)}

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what predicts on these splits, with batch-norm statistics of so many batches."""
        raise NotImplementedError

    def weights(self, place: Place) -> Any:
        """Return the weights at a point, as the predictor takes them."""
        family = self.family
        with torch.no_grad():
            return family.theta(family.coefficients(to_alpha(place), outside=True))

    def release(self) -> None:
        """Let go of what takes memory on the device; it is made again when it is needed."""

    def images(self, split: str, indices: Sequence[int]) -> Tensor | None:
        """Return small pictures of some examples, uint8 [k, C, H, W]; None where they are no small pictures."""
        return None


PIXELS = 64 * 64  # of a picture: a page holds 48 of them


def small_pictures(images: Tensor) -> Tensor | None:
    """Return images as uint8 if they are small enough for a page; those of any numbers are stretched to 0 … 255."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.shape[-2] * images.shape[-1] > PIXELS:
        return None
    if images.dtype == torch.uint8:
        return images.cpu()
    flat = images.detach().cpu().double().flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    stretched = 255 * (flat - low) / (high - low).clamp(min=1e-12)
    return stretched.round().to(torch.uint8).reshape(images.shape)


class FamilySubject(Subject):
    """A family of the user's own, with loaders."""

    def __init__(
        self,
        family: Subspace,
        task: Task,
        loaders: Mapping[str, Iterable[Any]],
        statistics: Iterable[Any] | None,
        **more: Any,
    ) -> None:
        super().__init__(more.pop("name", "family"), family.shape, task, list(loaders), **more)
        self._family, self._loaders, self._statistics = family, dict(loaders), statistics
        self.device = str(family.device)
        norms = [
            name for name, part in family.template.named_modules() if getattr(part, "running_mean", None) is not None
        ]
        if norms and statistics is None:
            raise ValueError(
                f"the network has batch norm ({norms[0]}), whose statistics belong to no point of a family: pass "
                "statistics=, the training loader"
            )

    @property
    def family(self) -> Subspace:
        """The family."""
        return self._family

    @property
    def distances(self) -> dict[str, float]:
        """L2 distance and cos² between the vertices, on average over their pairs."""
        return dict(zip(("l2", "cos2"), spread(self._family).tolist(), strict=True))

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what predicts on these loaders."""
        given = self._statistics
        return Predictor(
            self._family.midpoint(),
            self.task,
            {split: self._loaders[split] for split in splits},
            None if given is None else lambda: given,
            batches=statistics,
            device=self._family.device,
        )

    def images(self, split: str, indices: Sequence[int]) -> Tensor | None:
        """Return examples of a loader that are small pictures."""
        return _picked(self.task, self._loaders[split], indices)


class NetworksSubject(Subject):
    """Networks that are there already, which answer alone and together."""

    def __init__(
        self, networks: Sequence[nn.Module], task: Task, loaders: Mapping[str, Iterable[Any]], name: str
    ) -> None:
        shape: Shape = Point() if len(networks) == 1 else Simplex(len(networks))
        super().__init__(name, shape, task, list(loaders))
        self._networks, self._loaders = list(networks), dict(loaders)
        self.device = str(next((each.device for each in networks[0].parameters()), "cpu"))
        self.answers = ("midpoint",) if len(networks) == 1 else ("vertices",)
        self.walks = False

    @property
    def terms(self) -> Family:
        """What answers may depend on."""
        return Family(self.shape, middle="network", vertices="networks")

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what asks the networks."""
        return GivenNetworks(self._networks, self.task, {split: self._loaders[split] for split in splits})

    def weights(self, place: Place) -> int:
        """Return the number of the network at a vertex."""
        return list(place).index(1.0) if isinstance(place, tuple) else 0

    def images(self, split: str, indices: Sequence[int]) -> Tensor | None:
        """Return examples of a loader that are small pictures."""
        return _picked(self.task, self._loaders[split], indices)


def _picked(task: Task, loader: Iterable[Any], indices: Sequence[int]) -> Tensor | None:
    """Return the first inputs of some examples, in the order of the indices, if they are small pictures."""
    wanted, first = set(indices), 0
    found: dict[int, Tensor] = {}
    for batch in loader:
        args, named = task.inputs(batch)
        inputs = next((value for value in (*args, *named.values()) if isinstance(value, Tensor)), None)
        if inputs is None or inputs.ndim != 4:
            return None
        found |= {index: inputs[index - first] for index in wanted if first <= index < first + len(inputs)}
        first += len(inputs)
        if len(found) == len(wanted):
            break
    return small_pictures(torch.stack([found[index] for index in indices])) if found else None


class _Selected(nn.Module):
    """A member of an ensemble, with what takes the logits out of its output."""

    def __init__(self, member: nn.Module, select: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.member, self.select = member, select

    def forward(self, *args: Any, **named: Any) -> Tensor:
        return self.select(self.member(*args, **named))


def members_of(ensemble: Ensemble) -> list[nn.Module]:
    """Return the networks of an ensemble, each of which returns logits."""
    select = ensemble.select
    return [member if select is None else _Selected(member, select) for member in ensemble.members]
