"""Where the networks of an export come from: a finished run, or a module of the user's own."""

import platform
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, devices, distributed, functional, nested
from subspaces.core.batchnorm import recalibrate, tracked
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.outputs import Outputs
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import Family, usual
from subspaces.evaluation.images.decoding import centre_view, decode
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.record import FILE, Description, Row
from subspaces.evaluation.tasks import Classification, Task
from subspaces.experiments.data import Files
from subspaces.experiments.evaluating.integrity import measured_of
from subspaces.experiments.evaluating.run_subject import RunSubject
from subspaces.experiments.training.environment import commit
from subspaces.export.answers import Answer, answer_of
from subspaces.export.errors import ExportError
from subspaces.export.inputs import Inputs
from subspaces.networks.factories import in_words
from subspaces.networks.registry import check_name
from subspaces.version import __version__

CHECKED = 32  # images that an export is checked with
RESIZE = 256  # of image files, before their centre is cut out


def plain(network: nn.Module) -> nn.Module:
    """Return a copy in eval mode, on the CPU, whose numbers lie as their shape says."""
    copied = functional.copied(network).cpu().eval().requires_grad_(False)
    return copied.to(memory_format=torch.contiguous_format)  # type: ignore[no-any-return, call-overload]


def versions() -> dict[str, str]:
    """Return what this was exported with."""
    return {
        "subspaces": __version__,
        "commit": commit() or "unknown",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


class RunSource:
    """A finished run, whose training images make the batch-norm statistics, as for its evaluation."""

    answer = Answer(Classification())

    def __init__(self, subject: RunSubject, batches: int | None, weights: bool = False) -> None:
        self.weights = weights
        self.subject, self.terms, self.answers, self.seed = subject, subject.terms, subject.answers, subject.seed
        self.name = subject.run.folder.name
        self._predictor = subject.predictor([], batches)

    @property
    def statistics_images(self) -> int:
        """Of how many images statistics are made."""
        return self._predictor.expected_images

    @cached_property
    def family(self) -> Subspace:
        """The trained family."""
        family: Subspace = plain(self.subject.family)  # type: ignore[assignment]
        return family

    def network(self, place: Place) -> nn.Module:
        """Return the network at a point, with statistics of its own."""
        return plain(self._predictor.prepare([self.subject.weights(place)])[0])

    @property
    def about(self) -> dict[str, Any]:
        """What the file says of it."""
        data, recipe = self.subject.images_of, self.subject.recipe
        starts = self.subject.run.starts()
        return {
            "name": self.name,
            "network": recipe.network,
            "dropout": recipe.dropout,
            "classes": tuple(data.classes),
            "image_shape": tuple(data.image_shape),
            **dict(zip(("mean", "std"), self.normalisation, strict=True)),
            "resize": RESIZE if data.streaming else 0,
            "dataset": data.name,
            "recipe": recipe.to_dict(),
            "statistics_images": self.statistics_images,
            "commit": str((starts[-1] if starts else {}).get("commit") or "unknown"),
            "versions": versions(),
        }

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of each channel."""
        data = self.subject.images_of
        return tuple(map(float, data.mean)), tuple(map(float, data.std))

    @property
    def inputs(self) -> Inputs:
        """The example: some test images."""
        return Inputs((self.images,), {}, ("images",))

    @cached_property
    def images(self) -> Tensor:
        """Some test images in [0, 1]."""
        split = self.subject.images_of.test
        if isinstance(split, Files):
            views = [centre_view(decode(split.path(index)), RESIZE, 224) for index in range(min(CHECKED, len(split)))]
            return torch.stack([torch.from_numpy(view.copy()).permute(2, 0, 1) for view in views]).float() / 255
        return split.images[:CHECKED].float() / 255

    def measured(self) -> tuple[list[Row], list[Description]]:
        """Return all that was measured of the run, and what the metrics are; nothing if it was not evaluated."""
        run = self.subject.run
        if not (run.folder / FILE).exists():
            return [], []
        record = measured_of(run)
        return record.rows, record.metrics


class OwnSource:
    """A network, an ensemble or a family of the user's own."""

    seed = 0

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs | None,
        answer: Answer,
        classes: Sequence[str],
        normalisation: tuple[tuple[float, ...], tuple[float, ...]],
        statistics: Iterable[Any] | None,
        name: str,
        network: str,
        weights: bool,
    ) -> None:
        self.module, self.inputs, self.answer, self.classes, self.name = module, inputs, answer, classes, name
        self.normalisation, self.registered, self.weights = normalisation, network, weights
        self._statistics, self.statistics_images = statistics, 0
        if isinstance(self.module, Subspace):
            self.terms, self.answers = Family(self.module.shape), usual(self.module.shape)
        elif statistics is not None:
            self.module = self._recalibrated(functional.copied(self.module))

    def _recalibrated(self, network: nn.Module) -> nn.Module:
        """Make statistics anew, and count the images that they are of."""
        if self._statistics is None or not tracked(network):
            return network
        seen = 0

        def run(module: Any, batch: Any) -> None:
            nonlocal seen
            args, named = nested.inputs(batch)
            try:
                module(*args, **named)
            except Exception as error:  # of the network, which need not be ours
                if devices.ran_out(error):
                    raise
                raise ArgumentError(
                    f"statistics= has a batch that the network fails on ({in_words(error)[:300]}): expected batches as "
                    "the network gets them, such as images or (images, targets)"
                ) from error
            seen += nested.batch_size((args, named)) or 0

        recalibrate(network, self._statistics, forward=run)
        self.statistics_images = seen
        return network

    @property
    def family(self) -> Subspace:
        """A copy of the family."""
        found = plain(self.module)
        if not isinstance(found, Subspace):
            raise ExportError(f"a {type(found).__name__} has no points: expected a Subspace")
        return found

    def network(self, place: Place) -> nn.Module:
        """Return the network at a point, with statistics of its own."""
        assert isinstance(self.module, Subspace)
        batchnorm.check_given(self.module.template, self._statistics)
        return plain(self._recalibrated(self.module.at(to_alpha(place))))

    @property
    def about(self) -> dict[str, Any]:
        """What the file says of it."""
        return {
            "name": self.name,
            "network": self.registered or type(inner(self.module)).__name__,
            "classes": tuple(self.classes),
            "image_shape": tuple(self.inputs.tensors[0].shape[1:]) if self.inputs and self.inputs.is_images else (),
            **dict(zip(("mean", "std"), self.normalisation, strict=True)),
            "statistics_images": self.statistics_images,
            "commit": commit() or "unknown",
            "versions": versions(),
        }

    def measured(self) -> tuple[list[Row], list[Description]]:
        """Return nothing: what the user measured is the user's."""
        return [], []


