"""From a network or a family and a point of it to what is exported, with what its file and its card say."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, functional, memory, nested
from subspaces.core.batchnorm import recalibrate
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.randomness import seeded
from subspaces.core.selection.selection import shown
from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.display import counted
from subspaces.evaluation.images import Progress
from subspaces.evaluation.tasks import Classification, Regression
from subspaces.export import ExportError
from subspaces.export.inputs import HALF, Inputs, form
from subspaces.export.metadata import Metadata
from subspaces.export.points import Chosen
from subspaces.export.program import Program, WholeFamily, anchors, between, ensemble_for
from subspaces.networks.factories import in_words


class Measured(NamedTuple):
    """The rows of an evaluation that are about an export's points, for the card."""

    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    note: str = ""


@dataclass
class Source:
    """A network, an ensemble or a family, which is left as it is, with all that is known of it."""

    module: nn.Module
    inputs: Inputs | None  # an example; None for weights alone
    task: Classification | Regression | None  # None: outputs as they are
    given: bool  # whether the user has named the task: then one number for each example is that of two classes
    facts: dict[str, Any]  # fields of `Metadata`
    weights: bool = False  # whether weights alone are written
    statistics: Iterable[Any] | None = None  # training batches, for the batch-norm statistics of each point
    batches: int | None = None  # how many of them are used; by default all
    seed: int = 0  # of random numbers in a network while statistics are made
    measured: Callable[[Chosen], Measured] = lambda _: Measured()  # the rows of an evaluation about some points
    seen: int = 0  # examples of the statistics of a point

    def at(self, alpha: Any) -> Any:
        """Return the network at a point of the family."""
        assert isinstance(self.module, Subspace)
        batchnorm.check_given(self.module.template, self.statistics)
        return self.calibrated(self.module.at(alpha))

    def calibrated(self, network: nn.Module) -> Any:
        """Return a network, which is changed, with batch-norm statistics made anew."""
        if self.statistics is not None and batchnorm.tracked(network):
            self.seen = 0
            with seeded(self.seed, torch.device("cpu")):
                recalibrate(network, self.statistics, batches=self.batches, forward=self._run)
        return plain(network)

    def _run(self, module: Any, batch: Any) -> None:
        args, named = nested.inputs(batch)
        try:
            module(*args, **named)
        except Exception as error:  # of the network, which need not be ours
            if memory.ran_out(error):
                raise
            raise ArgumentError(
                f"statistics= has a batch that the network fails on ({in_words(error)[:300]}): expected batches as the "
                "network gets them, such as images or (images, targets)"
            ) from error
        self.seen += nested.batch_size((args, named)) or 0


def plain(network: nn.Module) -> Any:
    """Return a network, which is changed, in eval mode, on the CPU, its numbers in the order of their dimensions."""
    found = network.cpu().eval().requires_grad_(False)
    return found.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


@dataclass
class Made:
    """What is exported, on the CPU, ready to be written."""

    network: nn.Module  # one network, an ensemble or a family, whose weights they are
    about: Metadata
    measured: Measured
    notes: Sequence[str]
    program: Program | None = None  # None for weights alone of which nothing else is known
    trials: list[tuple[tuple[Tensor, ...], dict[str, Tensor]]] = field(default_factory=list)
    # what the program is checked with, inputs and outputs: several examples and, unless `fixed`, one
    fixed: str = ""  # why the number of examples is that of the example; empty where any number will do
    deviation: str = ""  # how far mixed batch-norm statistics are from measured ones

    @property
    def example(self) -> str:
        """The number of examples, in words."""
        count = self.program.inputs.count if self.program else 0
        return f"{count} {'image' if self.about.image_shape else 'example'}{'s' if count != 1 else ''}"

    def describe(self, **more: Any) -> None:
        """Note type and shape of what goes in and comes out, by name, with n for the number of examples."""
        (inputs, outputs), (others, found) = self.trials[0], self.trials[-1]
        names = self.program.names if self.program else ()
        takes = {name: form(a, b) for name, a, b in zip(names, inputs, others, strict=True)}
        returns = {name: form(a, found.get(name)) for name, a in outputs.items()}
        self.about = replace(self.about, takes=takes, returns=returns, **more)

    def fix(self, why: str) -> None:
        """Take as many examples as there are in the example, and no other number."""
        self.fixed, self.trials = why, self.trials[:1]
        self.describe()


def make(source: Source, chosen: Chosen, progress: Progress) -> Made:
    """Return what is exported of a module as it is, of a point, of several, or of the whole family."""
    if chosen.kind == "family":
        return _whole(source, chosen, progress)
    if not chosen.alphas:
        return _made(source.calibrated(functional.copied(source.module)), source, chosen)
    tick = counted(progress, "networks", 0, len(chosen.alphas))
    networks = []
    for alpha in chosen.alphas:
        networks.append(source.at(alpha))
        tick(1)
    average: Any = "outputs" if source.task is None else source.task.averages[0]
    return _made(networks[0] if chosen.kind == "network" else Ensemble(networks, average).eval(), source, chosen)


def _whole(source: Source, chosen: Chosen, progress: Progress) -> Made:
    """Return a family whose batch-norm statistics are mixed from those at anchors, and how far that is off."""
    family: Subspace = plain(functional.copied(source.module))
    shape = family.shape
    normed = source.inputs is not None and bool(batchnorm.tracked(family.template)) and not source.weights
    places, others = (anchors(shape), between(shape)) if normed else ([], [])
    tick = counted(progress, "anchors", 0, len(places) + len(others))
    networks = []
    for alpha in (*places, *others):
        networks.append(source.at(alpha))
        tick(1)
    domain = str(math.prod(shape.point)) if shape.point else "number"
    made = _made(family, source, chosen, networks[: len(places)], domain=domain, anchors=len(places))
    if made.program is not None and others:
        fresh = [_program(each, source) for each in networks[len(places) :]]
        made.deviation = _deviation(made, made.program, others, fresh)
    return made


