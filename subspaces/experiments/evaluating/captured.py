"""Predicting on a CUDA device with graphs of a batch for the statistics and of the pass over each split."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import functional
from subspaces.core.batchnorm import tracked
from subspaces.core.ensemble import wide
from subspaces.evaluation.predictor import Outputs, Predictor
from subspaces.experiments.data import ResidentLoader
from subspaces.experiments.training.step import captured


class CapturedPredictor(Predictor):
    """Predicts from images on a CUDA device, with graphs of a training batch and of the pass over each split."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        (network,) = self._networks
        self._start = self._statistics.state_dict() if isinstance(self._statistics, ResidentLoader) else {}
        shared: dict[int, Any] = {id(value): value for value in network.parameters()}
        self._pupil = functional.copied(network, shared).train()  # the same weights, and the statistics of one batch
        for norm in tracked(self._pupil).values():
            norm.momentum = 1.0
        self._graph: tuple[torch.cuda.CUDAGraph, list[Tensor]] | None = None
        self._passes: dict[str, tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]] = {}

    def prepare(self, points: Sequence[Any]) -> list[nn.Module]:
        """Return a network at each of these points; the graph makes the statistics of the first network alone."""
        for point in points if len(points) > 1 else ():
            super().prepare([point])
        return super().prepare(points)

    def outputs(self, points: Sequence[Any], data: str | Iterable[Any], **how: Any) -> Iterable[Outputs]:
        """Return a split as one batch: the networks take turns in one, which the graphs know."""
        if how.get("passes") or not isinstance(data, str):
            return super().outputs(points, data, **how)
        return [self._taking_turns(points, data)]

    @torch.no_grad()
    def _taking_turns(self, points: Sequence[Any], split: str) -> Outputs:
        found: list[Tensor] = []
        for point in points:
            self.prepare([point])
            with self._settings():
                output, target = self._pass(split)
                found.append(output)
        return self._parts(found, target)

    def _pass(self, split: str) -> tuple[Tensor, Tensor]:
        if split not in self._passes:
            self._passes[split] = captured(lambda: self._joined(split), self.device)
        graph, (output, target) = self._passes[split]
        graph.replay()
        return output.clone(), target

    def _joined(self, split: str) -> tuple[Tensor, Tensor]:
        found = [(wide(self._forward(self._networks[0], (x, y))), y) for x, y in self.splits[split]]
        outputs, targets = zip(*found, strict=True)
        return torch.cat(outputs), torch.cat(targets)

    def _renew_statistics(self, network: nn.Module, statistics: Any) -> None:
        loader: ResidentLoader = statistics
        loader.load_state_dict(self._start)  # the same batches for every point
        loader.start_epoch()
        sizes = loader.sizes[: self._batches]
        with self._settings():
            if self._graph is None:
                sums = [torch.zeros_like(value) for value in _running(network)]
                self._graph = captured(lambda: self._add_statistics(loader, sizes[0], sums), self.device)[0], sums
                loader.position.zero_()
            graph, sums = self._graph
            torch._foreach_zero_(sums)
            for size in sizes:
                if size == sizes[0]:
                    graph.replay()
                else:
                    self._add_statistics(loader, size, sums)
        torch._foreach_copy_(_running(network), list(torch._foreach_div(sums, len(sizes))))

    def _add_statistics(self, loader: ResidentLoader, size: int, sums: list[Tensor]) -> None:
        """Run the network on a batch and add the mean and variance that its batch norms see."""
        running = _running(self._pupil)
        torch._foreach_zero_(running)  # nothing of before, also where that was infinite
        self._pupil(loader.take(size)[0])
        torch._foreach_add_(sums, running)


def _running(network: nn.Module) -> list[Tensor]:
    pairs = ((norm.running_mean, norm.running_var) for norm in tracked(network).values())
    return [value for pair in pairs for value in pair if value is not None]
