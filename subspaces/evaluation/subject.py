"""What is measured: a family with its data and its task, each part made when it is first needed.

A run folder brings its own data; for any other family the user brings loaders.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, distributed, nested
from subspaces.core.ensemble import Average, Ensemble
from subspaces.core.family import Subspace
from subspaces.core.shapes import Point, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import Family, usual
from subspaces.evaluation.examples import same_order
from subspaces.evaluation.pictures import Pictures, Scale, in_batches, pictures_in
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.predictor import Forward, GivenNetworks, Predictor
from subspaces.evaluation.tasks import Classification, Task, with_outputs
from subspaces.experiments.data import Images
from subspaces.experiments.training.engine import spread
from subspaces.experiments.training.environment import environment
from subspaces.experiments.training.execution import Execution, Precision
from subspaces.experiments.training.recipe import Recipe

Loaders = Mapping[str, Iterable[Any]]
"""The batches of each split, by its name: "test", and perhaps "validation"."""
Constants = Sequence[float] | None
PIXELS = 64 * 64  # of a picture: a page holds 48 of them


class Subject:
    """Something that has points, and answers with the networks at them."""

    family: Subspace
    walks = True
    """Whether points between the vertices are measured too."""
    recipe: Recipe | None = None
    checksum: str | None = None
    """What tells the family of a run from another one that was trained with the same recipe."""
    folder: Path | None = None
    """Where the record of a run is kept."""

    def __init__(
        self, name: str, shape: Shape, task: Task, splits: Iterable[str], execution: Execution, seed: int = 0
    ) -> None:
        self.name, self.shape, self.task, self.splits, self.seed = name, shape, task, list(splits), seed
        self.execution = execution
        self.label = name  # in planes
        self.answers = usual(shape)  # by name
        self.terms = Family(shape)  # what answers may depend on
        self.noted: dict[str, Any] = {}  # beside the number of batches that statistics are of

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, commit and hardware, asked for once: they are the same for all that a process measures."""
        return environment(self.execution)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, where they are known."""
        return None

    @property
    def dataset(self) -> dict[str, Any]:
        """Name, classes and sizes of the splits, as far as they are known."""
        return {"name": "", "classes": [], "splits": dict.fromkeys(self.splits, 0)}

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what predicts on these splits, with batch-norm statistics of so many batches."""
        raise NotImplementedError

    @torch.no_grad()
    def weights(self, place: Place) -> Any:
        """Return the weights at a point, as the predictor takes them."""
        return self.family.theta(self.family.coefficients(to_alpha(place), outside=True))

    def images(self, split: str, indices: Sequence[int], labels: Tensor) -> Tensor | None:
        """Return pictures of some of the examples with these labels, uint8 [k, C, H, W]; None if they are not small."""
        raise NotImplementedError

    def pictures(self, mean: Constants, std: Constants) -> Iterator[Pictures]:
        """Yield the test images as bytes, each batch with what makes it of others; the constants are the loader's."""
        raise NotImplementedError

    def tested(self) -> Iterable[Any]:
        """Return the test examples, in batches."""
        raise NotImplementedError

    def data(self, name: str | Path) -> Iterable[Any]:
        """Return the test images of another data set, or those of a folder, as the network takes them, in batches."""
        called = Path(name).name
        raise ArgumentError(
            f"outliers={called!r}: {self.name} is no run; expected loaders such as {{{called!r}: loader}}"
        )

    def check_pictures(self, mean: Constants, std: Constants) -> None:
        """Refuse test examples that are no images, or constants that are not theirs."""
        next(self.pictures(mean, std), None)

    def batches(self, images: Images, mean: Constants, std: Constants) -> Iterator[Any]:
        """Yield other images and their labels as the network gets them."""
        raise NotImplementedError


class How(NamedTuple):
    """How the user's networks are run: in which precision, and on a batch by which function."""

    precision: Precision = "auto"
    forward: Forward | None = None