@torch.no_grad()
def _deviation(made: Made, program: Program, alphas: Sequence[Any], fresh: Sequence[Program]) -> str:
    """Return how far the first output of a family is from those of freshly calibrated networks, in words."""
    inputs = [program.tensors(program.inputs, alpha) for alpha in alphas]
    mixed = torch.stack([_first(program.answer(*each)) for each in inputs])  # [points, n, ...]
    measured = torch.stack([_first(other.answer(*each[:-1])) for each, other in zip(inputs, fresh, strict=True)])
    off, labels = (mixed - measured).abs().float(), ""
    if isinstance(program.task, Classification):
        dim = 2 if program.task.of == "pixels" else -1
        labels = f"; {100 * (mixed.argmax(dim) != measured.argmax(dim)).float().mean():.2g} % of the labels are others"
    return (
        f"Batch-norm statistics were measured at {made.about.anchors} points and are mixed between them; at those "
        f"points they are exact. At {' and '.join(map(shown, alphas))}, between them, the "
        f"{'probabilities' if made.about.classes else 'outputs'} of {made.example} differ from those of freshly "
        f"calibrated networks by at most {off.max():.2g} and by {off.mean():.2g} on average{labels}."
    )


def _first(answer: Mapping[str, Tensor]) -> Tensor:
    return next(iter(answer.values()))


def _made(network: nn.Module, source: Source, chosen: Chosen, anchored: Sequence[nn.Module] = (), **more: Any) -> Made:
    """Run the program of a network, and describe it; of weights alone nothing need be known."""
    average = str(network.average) if isinstance(network, Ensemble) else ""
    more |= {"point": chosen.words, "alphas": chosen.alphas, "average": average, "statistics_images": source.seen}
    about = Metadata(chosen.kind, **{"task": "", **source.facts, **more})
    made = Made(network, about, source.measured(chosen), chosen.notes)
    if source.inputs is not None:
        try:
            made.program = _program(network, source, anchored)
            _try(made, made.program)
        except ArgumentError:
            if not source.weights or source.given:
                raise
            made.program, made.about = None, about
    return made


def _program(network: nn.Module, source: Source, anchored: Sequence[nn.Module] = ()) -> Program:
    """Return a network, with its example, as a program, after a look at its outputs."""
    assert source.inputs is not None
    network, inputs = _in_one_precision(network, source.inputs)
    family = network if isinstance(network, Subspace) else None
    if family is not None:
        network = WholeFamily(family, [_in_one_precision(each, inputs)[0] for each in anchored])
    how: dict[str, Any] = {name: source.facts.get(name, ()) for name in ("mean", "std")} | {"family": family}
    if source.task is None:
        return Program(network, inputs, None, **how).eval()
    several = isinstance(network, Ensemble)
    member: Any = network.members[0] if isinstance(network, Ensemble) else network
    alone = Program(member, inputs, None, **how).eval()
    ensemble = ensemble_for(source.task, network, _run(alone, alone.output, alone.tensors(inputs)), source.given)
    return Program(ensemble, inputs, source.task, several=several, **how).eval()


def _in_one_precision(network: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """Return a network and its example in one precision, of float32 at least.

    A network of half precision computes in float32, and so does one of float64 with an example in float32.
    """
    kinds = {each.dtype for each in (*network.parameters(), *network.buffers()) if each.is_floating_point()}
    entering = {each.dtype for each in inputs.tensors if each.is_floating_point()}
    if not kinds.isdisjoint(HALF) or (torch.float64 in kinds and entering == {torch.float32}):
        return functional.copied(network).float(), inputs.floats(torch.float32)
    return network, inputs if torch.float64 in kinds or not kinds else inputs.floats(torch.float32)


def _try(made: Made, program: Program) -> None:
    """Run the program on several examples and on one, and describe what goes in and comes out."""
    task, first, classes, outputs = program.task, program.tensors(program.inputs), made.about.classes, ""
    expected = _run(program, program.answer, first)
    for name, value in expected.items():
        numbers = value.is_floating_point() or value.is_complex()
        if numbers and bool((value.isnan() if task is None else ~value.isfinite()).any()):
            raise ExportError(f"the network's {name} are not finite: its weights or the example hold NaN or infinity")
    made.trials = [(first, expected)]
    try:
        other = program.tensors(program.inputs.resized())
        made.trials.append((other, _run(program, program.answer, other)))
    except ArgumentError as error:
        made.fixed = f"the network does not take another number of them ({in_words(error.__cause__ or error)[:200]})"
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
    made.describe(classes=classes, task="outputs" if task is None else task.name, network_outputs=outputs)


@torch.no_grad()
def _run(program: Program, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Run a program's network, and name the shapes of the example if it does not take them."""
    try:
        return call(*tensors)
    except UserError:
        raise
    except Exception as error:  # of the network, which need not be ours
        if memory.ran_out(error):
            raise
        bytes_ = "divide bytes by 255, " if len(tensors) == 1 and tensors[0].dtype == torch.uint8 else ""
        raise ExportError(
            f"the network fails on {program.inputs.described()} ({in_words(error)[:300]}): {bytes_}pass an example of "
            "the shape and type that it takes, or fix it"
        ) from error
