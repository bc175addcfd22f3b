"""Where the networks of an export come from: a finished run, or a module of the user's own."""

import platform
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from subspaces import memory, nested, template, values
from subspaces.batchnorm import recalibrate
from subspaces.data import Files
from subspaces.data.decoding import centre_view, decode
from subspaces.ensembles import Ensemble
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import Family, usual
from subspaces.evaluation.integrity import measured_of
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.record import FILE, Description, Row
from subspaces.evaluation.run_subject import RunSubject
from subspaces.networks.factories import in_words
from subspaces.networks.registry import check_name
from subspaces.norms import tracked
from subspaces.production.errors import ExportError
from subspaces.subspace import Subspace
from subspaces.training.environment import commit
from subspaces.version import __version__

CHECKED = 32  # images that an export is checked with
RESIZE = 256  # of image files, before their centre is cut out


def plain(network: nn.Module) -> nn.Module:
    """Return a copy in eval mode, in float32, on the CPU, whose numbers lie as their shape says."""
    copied = template.copied(network).cpu().float().eval().requires_grad_(False)
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

    def __init__(self, subject: RunSubject, batches: int | None) -> None:
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
            "mean": tuple(map(float, data.mean)),
            "std": tuple(map(float, data.std)),
            "resize": RESIZE if data.streaming else 0,
            "dataset": data.name,
            "recipe": recipe.to_dict(),
            "statistics_images": self.statistics_images,
            "commit": str((starts[-1] if starts else {}).get("commit") or "unknown"),
            "versions": versions(),
        }

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
        example: Tensor,
        classes: Sequence[str],
        mean: Sequence[float],
        std: Sequence[float],
        statistics: Iterable[Any] | None,
        name: str,
        network: str,
    ) -> None:
        self.module, self.images, self.classes, self.name = template.unwrapped(module), example, classes, name
        self.mean, self.std, self.registered = mean, std, network
        self._statistics, self.statistics_images = statistics, 0
        if isinstance(self.module, Subspace):
            self.terms, self.answers = Family(self.module.shape), usual(self.module.shape)
            if statistics is None and (norms := tracked(self.module.template)):
                raise ArgumentError(
                    f"the network has batch norm ({next(iter(norms))}), whose statistics belong to no point of a "
                    "family: pass statistics=, the training loader"
                )
        elif statistics is not None:
            self.module = self._recalibrated(template.copied(self.module))

    def _recalibrated(self, network: nn.Module) -> nn.Module:
        """Make statistics anew, and count the images that they are of."""
        if self._statistics is None or not tracked(network):
            return network
        seen = 0

        def run(module: Any, batch: Any) -> None:
            nonlocal seen
            inputs = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
            try:
                module(**inputs) if isinstance(inputs, dict) else module(inputs)
            except Exception as error:  # of the network, which need not be ours
                if memory.ran_out(error):
                    raise
                raise ArgumentError(
                    f"statistics= has a batch that the network fails on ({in_words(error)[:300]}): expected batches as "
                    "the network gets them, such as images or (images, targets)"
                ) from error
            seen += nested.batch_size(inputs) or 0

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
        return plain(self._recalibrated(self.module.at(to_alpha(place))))

    @property
    def about(self) -> dict[str, Any]:
        """What the file says of it."""
        inner = self.module.template if isinstance(self.module, Subspace) else self.module
        inner = inner.members[0] if isinstance(inner, Ensemble) else inner
        return {
            "name": self.name,
            "network": self.registered or type(inner).__name__,
            "classes": tuple(self.classes),
            "image_shape": tuple(self.images.shape[1:]),
            "mean": tuple(map(float, self.mean)),
            "std": tuple(map(float, self.std)),
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
    example: Any,
    classes: Sequence[str] | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    statistics: Iterable[Any] | None,
    name: str | None,
    network: str | None,
) -> OwnSource:
    """Return a module of the user's own as what is exported, after a look at what comes with it."""
    found = [] if classes is None else [str(each) for each in values.several("classes", classes, "a list of names")]
    for label, text in (("name", name), ("network", network)):
        if text is not None and not isinstance(text, str):
            raise ArgumentError(f"{label}={values.shown(text)}: expected text")
    if network is not None:
        check_name(network)
    images = _images(example)
    means, stds = (_numbers(label, each) for label, each in (("mean", mean), ("std", std)))
    if len(means) != len(stds) or len(means) not in (0, images.shape[1]):
        raise ArgumentError(
            f"mean={values.shown(mean)}, std={values.shown(std)}: expected one of each for the {images.shape[1]} "
            "channels of the example, or neither"
        )
    if stds and min(stds) <= 0:
        raise ArgumentError(f"std={values.shown(std)}: expected numbers above 0")
    if statistics is not None:
        values.batches("statistics", statistics)
    return OwnSource(module, images, found, means, stds, statistics, name or "network", network or "")


def _images(example: Any) -> Tensor:
    """Return the example as float32 on the CPU, or say what was expected."""
    expected = "a few inputs of the network as it is to be called, such as torch.rand(16, 3, 32, 32)"
    if not isinstance(example, Tensor):
        raise ArgumentError(f"example={values.shown(example)}: expected {expected}")
    there = f"a tensor of shape {tuple(example.shape)} and {example.dtype}"
    if example.layout != torch.strided or example.is_meta or example.ndim < 2 or not example.numel():
        raise ArgumentError(f"example is {there}: expected {expected}")
    if not example.is_floating_point():
        raise ArgumentError(f"example is {there}: expected floats from 0 to 1; divide bytes by 255")
    if not bool(example.isfinite().all()):
        raise ArgumentError(f"example is {there} with NaN or infinity: expected {expected}")
    return example.detach().cpu().float()


def _numbers(name: str, given: Any) -> list[float]:
    """Return one number for each channel, or none."""
    found = [] if given is None else values.several(name, given, "a list with one number for each channel")
    return [values.number(name, each) for each in found]
