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
from subspaces.evaluation.tasks import Classification, Regression
from subspaces.export import ExportError
from subspaces.export.arguments import HALF, Chosen, Inputs
from subspaces.export.metadata import Metadata
from subspaces.export.program import Program, WholeFamily, anchors, between, ensemble_for
from subspaces.networks.factories import in_words


@dataclass
class Export:
    """A module, the points of it that are exported, and what `make` makes of them."""

    module: nn.Module  # a network, an ensemble or a family, which is left as it is
    chosen: Chosen
    inputs: Inputs | None  # an example; None for weights alone
    task: Classification | Regression | None  # None: outputs as they are
    given: bool  # whether the user has named the task: then one number for each example is that of two classes
    facts: dict[str, Any]  # fields of `Metadata`
    weights: bool = False  # whether weights alone are written
    statistics: Iterable[Any] | None = None  # training batches, for the batch-norm statistics of each point
    batches: int | None = None  # how many of them are used; by default all
    seed: int = 0  # of random numbers in a network while statistics are made
    measured: Mapping[str, Any] = field(default_factory=dict)  # head, rows and note of an evaluation of the points

    network: Any = None  # one network, an ensemble or a family, on the CPU, whose weights are written
    program: Any = None  # a `Program`; None for weights alone of which nothing else is known
    trials: list[tuple[tuple[Tensor, ...], dict[str, Tensor]]] = field(default_factory=list)
    # what the program is checked with, inputs and outputs: several examples and, unless `fixed`, one
    fixed: str = ""  # why the number of examples is that of the example; empty where any number will do
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
        assert isinstance(self.module, Subspace)
        tick, networks = counted(progress, what, 0, len(alphas)), []
        for alpha in alphas:
            batchnorm.check_given(self.module.template, self.statistics)
            networks.append(self._calibrated(self.module.at(alpha)))
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
                batchnorm.recalibrate(network, self.statistics, batches=self.batches, forward=run)
        return _plain(network)

    def _make_family(self, progress: Progress) -> None:
        """Make a family whose batch-norm statistics are mixed from those at anchors, and say how far that is off."""
        family: Any = _plain(functional.copied(self.module))
        shape = family.shape
        normed = self.inputs is not None and bool(batchnorm.tracked(family.template)) and not self.weights
        places, others = (anchors(shape), between(shape)) if normed else ([], [])
        networks = self._networks([*places, *others], "anchors", progress)
        domain = str(math.prod(shape.point)) if shape.point else "number"
        self._finish(family, networks[: len(places)], domain=domain, anchors=len(places))
        if self.program is not None and others:
            self.deviation = self._deviation(others, [self._program(each) for each in networks[len(places) :]])

    @torch.no_grad()
    def _deviation(self, alphas: Sequence[Any], fresh: Sequence[Program]) -> dict[str, Any]:
        """Return how far the first output of a family is from those of freshly calibrated networks."""
        program = self.program
        inputs = [program.tensors(program.inputs, alpha) for alpha in alphas]
        mixed = torch.stack([_first(program.answer(*each)) for each in inputs])  # [points, n, ...]
        measured = torch.stack([_first(other.answer(*each[:-1])) for each, other in zip(inputs, fresh, strict=True)])
        off, labels = (mixed - measured).abs().float(), None
        if isinstance(program.task, Classification):
            dim = 2 if program.task.of == "pixels" else -1
            labels = 100 * float((mixed.argmax(dim) != measured.argmax(dim)).float().mean())
        return {"alphas": alphas, "largest": float(off.max()), "mean": float(off.mean()), "labels": labels}

    def _finish(self, network: nn.Module, anchored: Sequence[nn.Module] = (), **more: Any) -> None:
        """Run the program of a network, and describe it; of weights alone nothing need be known."""
        average = str(network.average) if isinstance(network, Ensemble) else ""
        self.network = network
        self.facts |= {"point": self.chosen.words, "alphas": self.chosen.alphas, "average": average}
        self.facts |= {"statistics_images": self.seen, **more}
        if self.inputs is None:
            return
        try:
            program = self._program(network, anchored)
            self.facts |= self._try(program)
            self.program = program
        except ArgumentError:
            if not self.weights or self.given:
                raise

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
        ensemble = ensemble_for(self.task, network, _run(alone, alone.output, alone.tensors(inputs)), self.given)
        return Program(ensemble, inputs, self.task, several=several, **how).eval()

    def _try(self, program: Program) -> dict[str, Any]:
        """Run the program on several examples and on one, and return what the metadata say of its outputs."""
        task, first, classes, outputs = program.task, program.tensors(program.inputs), self.facts["classes"], ""
        expected = _run(program, program.answer, first)
        for name, value in expected.items():
            numbers = value.is_floating_point() or value.is_complex()
            if numbers and bool((value.isnan() if task is None else ~value.isfinite()).any()):
                raise ExportError(
                    f"the network's {name} are not finite: its weights or the example hold NaN or infinity"
                )
        self.trials = [(first, expected)]
        try:
            other = program.tensors(program.inputs.resized())
            self.trials.append((other, _run(program, program.answer, other)))
        except ArgumentError as error:
            self.fixed = (
                f"the network does not take another number of them ({in_words(error.__cause__ or error)[:200]})"
            )
        if isinstance(task, Classification):
            size = _first(expected).shape[1 if task.of == "pixels" else -1]
            classes = classes or tuple(map(str, range(size)))
            if len(classes) != size:
                raise ArgumentError(
                    f"classes has {len(classes)} names: expected {size}, one for each output of the network"
                )
            outputs = "" if program.network.average == "sigmoid" else str(program.network.member_outputs)
        elif classes:
            raise ArgumentError(f"classes={checks.shown(list(classes))}: expected it with a classification only")
        return {"classes": classes, "task": "outputs" if task is None else task.name, "network_outputs": outputs}

    @property
    def about(self) -> Metadata:
        """The metadata, with type and shape of what goes in and comes out, n for the number of examples."""
        if self.program is None:
            return Metadata(self.chosen.kind, **{"task": "", **self.facts})
        (inputs, outputs), (others, found) = self.trials[0], self.trials[-1]
        takes = {name: _form(a, b) for name, a, b in zip(self.program.names, inputs, others, strict=True)}
        returns = {name: _form(a, found.get(name)) for name, a in outputs.items()}
        return Metadata(self.chosen.kind, **self.facts, takes=takes, returns=returns)


