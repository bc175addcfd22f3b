"""What a network answers with any weights, as fast as the device allows.

All points of a family are the same network with other weights, so one network is kept on the device
and each point is written into it. Batch-norm statistics belong to no point: they are made anew for
each, as `recalibrate` does it, from the same augmented training images in the same order. On a GPU a
batch of that, and the whole pass over a split, are each captured once as a CUDA graph.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from subspaces.batchnorm import recalibrate
from subspaces.data import Dataset, ResidentLoader
from subspaces.features import watch
from subspaces.networks import registry
from subspaces.training.batches import evaluation_batches, statistics_batches, statistics_seed
from subspaces.training.config import Execution, Recipe

WARMUP = 2


class Prediction(NamedTuple):
    """The answers of a network to the images of a split."""

    logits: Tensor
    """float32 [n, classes]"""
    features: Tensor
    """float32 [n, d], what enters the head, flattened"""


class Predictor:
    """Predicts with any weights of one network.

    Args:
        network: the network; it is changed.
        recipe: of the run: how its images are cropped, flipped and batched.
        dataset: the run's data.
        execution: where and how.
        splits: the names of the splits to predict, "test" or "validation".
        statistics: batches for the batch-norm statistics; by default one whole pass over the training images.
    """

    def __init__(
        self,
        network: nn.Module,
        recipe: Recipe,
        dataset: Dataset,
        execution: Execution,
        splits: Sequence[str],
        statistics: int | None = None,
    ) -> None:
        self.device = torch.device(execution.device)
        named = network.to(self.device).named_parameters(remove_duplicate=False)
        self._parameters = {name: value for name, value in named if value.requires_grad}  # frozen ones are shared
        self.network = network.eval().requires_grad_(False)
        self.recipe, self.dataset, self.execution = recipe, dataset, execution
        self._norms = [part for part in network.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
        self._head = registry.head_name(network)
        self._training = statistics_batches(recipe, dataset, execution)
        self._splits = {name: evaluation_batches(getattr(dataset, name), recipe, dataset, execution) for name in splits}
        self.labels = {name: getattr(dataset, name).labels.to(self.device) for name in splits}
        sizes = self._training.sizes
        self.statistics_images = sum(sizes[:statistics]) if self._norms else 0
        self._batches = min(len(sizes), statistics or len(sizes))
        self._start = self._training.state_dict()
        self._graph: tuple[torch.cuda.CUDAGraph, list[Tensor]] | None = None
        self._passes: dict[str, tuple[torch.cuda.CUDAGraph, Prediction]] = {}
        resident = all(isinstance(loader, ResidentLoader) for loader in (self._training, *self._splits.values()))
        self._captures = bool(execution.graph) and resident

    @torch.no_grad()
    def __call__(self, weights: Mapping[str, Tensor]) -> dict[str, Prediction]:
        """Return the answers of the network with these weights, by split."""
        self._write(weights)
        with self._settings():
            if self._norms:
                self._renew_statistics()
            return {name: self._predict(name) for name in self._splits}

    def _write(self, weights: Mapping[str, Tensor]) -> None:
        if set(weights) != set(self._parameters):
            differing = sorted(set(weights) ^ set(self._parameters))
            raise ValueError(f"the weights are not those of the network: {differing[0]} is in one of them only")
        for name, parameter in self._parameters.items():
            parameter.copy_(weights[name])

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Compute as in training, with random numbers (of dropout) that are the same for every point."""
        low = self.execution.precision == "bfloat16"
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(statistics_seed(self.recipe))
            with torch.autocast(self.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
                yield

    def _renew_statistics(self) -> None:
        loader = self._training
        if isinstance(loader, ResidentLoader):
            loader.load_state_dict(self._start)  # the same batches for every point
        else:
            loader = statistics_batches(self.recipe, self.dataset, self.execution)
        if not self._captures:
            recalibrate(self.network, loader, batches=self._batches, finite=False)  # far off, all is infinite
            return
        loader.start_epoch()
        sizes = loader.sizes[: self._batches]
        if self._graph is None:
            self._graph = self._capture_batch(sizes[0])
            loader.position.zero_()
        graph, sums = self._graph
        torch._foreach_zero_(sums)
        for size in sizes:
            if size == sizes[0]:
                graph.replay()
            else:
                self._add_statistics(size, sums)
        means = torch._foreach_div(sums, len(sizes))
        torch._foreach_copy_(self._statistics(), list(means))

    def _statistics(self) -> list[Tensor]:
        pairs = ((norm.running_mean, norm.running_var) for norm in self._norms)
        return [value for pair in pairs for value in pair if value is not None]

    def _add_statistics(self, size: int, sums: list[Tensor]) -> None:
        """Run the network on a batch and add the mean and variance that its batch norms see."""
        momenta = [norm.momentum for norm in self._norms]
        running = self._statistics()
        torch._foreach_zero_(running)
        self.network.train()
        try:
            for norm in self._norms:
                norm.momentum = 1.0  # keeps the statistics of this batch alone
            self.network(self._training.take(size)[0])
            torch._foreach_add_(sums, running)
        finally:
            self.network.eval()
            for norm, momentum in zip(self._norms, momenta, strict=True):
                norm.momentum = momentum

    def _capture_batch(self, size: int) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        sums = [torch.zeros_like(value) for value in self._statistics()]
        return self._captured(lambda: self._add_statistics(size, sums))[0], sums

    def _predict(self, name: str) -> Prediction:
        if not self._captures:
            return self._answers(name)
        if name not in self._passes:
            self._passes[name] = self._captured(lambda: self._answers(name))
        graph, result = self._passes[name]
        graph.replay()
        return Prediction(*(value.clone() for value in result))

    def _answers(self, name: str) -> Prediction:
        loader = self._splits[name]
        logits, features = [], []
        with watch(self.network, self._head) as seen:
            for x, _ in loader:
                logits.append(self.network(x).float())
                features.append(seen[-1].flatten(1).float())
                seen.clear()
        return Prediction(torch.cat(logits), torch.cat(features))

    def _captured(self, work: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
        """Return a graph of some work, after running it often enough to be warm, and what the work returns."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        cudnn = torch.backends.cudnn
        kept = {"deterministic": cudnn.deterministic, "allow_tf32": cudnn.allow_tf32}
        with cudnn.flags(enabled=True, benchmark=True, **kept):
            with torch.cuda.stream(stream):
                for _ in range(WARMUP):
                    work()
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                result = work()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        return graph, result
