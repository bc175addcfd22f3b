"""What is measured: a family, or networks, with its data and its task.

A run folder brings its own data (`experiments.evaluating`); for any other family the user brings loaders.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from subspaces.evaluation.environment import environment
from subspaces.evaluation.examples import same_order
from subspaces.evaluation.pictures import Pictures, Scale, in_batches, pictures_in, small_pictures
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.predictor import Forward, GivenNetworks, Predictor
from subspaces.evaluation.tasks import Classification, Task, with_outputs
from subspaces.images.splits import Images

Loaders = Mapping[str, Iterable[Any]]
"""The batches of each split, by its name: "test", and perhaps "validation"."""
Constants = Sequence[float] | None


class Data(NamedTuple):
    """Examples on which networks are measured: shifted ones, or outliers; of a split only the name is there."""

    name: str
    batches: Callable[[], Iterable[Any]] = tuple
    severity: int = 0
    group: str = ""
    source: str = "given"

    @property
    def key(self) -> dict[str, Any]:
        """What tells it from other data."""
        return {"data": self.name, "severity": self.severity, "group": self.group, "source": self.source}


class Subject:
    """A family, or networks that answer alone and together, with its task and the loaders of its splits.

    Args:
        name: what it is called in tables.
        shape: of the family; of several networks a simplex of them, of which the vertices alone are points.
        task: what is predicted.
        loaders: the batches of each split, walked over again and again.
        settings: at least "device" and "precision".
        networks: those that are there already, in place of a family.
        statistics: training batches for batch-norm statistics.
        forward: runs a network on a batch; by default as the task takes a batch apart.
        seed: of random points and of what is dropped.
    """

    family: Subspace
    checksum: str | None = None
    """What tells the family of a run from another one that was trained with the same recipe."""
    folder: Path | None = None
    """Where the evaluation of a run is kept."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        task: Task,
        loaders: Loaders,
        settings: Mapping[str, Any],
        *,
        networks: Sequence[nn.Module] = (),
        statistics: Iterable[Any] | None = None,
        forward: Forward | None = None,
        seed: int = 0,
    ) -> None:
        self.name, self.shape, self.task, self.loaders, self.settings = name, shape, task, loaders, settings
        self.networks, self.statistics, self.forward, self.seed = list(networks), statistics, forward, seed
        self.splits = list(loaders)
        self.label = name  # in planes
        self.answers = usual(shape)  # by name
        self.terms = Family(shape)  # what answers may depend on
        self.noted: dict[str, Any] = {}  # beside the number of batches that statistics are of

    @property
    def walks(self) -> bool:
        """Whether points between the vertices are measured too."""
        return not self.networks

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, commit and hardware, asked for once: they are the same for all that a process measures."""
        return environment(self.settings)

    def trained(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Return how a run was trained, as its evaluation keeps it."""
        return {}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, where they are known."""
        return None

    @property
    def dataset(self) -> dict[str, Any]:
        """Name, classes and sizes of the splits, as far as they are known."""
        return {"name": "", "classes": [], "splits": dict.fromkeys(self.splits, 0)}

    def predictor(
        self, splits: Sequence[str], statistics: int | None, weights: Callable[[Any], Any] | None = None
    ) -> Predictor:
        """Return what predicts on these splits, with batch-norm statistics of so many batches.

        `weights` gives those at a point, by default of the family.
        """
        loaders = {split: self.loaders[split] for split in splits}
        how: dict[str, Any] = {"batches": statistics, "weights": weights or self.weights, "forward": self.forward}
        how["dtype"] = torch.bfloat16 if self.settings["precision"] == "bfloat16" else None
        if self.networks:
            return GivenNetworks(self.networks, self.task, loaders, self.statistics, **how)
        return Predictor(self.family.midpoint(), self.task, loaders, self.statistics, **how)

    @torch.no_grad()
    def weights(self, place: Place) -> Any:
        """Return the weights at a point; of networks that are there already, the number of the one at a vertex."""
        if self.networks:
            return list(place).index(1.0) if isinstance(place, tuple) else 0
        return self.family.theta(self.family.coefficients(to_alpha(place), outside=True))

    def images(self, split: str, indices: Sequence[int], labels: Tensor) -> Tensor | None:
        """Return pictures of examples with these labels, uint8 [k, C, H, W]; None if they are no small pictures."""
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
        """Return the test examples, in batches."""
        return self.loaders["test"]

    def pictures(self, mean: Constants, std: Constants) -> Iterator[Pictures]:
        """Yield the test images as bytes, each batch with what makes it of others; the constants are the loader's."""
        for batch in self.loaders["test"]:
            here = nested.apply(lambda tensor: tensor.to(self.settings["device"]), batch)
            yield pictures_in(here, self.task, Scale(mean, std))

    def batches(self, images: Images, mean: Constants, std: Constants) -> Iterator[Any]:
        """Yield other images, in the size of the test images, and their labels as the network gets them."""
        first = next(self.pictures(mean, std))
        side = first.images.shape[-1]
        for x, y in in_batches(images, self.settings["device"], side=side, resize=side):
            yield Scale(mean, std).to_numbers(x, first.dtype), y

    def named(self, name: str | Path) -> Data:
        """Return the test images of another data set, or those of a folder, as the network takes them, in batches."""
        called = Path(name).name
        raise ArgumentError(
            f"outliers={called!r}: {self.name} is no run; expected loaders such as {{{called!r}: loader}}"
        )

    def check_alike(self, other: "Subject") -> None:
        """Refuse another subject whose networks cannot be compared with those of this one."""

    def check_pictures(self, mean: Constants, std: Constants) -> None:
        """Refuse test examples that are no images, or constants that are not theirs."""
        next(self.pictures(mean, std), None)