Source = RunSource | OwnSource


def own_source(
    module: nn.Module,
    *,
    example: Any = None,
    task: Task | str | None = None,
    outputs: Outputs | None = None,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    statistics: Iterable[Any] | None = None,
    name: str | None = None,
    network: str | None = None,
    weights: bool = False,
) -> OwnSource:
    """Return a module of the user's own as what is exported, after a look at what comes with it."""
    found = [] if classes is None else [str(each) for each in checks.several("classes", classes, "a list of names")]
    for label, text in (("name", name), ("network", network)):
        if text is not None and not isinstance(text, str):
            raise ArgumentError(f"{label}={checks.shown(text)}: expected text")
    if network is not None:
        check_name(network)
    answer, module = answer_of(task, outputs), distributed.unwrapped(module)
    inputs = None if weights and example is None else Inputs.of(inner(module), example)
    numbers = _numbers("mean", mean), _numbers("std", std)
    _check_normalisation(inputs, *numbers)
    if statistics is not None:
        checks.batches("statistics", statistics)
    return OwnSource(module, inputs, answer, found, numbers, statistics, name or "network", network or "", weights)


def inner(module: nn.Module) -> nn.Module:
    """Return the network in a family, or the first of an ensemble, whose inputs are those of the whole."""
    found = module.template if isinstance(module, Subspace) else module
    return found.members[0] if isinstance(found, Ensemble) else found


def _check_normalisation(inputs: Inputs | None, mean: Sequence[float], std: Sequence[float]) -> None:
    """Refuse numbers that are not one for each channel of the example."""
    given = f"mean={checks.shown(list(mean))}, std={checks.shown(list(std))}"
    channels = len(mean)
    if inputs is not None and (mean or std):
        first = inputs.tensors[0]
        if len(inputs.names) > 1 or first.ndim < 2 or not first.is_floating_point():
            raise ArgumentError(f"{given}: expected it for one input of floats; this takes {inputs.described()}")
        channels = first.shape[1]
    if not len(mean) == len(std) == (channels if mean or std else 0):
        raise ArgumentError(f"{given}: expected one of each for the {channels} channels of the example, or neither")
    if std and min(std) <= 0:
        raise ArgumentError(f"std={checks.shown(list(std))}: expected numbers above 0")


def _numbers(name: str, given: Any) -> tuple[float, ...]:
    """Return one number for each channel, or none."""
    found = [] if given is None else checks.several(name, given, "a list with one number for each channel")
    return tuple(checks.number(name, each) for each in found)
