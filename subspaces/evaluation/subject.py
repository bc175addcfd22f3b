"""What is evaluated: a family or networks, with task and data."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, distributed, nested
from subspaces.core.ensemble import Average, Ensemble
from subspaces.core.family import Subspace
from subspaces.core.shapes import Point, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import CORRUPTIONS, corrupt
from subspaces.evaluation.files import environment
from subspaces.evaluation.measuring import Data
from subspaces.evaluation.points import Family, Place, to_alpha, usual
from subspaces.evaluation.predictor import Forward, Predictor
from subspaces.evaluation.rows import OUTLIERS, same_order, small_pictures
from subspaces.evaluation.settings import Corruptions, Given, Outliers
from subspaces.evaluation.tasks import Classification, Task, with_outputs

Constants = Sequence[float] | None
ROUNDING = 0.01  # by which numbers may leave [0, 1]: those of bfloat16 do


class Pictures(NamedTuple):
    """Images of a batch as bytes [n, C, H, W], and a function that puts other images in their place."""

    images: Tensor
    rebuild: Callable[[Tensor], Any]


@dataclass(eq=False)
class Subject:
    """A family, or networks that are evaluated alone and as an ensemble, with task and data.

    A subclass (`experiments.evaluating`) makes family and data when they are first needed.
    """

    name: str  # in tables
    shape: Shape  # of several networks a simplex of them, of which the vertices alone are points
    task: Task
    loaders: Mapping[str, Iterable[Any]]  # "test", and perhaps "validation"
    settings: Mapping[str, Any]  # at least "device" and "precision"
    networks: Sequence[nn.Module] = ()  # given ones, in place of a family
    statistics: Iterable[Any] | None = None  # training batches for batch-norm statistics
    forward: Forward | None = None
    seed: int = 0  # of random points
    label: str = ""  # in planes
    answers: tuple[str, ...] = ()  # by name
    terms: Family = Family(Point())  # what answers may depend on
    extra: dict[str, Any] = field(default_factory=dict)  # entries for the statistics of the evaluation
    common: dict[str, Any] = field(default_factory=dict)  # what the networks of a plane must have in common
    checksum: str | None = None  # tells a family from another one that was trained with the same settings
    folder: Path | None = None  # where its evaluation is kept
    family: Subspace = field(init=False, repr=False)  # unless there are networks

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, commit and hardware."""
        return environment(self.settings)

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        return list(self.loaders)

    @property
    def dataset(self) -> dict[str, Any]:
        """Name, classes and sizes of the splits, as far as they are known."""
        return {"name": "", "classes": [], "splits": dict.fromkeys(self.splits, 0)}

    def trained(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an evaluation that say how a run was trained."""
        return {}

    def predictor(
        self, splits: Sequence[str], statistics: int | None, weights: Callable[[Any], Any] | None = None
    ) -> Predictor:
        """Return a predictor for these splits, with batch-norm statistics of so many batches.

        `weights` returns those of a point, by default of the family.
        """
        return Predictor(
            self.networks or self.family.midpoint(),
            self.task,
            {split: self.loaders[split] for split in splits},
            self.statistics,
            weights=weights or self.weights,
            batches=statistics,
            dtype=torch.bfloat16 if self.settings["precision"] == "bfloat16" else None,
            forward=self.forward,
        )

    @torch.no_grad()
    def weights(self, place: Place) -> Any:
        """Return the weights at a point; of given networks, the number of the one at a vertex."""
        if self.networks:
            return list(place).index(1.0) if isinstance(place, tuple) else 0
        return self.family.theta(self.family.coefficients(to_alpha(place), outside=True))

    def images(self, split: str, indices: Sequence[int], labels: Tensor) -> Tensor | None:
        """Return small pictures of some examples, uint8 [k, C, H, W], or None; `labels` are those of the split."""
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

    def pictures(self, mean: Constants, std: Constants) -> Iterator[Pictures]:
        """Yield the test images as bytes, with functions that rebuild their batches."""
        for batch in self.loaders["test"]:
            here = nested.apply(lambda tensor: tensor.to(self.settings["device"]), batch)
            yield pictures_in(here, self.task, mean, std)

    def shifted(self, what: Corruptions | Given | None) -> list[Data]:
        """Return the sets of shifted examples."""
        if isinstance(what, Corruptions):
            return [self._corrupted(what, name, severity) for name in what.names for severity in what.severities]
        given = (what or {}).items()
        return [Data(name, partial(iter, loader), severity, "given", "given") for (name, severity), loader in given]

    def _corrupted(self, how: Corruptions, name: str, severity: int) -> Data:
        def made() -> Iterator[Any]:
            first = 0
            for images, rebuild in self.pictures(how.mean, how.std):
                yield rebuild(corrupt(images, name, severity, seed=how.seed, first=first))
                first += len(images)

        return Data(name, made, severity, CORRUPTIONS[name].group, how.source)

    def outliers(self, sets: Outliers) -> list[Data]:
        """Return the sets of outliers; raise for those that cannot be measured."""
        if sets and self.task.name != "classification":
            raise ArgumentError(f"outliers=…: the task is {self.task.name}; expected a classification of examples")
        return [Data(name, partial(iter, loader), 0, OUTLIERS, "given") for name, loader in sets.items()]

    def check_shifted(self, what: Corruptions | Given | None) -> None:
        """Raise for corruptions that cannot be made of the test examples, before anything is measured."""
        if isinstance(what, Corruptions) and self.folder is None:
            next(self.pictures(what.mean, what.std), None)
        elif isinstance(what, Corruptions) and what.mean is not None:
            raise ArgumentError(
                f"mean={what.mean}, std={what.std}: {self.name} is a run, which knows its own; expected none"
            )


def subject_of(
    networks: Sequence[nn.Module],
    task: Task,
    loaders: Mapping[str, Iterable[Any]],
    statistics: Iterable[Any] | None = None,
    name: str | None = None,
    precision: str = "auto",
    forward: Forward | None = None,
) -> Subject:
    """Return the subject of a family, an ensemble, a network or several networks."""
    several, alone = list(networks), distributed.unwrapped(networks[0]) if len(networks) == 1 else None
    how: dict[str, Any] = {"statistics": statistics, "forward": forward}
    if isinstance(alone, Subspace):
        batchnorm.check_given(alone.template, statistics)
        settings = {"device": str(alone.device), "precision": precision}
        how |= {"answers": usual(alone.shape), "terms": Family(alone.shape), "label": name or "family"}
        how["extra"] = dict(zip(("l2", "cos2"), spread(alone).tolist(), strict=True))  # how far apart vertices are
        made = Subject(name or "family", alone.shape, task, loaders, settings, **how)
        made.family = alone
        return made
    if isinstance(alone, Ensemble):
        select = alone.select  # takes what is averaged out of what a member returns
        kind: Average = "mixture" if alone.average == "mixture" else "logits"
        if isinstance(task, Classification) and task.outputs is None:
            task = with_outputs(task, alone.member_outputs)
        several = [one if select is None else Ensemble([one], kind, select=select) for one in alone.members]
    single = len(several) == 1
    device = next((each.device for each in several[0].parameters()), "cpu")
    shape = Point() if single else Simplex(len(several))
    how |= {"answers": ("midpoint",) if single else ("vertices",)}
    how |= {"networks": several, "terms": Family(shape, middle="network", vertices="networks")}
    usual_name = "network" if single and not isinstance(alone, Ensemble) else "ensemble"
    return Subject(name or usual_name, shape, task, loaders, {"device": str(device), "precision": precision}, **how)


def spread(family: Subspace) -> Tensor:
    """Return the mean L2 distance and the mean cos^2 of two vertices, as a tensor on the device."""
    l2, cos2 = family.distances()
    m = len(l2)
    others = ~torch.eye(m, dtype=torch.bool, device=l2.device)
    return torch.stack([(value * others).sum() / max(1, m * (m - 1)) for value in (l2, cos2)]).float()


@contextmanager
def restoring(networks: Sequence[nn.Module]) -> Iterator[None]:
    """Restore the modes and `requires_grad` of modules, and the state of the random numbers, in the end."""
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


# Images as bytes


def pictures_in(batch: Any, task: Task, mean: Constants = None, std: Constants = None) -> Pictures:
    """Return the first images among the inputs of a batch, x = (bytes/255 - mean) / std, by default in [0, 1]."""
    each = [one for one in nested.tensors(task.inputs(batch)) if one.dtype == torch.uint8 or one.is_floating_point()]
    found = next((one for one in each if one.ndim == 4 and one.shape[1] in (1, 3)), None)
    if found is None:
        raise ArgumentError(
            f"corruptions=…: a batch is {checks.shown(type(batch).__name__)} without images; expected a tensor "
            "[n, 1 or 3, height, width] among its inputs, or loaders of your own: corruptions={'rain': {1: loader}}"
        )
    if not {len(mean or (0,)), len(std or (0,))} <= {1, channels := found.shape[1]}:
        raise ArgumentError(
            f"corruptions=…: mean={tuple(mean or ())}, std={tuple(std or ())}: the images have {channels} channels; "
            f"expected {channels} numbers in each, or one for all channels"
        )
    centre, scale = (
        torch.tensor(list(value)).view(-1, 1, 1).to(found.device) for value in (mean or (0.0,), std or (1.0,))
    )

    def rebuild(images: Tensor) -> Any:
        scaled = images if found.dtype == torch.uint8 else ((images.float() / 255 - centre) / scale).to(found.dtype)
        return nested.apply(lambda tensor: scaled if tensor is found else tensor, batch)

    return Pictures(found if found.dtype == torch.uint8 else _to_bytes(found.float() * scale + centre), rebuild)


def _to_bytes(x: Tensor) -> Tensor:
    low, high = torch.stack(x.aminmax()).tolist()
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ArgumentError(
            f"corruptions=…: the images have values from {low:.3g} to {high:.3g}; expected uint8, or numbers from "
            "0 to 1: pass ss.Corruptions(mean=…, std=…) with the constants that your loader normalises with"
        )
    return (255 * x).round().clamp(0, 255).to(torch.uint8)