def subject_of(
    networks: Sequence[nn.Module],
    task: Task,
    loaders: Loaders,
    statistics: Iterable[Any] | None = None,
    name: str | None = None,
    precision: str = "auto",
    forward: Forward | None = None,
) -> Subject:
    """Return a family, an ensemble, a network or several of them as what is measured on loaders."""
    several, alone = list(networks), distributed.unwrapped(networks[0]) if len(networks) == 1 else None
    how: dict[str, Any] = {"statistics": statistics, "forward": forward}
    if isinstance(alone, Subspace):
        batchnorm.check_given(alone.template, statistics)
        settings = {"device": str(alone.device), "precision": precision}
        made = Subject(name or "family", alone.shape, task, loaders, settings, **how)
        made.family = alone
        made.noted = dict(zip(("l2", "cos2"), spread(alone).tolist(), strict=True))  # how far apart the vertices are
        return made
    if isinstance(alone, Ensemble):
        select = alone.select  # takes what is averaged out of what a member returns
        kind: Average = "mixture" if alone.average == "mixture" else "logits"
        if isinstance(task, Classification) and task.outputs is None:
            task = with_outputs(task, alone.member_outputs)
        several = [one if select is None else Ensemble([one], kind, select=select) for one in alone.members]
    single = len(several) == 1
    usual_name = "network" if single and not isinstance(alone, Ensemble) else "ensemble"
    device = next((each.device for each in several[0].parameters()), "cpu")
    settings = {"device": str(device), "precision": precision}
    shape = Point() if single else Simplex(len(several))
    made = Subject(name or usual_name, shape, task, loaders, settings, networks=several, **how)
    made.answers = ("midpoint",) if single else ("vertices",)
    made.terms = Family(shape, middle="network", vertices="networks")
    return made


def spread(family: Subspace) -> Tensor:
    """Return the mean L2 distance and the mean cos^2 of two vertices, as a tensor on the device."""
    l2, cos2 = family.distances()
    m = len(l2)
    others = ~torch.eye(m, dtype=torch.bool, device=l2.device)
    return torch.stack([(value * others).sum() / max(1, m * (m - 1)) for value in (l2, cos2)]).float()


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
