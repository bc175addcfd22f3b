"""From a module and a point of it to what is exported, with what its file and its card say."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, functional, memory, nested
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.randomness import seeded
from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.display import Progress, counted
from subspaces.evaluation.tasks import Classification
from subspaces.export import ExportError
from subspaces.export.arguments import Chosen, Inputs
from subspaces.export.metadata import Metadata
from subspaces.export.program import Program, WholeFamily, anchors, answering, between
from subspaces.networks.factories import in_words


@dataclass
class Export:
    """A module, the points of it that are exported, and what `make` makes of them."""

    module: nn.Module  # a network, an ensemble or a family, which is left as it is
    chosen: Chosen
    inputs: Inputs | None  # an example; None for weights alone
    task: Classification | None  # None: outputs as they are
    given: bool  # whether the user has named the task: then one number for each example is that of two classes
    facts: dict[str, Any]  # fields of `Metadata`
    weights: bool = False  # whether weights alone are written
    statistics: Iterable[Any] | None = None  # training batches, for the batch-norm statistics of each point
    seed: int = 0  # of random numbers in a network while statistics are made
    measured: Mapping[str, Any] = field(default_factory=dict)  # head, rows and note of an evaluation of the points

    network: Any = None  # one network, an ensemble or a family, on the CPU, whose weights are written
    program: Any = None  # a `Program`; None for weights without an example
    trials: list[tuple[tuple[Tensor, ...], dict[str, Tensor]]] = field(default_factory=list)
    # what the program is checked with, inputs and outputs: the example, and another number of examples
    deviation: Mapping[str, Any] = field(default_factory=dict)  # of answers with mixed statistics from measured ones
    difference: float = 0.0  # of the file's answers from those of the program
    unread: str = ""  # what the file holds that `subspaces predict` does not read
    seen: int = 0  # examples of the statistics of a point

    def make(self, progress: Progress) -> None:
        """Make the network and its program, and run it on the example."""
        chosen = self.chosen
        if chosen.kind == "family":
            self._make_family(progress)
        elif chosen.alphas:
            networks = self._networks(chosen.alphas, "networks", progress)
            average: Any = "outputs" if self.task is None else self.task.averages[0]
            self._finish(networks[0] if chosen.kind == "network" else Ensemble(networks, average).eval())
        else:
            self._finish(self._calibrated(functional.copied(self.module)))

    def _networks(self, alphas: Sequence[Any], what: str, progress: Progress) -> list[nn.Module]:
        """Return the networks at points of the family."""
        family: Any = self.module
        batchnorm.check_given(family.template, self.statistics)
        tick, networks = counted(progress, what, 0, len(alphas)), []
        for alpha in alphas:
            networks.append(self._calibrated(family.at(alpha)))
            tick(1)
        return networks

    def _calibrated(self, network: nn.Module) -> nn.Module:
        """Return a network, which is changed, with batch-norm statistics made anew."""

        def run(module: Any, batch: Any) -> None:
            args, named = nested.inputs(batch)
            expected = "expected batches as the network gets them, such as images or (images, targets)"
            with _naming("statistics= has a batch that the network fails on", expected):
                module(*args, **named)
            self.seen += nested.batch_size((args, named)) or 0

        if self.statistics is not None and batchnorm.tracked(network):
            self.seen = 0
            with seeded(self.seed, torch.device("cpu")):
                batchnorm.recalibrate(network, self.statistics, forward=run)
        return _plain(network)

    def _make_family(self, progress: Progress) -> None:
        """Make a family whose batch-norm statistics are mixed from those at anchors, and say how far that is off."""
        family: Any = _plain(functional.copied(self.module))
        shape = family.shape
        normed = bool(batchnorm.tracked(family.template)) and not self.weights
        places, others = (anchors(shape), between(shape)) if normed else ([], [])
        networks = self._networks([*places, *others], "anchors", progress) if normed else []
        self.facts |= {"coordinates": math.prod(shape.point), "anchors": len(places)}
        self._finish(family, networks[: len(places)])
        if self.program is not None and others:
            self.deviation = self._deviation(others, [self._program(each) for each in networks[len(places) :]])

    @torch.no_grad()
    def _deviation(self, alphas: Sequence[Any], fresh: Sequence[Program]) -> dict[str, Any]:
        """Return how far the first output of a family is from those of freshly calibrated networks."""
        program, tensors = self.program, self.program.inputs.tensors
        mixed = torch.stack([_first(program.answer(*program.with_alpha(tensors, alpha))) for alpha in alphas])
        measured = torch.stack([_first(other.answer(*tensors)) for other in fresh])  # [points, n, ...]
        off = (mixed - measured).abs().float()
        return {"alphas": alphas, "largest": float(off.max()), "mean": float(off.mean())}

    def _finish(self, network: nn.Module, anchored: Sequence[nn.Module] = ()) -> None:
        """Run the program of a network, and describe it; of weights alone nothing need be known."""
        self.network = network
        self.facts |= {"point": self.chosen.words, "alphas": self.chosen.alphas, "statistics_images": self.seen}
        if self.inputs is not None:
            self.program = self._program(network, anchored)
            self.facts |= self._try(self.program)

    def _program(self, network: nn.Module, anchored: Sequence[nn.Module] = ()) -> Program:
        """Return a network, with its example, as a program, after a look at its outputs."""
        assert self.inputs is not None
        network, inputs = _in_one_precision(network, self.inputs)
        how: dict[str, Any] = {name: self.facts.get(name, ()) for name in ("mean", "std")}
        if isinstance(network, Subspace):
            how["shape"] = network.shape
            network = WholeFamily(network, [_in_one_precision(each, inputs)[0] for each in anchored])
        if self.task is None:
            return Program(network, inputs, None, **how).eval()
        several = isinstance(network, Ensemble)
        member = network.members[0] if isinstance(network, Ensemble) else network
        alone = Program(member, inputs, None, **how).eval()
        output = _run(alone.output, alone.with_alpha(inputs.tensors), inputs)
        ensemble = answering(self.task, network, output, self.given)
        return Program(ensemble, inputs, self.task, several=several, **how).eval()

    def _try(self, program: Program) -> dict[str, Any]:
        """Run the program on the example and on another number, and return what the metadata say of its outputs."""
        task, inputs, classes = program.task, program.inputs, self.facts["classes"]
        for tensors, what in ((inputs.tensors, inputs), (inputs.resized(), "another number of examples")):
            given = program.with_alpha(tensors)
            self.trials.append((given, _run(program.answer, given, what)))
        expected = self.trials[0][1]
        for name, value in expected.items():
            numbers = value.is_floating_point() or value.is_complex()
            if numbers and bool((value.isnan() if task is None else ~value.isfinite()).any()):
                raise ExportError(
                    f"the network's {name} are not finite: its weights or the example hold NaN or infinity"
                )
        if task is None:
            if classes:
                raise ArgumentError(f"classes={checks.shown(list(classes))}: expected it with a classification only")
            return {"task": "outputs", "network_outputs": ""}
        size = _first(expected).shape[1 if task.of == "pixels" else -1]
        classes = classes or tuple(map(str, range(size)))
        if len(classes) != size:
            raise ArgumentError(f"classes has {len(classes)} names: expected {size}, one for each output")
        outputs = "" if program.network.average == "sigmoid" else str(program.network.member_outputs)
        return {"classes": classes, "task": task.name, "network_outputs": outputs}

    @property
    def about(self) -> Metadata:
        """The metadata, with type and shape of what goes in and comes out, n for the number of examples."""
        if self.program is None:
            return Metadata(self.chosen.kind, **{"task": "", **self.facts})
        (inputs, outputs), (others, found) = self.trials
        takes = {name: _form(a, b) for name, a, b in zip(self.program.names, inputs, others, strict=True)}
        returns = {name: _form(a, found[name]) for name, a in outputs.items()}
        return Metadata(self.chosen.kind, **self.facts, takes=takes, returns=returns)


def _plain(network: nn.Module) -> nn.Module:
    """Return a network, which is changed, in eval mode, on the CPU, its numbers in the order of their dimensions."""
    found = network.cpu().eval().requires_grad_(False)
    return found.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


def _in_one_precision(network: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """Return a network and its example in float32, or in float64 if all numbers of both are."""
    kinds = {each.dtype for each in (*network.parameters(), *network.buffers()) if each.is_floating_point()}
    entering = {each.dtype for each in inputs.tensors if each.is_floating_point()}
    if kinds | entering <= {torch.float64}:
        return network, inputs
    network = network if kinds <= {torch.float32} else functional.copied(network).float()
    return network, inputs.floats(torch.float32)


def _form(tensor: Tensor, other: Tensor) -> str:
    """Return type and shape of a tensor, with n for each length that `other`, of another batch, does not share."""
    lengths = other.shape if other.ndim == tensor.ndim else tensor.shape
    sizes = ("n" if a != b else str(a) for a, b in zip(tensor.shape, lengths, strict=True))
    return f"{str(tensor.dtype).removeprefix('torch.')} [{', '.join(sizes)}]"


def _first(answer: Mapping[str, Tensor]) -> Tensor:
    return next(iter(answer.values()))


@torch.no_grad()
def _run(call: Callable[..., Any], tensors: Sequence[Tensor], what: object) -> Any:
    """Run a program's network, and name what it does not take."""
    bytes_ = "divide bytes by 255, " if len(tensors) == 1 and tensors[0].dtype == torch.uint8 else ""
    expected = f"{bytes_}pass an example of the shape and type that it takes, or fix it"
    with _naming(f"the network fails on {what}", expected):
        return call(*tensors)


@contextmanager
def _naming(what: str, expected: str) -> Iterator[None]:
    """Say what a network fails on; it need not be ours, and may raise anything."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if memory.ran_out(error):
            raise
        raise ExportError(f"{what} ({in_words(error)[:300]}): {expected}") from error