def _plain(network: nn.Module) -> nn.Module:
    """Return a network, which is changed, in eval mode, on the CPU, its numbers in the order of their dimensions."""
    found = network.cpu().eval().requires_grad_(False)
    return found.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


def _in_one_precision(network: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """Return a network and its example in one precision, of float32 at least.

    A network of half precision computes in float32, and so does one of float64 with an example in float32.
    """
    kinds = {each.dtype for each in (*network.parameters(), *network.buffers()) if each.is_floating_point()}
    entering = {each.dtype for each in inputs.tensors if each.is_floating_point()}
    if not kinds.isdisjoint(HALF) or (torch.float64 in kinds and entering == {torch.float32}):
        return functional.copied(network).float(), inputs.floats(torch.float32)
    return network, inputs if torch.float64 in kinds or not kinds else inputs.floats(torch.float32)


def _form(tensor: Tensor, other: Tensor | None) -> str:
    """Return type and shape of a tensor, with n for each length that `other`, of another batch, does not share."""
    lengths = tensor.shape if other is None or other.ndim != tensor.ndim else other.shape
    sizes = ("n" if a != b else str(a) for a, b in zip(tensor.shape, lengths, strict=True))
    return f"{str(tensor.dtype).removeprefix('torch.')} [{', '.join(sizes)}]"


def _first(answer: Mapping[str, Tensor]) -> Tensor:
    return next(iter(answer.values()))


@torch.no_grad()
def _run(program: Program, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Run a program's network, and name the shapes of the example if it does not take them."""
    bytes_ = "divide bytes by 255, " if len(tensors) == 1 and tensors[0].dtype == torch.uint8 else ""
    expected = f"{bytes_}pass an example of the shape and type that it takes, or fix it"
    with _naming(f"the network fails on {program.inputs}", expected):
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