class _OnLoaders(Subject):
    """What is measured on loaders of the user's own."""

    def __init__(self, name: str, shape: Shape, task: Task, loaders: Loaders, device: object, how: How) -> None:
        super().__init__(name, shape, task, loaders, Execution(device=str(device), precision=how.precision))
        self.loaders = loaders
        dtype = torch.bfloat16 if how.precision == "bfloat16" else None
        self.options: dict[str, Any] = {"dtype": dtype, "forward": how.forward}

    def images(self, split: str, indices: Sequence[int], labels: Tensor) -> Tensor | None:
        """Return the first inputs of some examples, in the order of the indices, if they are small pictures."""
        first = 0
        found: dict[int, Tensor] = {}
        for batch in self.loaders[split]:
            args, named = self.task.inputs(batch)
            inputs = next((value for value in (*args, *named.values()) if isinstance(value, Tensor)), None)
            target = torch.as_tensor(self.task.target(batch)).flatten()
            if inputs is None or inputs.ndim != 4 or len(inputs) != len(target):
                return None
            counts = target.ne(getattr(self.task, "ignore", -100))
            inputs, target = inputs[counts.to(inputs.device)], target[counts].cpu().long()
            known = labels[first : first + len(target)]
            same_order(split, known, target[: len(known)])
            found |= {index: inputs[index - first] for index in indices if first <= index < first + len(inputs)}
            first += len(inputs)
            if len(found) == len(set(indices)):
                break
        return small_pictures(torch.stack([found[index] for index in indices])) if found else None

    def tested(self) -> Iterable[Any]:
        """Return the test loader."""
        return self.loaders["test"]

    def pictures(self, mean: Constants, std: Constants) -> Iterator[Pictures]:
        """Yield the images of the test loader."""
        for batch in self.loaders["test"]:
            here = nested.apply(lambda tensor: tensor.to(self.execution.device), batch)
            yield pictures_in(here, self.task, Scale(mean, std))

    def batches(self, images: Images, mean: Constants, std: Constants) -> Iterator[Any]:
        """Yield (inputs, labels) with images of the same size as those of the test loader."""
        first = next(self.pictures(mean, std))
        side = first.images.shape[-1]
        for x, y in in_batches(images, self.execution.device, side=side, resize=side):
            yield Scale(mean, std).to_numbers(x, first.dtype), y


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


class FamilySubject(_OnLoaders):
    """A family of the user's own."""

    def __init__(
        self, family: Subspace, task: Task, loaders: Loaders, statistics: Iterable[Any] | None, name: str, how: How
    ) -> None:
        super().__init__(name, family.shape, task, loaders, family.device, how)
        self.family, self.statistics = family, statistics
        self.noted = dict(zip(("l2", "cos2"), spread(family).tolist(), strict=True))  # how far apart the vertices are
        batchnorm.check_given(family.template, statistics)

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what predicts on these loaders."""
        loaders = {split: self.loaders[split] for split in splits}
        network = self.family.midpoint()
        return Predictor(network, self.task, loaders, self.statistics, batches=statistics, **self.options)


class NetworksSubject(_OnLoaders):
    """Networks that are there already, which answer alone and together."""

    walks = False

    def __init__(
        self,
        networks: Sequence[nn.Module],
        task: Task,
        loaders: Loaders,
        statistics: Iterable[Any] | None,
        name: str,
        how: How,
    ) -> None:
        alone = len(networks) == 1
        device = next((each.device for each in networks[0].parameters()), "cpu")
        super().__init__(name, Point() if alone else Simplex(len(networks)), task, loaders, device, how)
        self._networks, self.statistics = list(networks), statistics
        self.answers = ("midpoint",) if alone else ("vertices",)
        self.terms = Family(self.shape, middle="network", vertices="networks")

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what asks the networks."""
        loaders = {split: self.loaders[split] for split in splits}
        return GivenNetworks(self._networks, self.task, loaders, self.statistics, batches=statistics, **self.options)

    def weights(self, place: Place) -> int:
        """Return the number of the network at a vertex."""
        return list(place).index(1.0) if isinstance(place, tuple) else 0


def subject_of(
    networks: Sequence[nn.Module],
    task: Task,
    loaders: Loaders,
    statistics: Iterable[Any] | None,
    name: str | None,
    how: How,
) -> Subject:
    """Return a family, an ensemble, a network or several of them as what is measured on loaders."""
    several, alone = list(networks), distributed.unwrapped(networks[0]) if len(networks) == 1 else None
    if isinstance(alone, Subspace):
        return FamilySubject(alone, task, loaders, statistics, name or "family", how)
    if isinstance(alone, Ensemble):
        select = alone.select  # takes what is averaged out of what a member returns
        kind: Average = "mixture" if alone.average == "mixture" else "logits"
        members = alone.members
        if isinstance(task, Classification) and task.outputs is None:
            task = with_outputs(task, alone.member_outputs)
        several = [member if select is None else Ensemble([member], kind, select=select) for member in members]
    usual_name = "network" if len(several) == 1 and not isinstance(alone, Ensemble) else "ensemble"
    return NetworksSubject(several, task, loaders, statistics, name or usual_name, how)


@contextmanager
def left_alone(networks: Sequence[nn.Module]) -> Iterator[None]:
    """Give modules back as they came: in their modes, with the gradients that they wanted; and the random numbers."""
    modes = {part: part.training for network in networks for part in network.modules()}
    trained = {value: value.requires_grad for network in networks for value in network.parameters()}
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode
        for value, wanted in trained.items():
            value.requires_grad_(wanted)
