"""The outputs of networks, batch by batch: at points of a family, or of given networks.

The points of a family are one network with other weights, so as many copies of it are kept on the device as points are
evaluated together, and weights are written into them. Batch-norm statistics are recomputed once for each point, as
`recalibrate` does it, from the same training batches in the same order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import _compat, functional, nested, randomness
from subspaces.core.batchnorm import renew, tracked
from subspaces.core.outputs import OutputCheck
from subspaces.evaluation.tasks import Task

KEPT = 256  # points whose batch-norm statistics are kept
Forward = Callable[[Any, Any], Any]
"""Runs a network on a batch and returns its output: forward(network, batch)."""


class Outputs:
    """The outputs of several networks for a batch, as parts of predictions (see `Task.parts`), and the targets."""

    def __init__(self, task: Task, members: Sequence[Any], target: Any) -> None:
        self.task, self.members, self.target = task, members, target
        self._known: dict[Any, Any] = {}

    def predicted(self, members: Sequence[int], average: str | None = None) -> Any:
        """Return the prediction of one network, or the average of several, by their numbers."""
        key = (*members, average)
        if key not in self._known:
            several = [self.members[number] for number in members]
            self._known[key] = self.task.combine(several, average or self.task.averages[0])
        return self._known[key]


class Predictor:
    """Runs the networks at points of a family, or given networks.

    Args:
        networks: one with the architecture of the family, which is changed; or several, which stay as they are: where
            there are `statistics`, copies of those with batch norm get these.
        task: takes batches apart, and makes predictions of outputs.
        splits: the batches of each, walked over again and again.
        statistics: training batches for batch-norm statistics; `batches` of them, by default all.
        weights: gives the weights at a point, which may also be passed as its weights; or the number of a network.
        dtype: of autocast.
        seed: of random numbers that are drawn while statistics are made, the same for every point.
        forward: runs a network on a batch; by default as the task takes a batch apart.
    """

    def __init__(
        self,
        networks: nn.Module | Sequence[nn.Module],
        task: Task,
        splits: Mapping[str, Iterable[Any]],
        statistics: Any = None,
        *,
        weights: Callable[[Any], Any] = lambda point: point,
        batches: int | None = None,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        forward: Forward | None = None,
    ) -> None:
        self._given = not isinstance(networks, nn.Module)
        self._networks = [networks.eval()] if isinstance(networks, nn.Module) else [each.eval() for each in networks]
        network = self._networks[0]
        self._forward, self._weights = forward or task.run, weights
        self._output_check = OutputCheck(getattr(task, "outputs", None))
        self.device = next((each.device for each in network.parameters()), torch.device("cpu"))
        self.task, self.splits, self.seed, self.dtype, self._batches = task, splits, seed, dtype, batches
        self._statistics = statistics if tracked(network) else None
        sizes: list[int] = [] if self._statistics is None else getattr(statistics, "sizes", [])[:batches]
        self.statistics_images = sum(sizes)  # 0 if that is not known yet
        self._known: dict[Any, list[Tensor]] = {}  # the buffers of norms at points
        if not self._given:
            network.requires_grad_(False)
            return
        for number, each in enumerate(self._networks):
            if statistics is not None and tracked(each):
                self._networks[number] = functional.copied(each)
                self._renew_statistics(self._networks[number], statistics)

    @torch.no_grad()
    def prepare(self, points: Sequence[Any]) -> list[nn.Module]:
        """Return a network at each of these points, with batch-norm statistics of its own."""
        if self._given:
            return [self._networks[self._weights(point)] for point in points]
        while len(self._networks) < len(points):
            self._networks.append(functional.copied(self._networks[0]))
        for network, point in zip(self._networks, points, strict=False):
            given = isinstance(point, Mapping)
            for name, value in (point if given else self._weights(point)).items():
                network.get_parameter(name).copy_(value)
            if self._statistics is not None:
                self._recalibrate(network, None if given else point)
        return self._networks[: len(points)]

    def outputs(self, points: Sequence[Any], data: str | Iterable[Any], *, labelled: bool = True) -> Iterable[Outputs]:
        """Yield the outputs of the networks at some points, on a split (by its name) or on batches.

        Targets of batches that are not `labelled` are 0.
        """
        networks = self.prepare(points)
        for batch in self.splits[data] if isinstance(data, str) else data:
            if not nested.is_empty(batch):
                yield self._ask(networks, batch, labelled)

    def whole(self, point: Any) -> dict[str, Tensor]:
        """Return the logits of one network for each split as a whole."""
        return {
            split: torch.cat([each.members[0].logs for each in self.outputs([point], split)]) for split in self.splits
        }

    @torch.no_grad()
    def _ask(self, networks: Sequence[nn.Module], batch: Any, labelled: bool) -> Outputs:
        """Return the outputs of networks on a batch."""
        batch = nested.moved(batch, self.device)
        if labelled:
            target = self.task.target(batch)
        else:
            target = torch.zeros(nested.batch_size(self.task.inputs(batch)) or 0, dtype=torch.int64, device=self.device)
        with self._settings():
            outputs = [self._forward(network, batch) for network in networks]
        return self._parts(outputs, target)

    def _parts(self, outputs: Sequence[Any], target: Any) -> Outputs:
        if not self._output_check.done:
            self.task.check_output(outputs[0], self._output_check)
        parts = [self.task.parts(output, target) for output in outputs]
        return Outputs(self.task, [part for part, _ in parts], parts[0][1])

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Set autocast, and random numbers (of loaders) that are the same for every point."""
        low = torch.autocast(
            self.device.type, self.dtype or torch.bfloat16, enabled=self.dtype is not None, cache_enabled=False
        )
        with randomness.seeded(self.seed, self.device), low:
            yield

    def _recalibrate(self, network: nn.Module, point: Any) -> None:
        """Set the batch-norm statistics of a network to those of a point, which are computed once."""
        buffers = [buffer for norm in tracked(network).values() for buffer in norm.buffers(recurse=False)]
        if point is not None and point in self._known:
            _compat.copy_all(buffers, self._known[point])
            return
        self._renew_statistics(network, self._statistics)
        if point is not None:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            self._known[point] = [buffer.clone() for buffer in buffers]

    def _renew_statistics(self, network: nn.Module, statistics: Any) -> None:
        self.statistics_images = 0

        def run(module: Any, batch: Any) -> None:
            self.statistics_images += nested.batch_size(self.task.inputs(batch)) or 0
            self._forward(module, batch)

        with self._settings():
            renew(network, statistics, run, batches=self._batches, seed=self.seed)
