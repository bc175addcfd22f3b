"""What a network answers with any weights, batch by batch.

All points of a family are the same network with other weights, so a network is kept on the device for each member of an
ensemble and points are written into them. Batch-norm statistics belong to no point: they are made anew for each, as
`recalibrate` does it, from the same training batches in the same order. On a GPU, where the data is on the device too,
a batch of that and the whole pass over a split are each captured once as a CUDA graph.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from subspaces.core import ensemble, functional, nested, randomness
from subspaces.core.batchnorm import recalibrate, tracked
from subspaces.core.devices import captured
from subspaces.core.features import watch
from subspaces.core.outputs import OutputCheck
from subspaces.core.randomness import seeded
from subspaces.errors import ArgumentError
from subspaces.evaluation.tasks import Task
from subspaces.experiments.data import ResidentLoader
from subspaces.experiments.training.batches import Stream
from subspaces.networks import registry
from subspaces.networks.dropout import dropping

Weights = Mapping[str, Tensor]
Forward = Callable[[Any, Any], Any]
"""Runs a network on a batch and returns its output: forward(network, batch)."""


class Answers(NamedTuple):
    """What several networks say about the examples of a batch, and what is right."""

    members: list[Any]
    target: Any


class Predictor:
    """Predicts with any weights of one network, which is changed."""

    _head: str | None = None

    def __init__(
        self,
        network: nn.Module,
        task: Task,
        splits: Mapping[str, Iterable[Any]],  # the batches of each, walked over again and again
        statistics: Iterable[Any] | None = None,  # training batches
        *,
        batches: int | None = None,  # how many of those are used; by default all
        dtype: torch.dtype | None = None,  # of autocast
        seed: int = 0,  # of random numbers that are drawn while statistics are made, the same for every point
        forward: Forward | None = None,  # by default as the task takes a batch apart
    ) -> None:
        self._forward = forward or task.run
        self._output_check = OutputCheck(getattr(task, "outputs", None))
        self.device = next((each.device for each in network.parameters()), torch.device("cpu"))
        self.task, self.splits, self.seed, self.dtype = task, splits, seed, dtype
        named = network.named_parameters(remove_duplicate=False)
        self._names = {name for name, value in named if value.requires_grad}  # frozen ones are shared
        self._networks = [network.eval().requires_grad_(False)]
        self._statistics, self._batches = statistics if tracked(network) else None, batches
        self._loader = statistics if isinstance(statistics, (ResidentLoader, Stream)) else None
        self._start = None if self._loader is None else self._loader.state_dict()
        with suppress(ValueError):  # that it has no head which one could name
            self._head = registry.head_name(network)
        sizes = [] if self._loader is None or self._statistics is None else self._loader.sizes[:batches]
        self.expected_images = self.statistics_images = sum(sizes)  # of the statistics; 0 if that is not known yet

    @torch.no_grad()
    def prepare(self, weights: Sequence[Weights]) -> list[nn.Module]:
        """Return a network with each of these weights, and batch-norm statistics of its own."""
        while len(self._networks) < len(weights):
            self._networks.append(functional.copied(self._networks[0]))
        for network, each in zip(self._networks, weights, strict=False):
            self._write(network, each)
            if self._statistics is not None:
                self._restart()
                self._renew_statistics(network, self._statistics)
        return self._networks[: len(weights)]

    def keep(self, weights: Weights) -> nn.Module:
        """Return a network with these weights that stays as it is, whatever is prepared after it."""
        return functional.copied(self.prepare([weights])[0])

    def __call__(self, weights: Sequence[Weights]) -> dict[str, Iterable[Answers]]:
        """Return what the networks with these weights say, batch by batch, on each split."""
        networks = self.prepare(weights)
        return {split: (self.ask(networks, batch) for batch in _filled(self.splits[split])) for split in self.splits}

    def dropping(self, weights: Weights, passes: int, seed: int) -> dict[str, Iterable[Answers]]:
        """Return what a network says so many times, each time without other parts of it; members are the passes.

        p(y | x) = 1/n sum_i softmax(f(x; theta * mask_i)), with batch norm as at test time: MC-dropout (Gal and
        Ghahramani, 2016).
        """
        (network,) = self.prepare([weights])

        def answers(split: str) -> Iterator[Answers]:
            for number, batch in enumerate(_filled(self.splits[split])):
                yield self.ask_dropping(network, passes, batch, randomness.number(seed, "dropout", number))

        return {split: answers(split) for split in self.splits}

    def whole(self, weights: Weights) -> dict[str, Tensor]:
        """Return the logits of one network for each split as a whole."""
        answers = self([weights]).items()
        return {split: torch.cat([each.members[0].logs for each in batches]) for split, batches in answers}

    def ask_dropping(self, network: nn.Module, passes: int, batch: Any, seed: int, *, labelled: bool = True) -> Answers:
        """Return what a network says about a batch so many times, each time without other parts of it."""
        with dropping(network):
            return self.ask([network] * passes, batch, seed, labelled=labelled)

    @torch.no_grad()
    def ask(
        self, networks: Sequence[nn.Module], batch: Any, seed: int | None = None, *, labelled: bool = True
    ) -> Answers:
        """Return what networks say about a batch, with random numbers that start from a seed.

        The labels of a batch that is not `labelled` are not looked at: all of them are 0.
        """
        batch = nested.moved(batch, self.device)
        target = self.task.target(batch) if labelled else self._zeros(batch)
        with self._settings(seed):
            outputs = [self._run(network, batch) for network in networks]
        return self._answers(outputs, target)

    def _zeros(self, batch: Any) -> Tensor:
        size = nested.batch_size(self.task.inputs(batch)) or 0
        return torch.zeros(size, dtype=torch.int64, device=self.device)

    def _answers(self, outputs: Sequence[tuple[Any, Tensor | None]], target: Any) -> Answers:
        if outputs and not self._output_check.done:
            self.task.check_output(outputs[0][0], self._output_check)
        parts = [self.task.parts(output, target, features) for output, features in outputs]
        return Answers([part for part, _ in parts], parts[0][1])

    def _run(self, network: nn.Module, batch: Any) -> tuple[Any, Tensor | None]:
        """Return the output on a batch, and what enters the head."""
        with watch(network, self._head) as seen:
            output = self._forward(network, batch)
        features = seen[-1].flatten(1).float() if seen and seen[-1].ndim > 1 else None
        return output, features

    def _write(self, network: nn.Module, weights: Weights) -> None:
        if set(weights) != self._names:
            differing = sorted(set(weights) ^ self._names)
            raise ArgumentError(f"the weights are not those of the network: {differing[0]} is in one of them only")
        for name, parameter in network.named_parameters(remove_duplicate=False):
            if name in weights:
                parameter.copy_(weights[name])

    @contextmanager
    def _settings(self, seed: int | None = None) -> Iterator[None]:
        """Compute as in training, with random numbers (of dropout, of loaders) that are the same for every point."""
        low = torch.autocast(
            self.device.type, self.dtype or torch.bfloat16, enabled=self.dtype is not None, cache_enabled=False
        )
        with seeded(self.seed if seed is None else seed, self.device), low:
            yield

    def _restart(self) -> None:
        """Go back to the first training batch: the same ones for every point."""
        if self._loader is not None and self._start is not None:
            self._loader.load_state_dict(self._start)

    def _renew_statistics(self, network: nn.Module, statistics: Iterable[Any]) -> None:
        self.statistics_images = 0
        others = (part for part in network.modules() if not isinstance(part, _NormBase))
        kept = [(each, each.clone()) for part in others for each in part.buffers(recurse=False)]

        def run(module: Any, batch: Any) -> None:
            self.statistics_images += nested.batch_size(self.task.inputs(batch)) or 0
            self._forward(module, batch)

        with self._settings():  # far off a subspace all is infinite, and that is what is measured
            recalibrate(network, statistics, batches=self._batches, finite=False, forward=run)
        for buffer, value in kept:  # which a pass in train mode may change too
            buffer.copy_(value)


class GivenNetworks(Predictor):
    """Predicts with networks that are there already, whose numbers stand for weights.

    They stay as they are: where there are `statistics`, copies of those with batch norm get these.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        task: Task,
        splits: Mapping[str, Iterable[Any]],
        statistics: Iterable[Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(networks[0], task, splits, statistics, **options)
        self._networks = [network.eval() for network in networks]
        if any(self._head not in dict(network.named_modules()) for network in networks):
            self._head = None  # they differ
        if statistics is not None:
            self._networks = [self._renewed(network, statistics) for network in self._networks]

    @torch.no_grad()
    def _renewed(self, network: nn.Module, statistics: Iterable[Any]) -> nn.Module:
        if not tracked(network):
            return network
        renewed = functional.copied(network)
        self._renew_statistics(renewed, statistics)
        return renewed

    def prepare(self, weights: Sequence[Any]) -> list[nn.Module]:
        """Return the networks of these numbers."""
        return [self._networks[number] for number in weights]

    def _run(self, network: nn.Module, batch: Any) -> tuple[Any, Tensor | None]:
        try:
            return super()._run(network, batch)
        except RuntimeError as error:
            number = self._networks.index(network)
            if number == 0 or isinstance(error, torch.OutOfMemoryError):
                raise
            raise ArgumentError(
                f"network {number + 1} of {len(self._networks)}, a {type(network).__name__}, fails on a batch that the "
                f"first one takes ({error}): expected networks that take the same inputs"
            ) from error

    def keep(self, weights: Any) -> nn.Module:
        """Return the network of this number, which nothing changes."""
        return self.prepare([weights])[0]


class CapturedPredictor(Predictor):
    """Predicts from images on a CUDA device, with graphs of a training batch and of the pass over each split."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        (network,) = self._networks
        shared: dict[int, Any] = {id(value): value for value in network.parameters()}
        self._pupil = functional.copied(network, shared).train()  # the same weights, and the statistics of one batch
        for norm in tracked(self._pupil).values():
            norm.momentum = 1.0
        self._graph: tuple[torch.cuda.CUDAGraph, list[Tensor]] | None = None
        self._passes: dict[str, tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]] = {}

    @torch.no_grad()
    def __call__(self, weights: Sequence[Weights]) -> dict[str, Iterable[Answers]]:
        """Return the same as one batch for each split: the networks take turns in one, which the graphs know."""
        found: dict[str, list[tuple[Any, Tensor | None]]] = {split: [] for split in self.splits}
        targets: dict[str, Tensor] = {}
        for each in weights:
            self.prepare([each])
            with self._settings():
                for split in self.splits:
                    output, features, targets[split] = self._pass(split)
                    found[split].append((output, features))
        return {split: [self._answers(outputs, targets[split])] for split, outputs in found.items()}

    def _pass(self, split: str) -> tuple[Tensor, Tensor | None, Tensor]:
        if split not in self._passes:
            self._passes[split] = captured(lambda: self._joined(split), self.device)
        graph, (output, features, target) = self._passes[split]
        graph.replay()
        return output.clone(), None if features is None else features.clone(), target

    def _joined(self, split: str) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the outputs on all batches of a split."""
        found = [(*self._run(self._networks[0], (x, y)), y) for x, y in self.splits[split]]
        outputs, features, targets = zip(*found, strict=True)
        entered = None if features[0] is None else torch.cat(features)
        return torch.cat([ensemble.wide(output) for output in outputs]), entered, torch.cat(targets)

    def _renew_statistics(self, network: nn.Module, statistics: Any) -> None:
        loader: ResidentLoader = statistics
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


def _filled(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches that have examples."""
    return (batch for batch in batches if not nested.is_empty(batch))


def _running(network: nn.Module) -> list[Tensor]:
    """Return the means and variances of a network's batch norms."""
    pairs = ((norm.running_mean, norm.running_var) for norm in tracked(network).values())
    return [value for pair in pairs for value in pair if value is not None]
