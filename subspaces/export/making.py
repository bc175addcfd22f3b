"""From a source and a point to what is exported, with what its file and its card say."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import checks, devices, functional
from subspaces.core.batchnorm import tracked
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.display import counted
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.record import Description, Row
from subspaces.evaluation.tasks import Classification
from subspaces.experiments.data.dataset import Progress
from subspaces.export import anchors
from subspaces.export.answers import Answer
from subspaces.export.choosing import Chosen
from subspaces.export.errors import ExportError
from subspaces.export.inputs import HALF, Inputs, shown
from subspaces.export.metadata import Metadata
from subspaces.export.programs import Program, WholeFamily, statistics_of
from subspaces.export.sources import OwnSource, Source, plain
from subspaces.networks.factories import in_words


@dataclass(frozen=True)
class Deviation:
    """How far mixed batch-norm statistics are from measured ones, in the first output, at points between anchors."""

    places: tuple[Place, ...]
    images: int
    largest: float
    mean: float
    changed: float | None  # the share of images with another label


@dataclass(frozen=True)
class Trial:
    """What a program takes and returns for some examples."""

    inputs: tuple[Tensor, ...]
    expected: dict[str, Tensor]


@dataclass(frozen=True)
class Made:
    """What is exported, on the CPU, ready to be written.

    Args:
        network: one network, an ensemble or a family, whose weights they are.
        about: what the file says of it.
        program: None for weights alone without an example.
        trials: what the program is checked with: several examples and, unless `fixed`, one.
        fixed: why the number of examples is that of the example; empty where any number will do.
    """

    network: nn.Module
    about: Metadata
    program: Program | None = None
    trials: tuple[Trial, ...] = ()
    fixed: str = ""
    rows: Sequence[Row] = ()
    metrics: Sequence[Description] = ()
    deviation: Deviation | None = None
    notes: Sequence[str] = ()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the network under its own names; those of members after `members.0.` and so on."""
        return dict(self.network.state_dict())

    def with_fixed_batch(self, why: str) -> "Made":
        """Return the same for as many examples as there are in the example."""
        described: dict[str, Any] = _described(self.trials[:1], tuple(self.about.takes))
        about = replace(self.about, **described)
        return replace(self, fixed=why, trials=self.trials[:1], about=about)


def make(source: Source, chosen: Chosen, progress: Progress) -> Made:
    """Return what is exported of a point, of several or of the whole family."""
    if chosen.kind == "family":
        return _whole(source, chosen, progress)
    tick = counted(progress, "networks", 0, len(chosen.places))
    networks = []
    for place in chosen.places:
        networks.append(source.network(place))
        tick(1)
    if chosen.kind == "network":
        return _finished(networks[0], source, chosen)
    averages = {"regression": "mixture", "outputs": "outputs"}
    chosen = replace(chosen, average=averages.get(source.answer.name, chosen.average))
    average: Any = chosen.average
    return _finished(Ensemble(networks, average), source, chosen)


def make_own(source: OwnSource) -> Made:
    """Return what is exported of a network or an ensemble as it is."""
    if isinstance(source.module, Ensemble):
        words, average = f"{len(source.module.members)} networks", str(source.module.average)
        return _finished(plain(source.module), source, Chosen("ensemble", words, (), "", average))
    return _finished(plain(source.module), source, Chosen("network", "the network as it was", (), ""))


def _finished(network: nn.Module, source: Source, chosen: Chosen) -> Made:
    if source.inputs is None:
        return _made(network, None, source, chosen)
    found, inputs = _in_one_precision(network, source.inputs)
    answer, networks = source.answer, [found]
    if isinstance(found, Ensemble):
        try:
            answer = answer.of(found)
        except ArgumentError:
            if source.answer.said or not source.weights:
                raise
            return _made(network, None, source, chosen)
        if answer.task is not None:
            networks = [_Selected(member, found.select) for member in found.members]
    return _made(network, Program(networks, inputs, answer, *source.normalisation), source, chosen)


class _Selected(nn.Module):
    """A member of an ensemble, of whose output a part is taken."""

    def __init__(self, network: nn.Module, select: Any) -> None:
        super().__init__()
        self.network, self.select = network, select

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self.network(*args, **kwargs)
        return output if self.select is None else self.select(output)


def _whole(source: Source, chosen: Chosen, progress: Progress) -> Made:
    """Return a family whose batch-norm statistics are mixed from those at anchors, and how far that is off."""
    family = source.family
    if source.inputs is None:
        return _made(family, None, source, chosen)
    normed = bool(tracked(family.template)) and not source.weights
    places = anchors.anchors(family.shape) if normed else []
    between = anchors.between(family.shape) if normed else []
    tick = counted(progress, "anchors", 0, len(places) + len(between))

    def network(place: Place) -> nn.Module:
        found, _ = _in_one_precision(source.network(place), inputs)
        tick(1)
        return found

    found, inputs = _in_one_precision(family, source.inputs)
    assert isinstance(found, Subspace)
    whole = WholeFamily(found, statistics_of([network(place) for place in places]))
    program = Program([whole], inputs, source.answer, *source.normalisation)
    made = _made(family, program, source, chosen)
    made = replace(made, about=replace(made.about, anchors=len(places)))
    pairs = []
    for place in between:
        fresh = Program([network(place)], inputs, source.answer, *source.normalisation).eval()
        alpha = torch.tensor(to_alpha(place), dtype=made.trials[0].inputs[-1].dtype)
        with torch.no_grad():
            said = program.answered(*inputs.tensors, alpha), fresh.answered(*inputs.tensors)
        pairs.append(torch.stack([next(iter(each.values())) for each in said]))
    return replace(made, deviation=_deviation(between, pairs, source.answer)) if pairs else made


def _deviation(places: Sequence[Place], pairs: Sequence[Tensor], answer: Answer) -> Deviation:
    stacked = torch.stack(list(pairs), dim=1)
    mixed, fresh = stacked if stacked.is_floating_point() else stacked.float()  # [points, n, ...] each
    apart, changed = (mixed - fresh).abs(), None
    if isinstance(answer.task, Classification):
        dim = answer.dim if answer.dim < 0 else answer.dim + 1
        changed = float((mixed.argmax(dim) != fresh.argmax(dim)).float().mean())
    return Deviation(tuple(places), fresh.shape[1], float(apart.max()), float(apart.float().mean()), changed)


def _in_one_precision(network: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """Return a network and its example in one precision, of float32 at least; what fits stays as it is.

    A network of half precision computes in float32, and so does one of float64 with an example in float32.
    """
    kinds = {each.dtype for each in (*network.parameters(), *network.buffers()) if each.is_floating_point()}
    entering = {each.dtype for each in inputs.tensors if each.is_floating_point()}
    if not kinds.isdisjoint(HALF) or (torch.float64 in kinds and entering == {torch.float32}):
        return functional.copied(network).float(), _single(inputs)
    return network, inputs if torch.float64 in kinds or not kinds else _single(inputs)


def _single(inputs: Inputs) -> Inputs:
    return inputs.holding([each.float() if each.dtype == torch.float64 else each for each in inputs.tensors])


def _made(network: nn.Module, program: Program | None, source: Source, chosen: Chosen) -> Made:
    """Run the program, and describe it."""
    about, domain = source.about, ""
    trials: tuple[Trial, ...] = ()
    fixed = ""
    if program is not None:
        first = _inputs(program.eval(), program.inputs)
        outputs = _run(program, first)
        try:
            trials = (Trial(first, _checked(program, outputs)),)
        except ArgumentError:
            if not source.weights or program.answer.said:
                raise
            program = None  # of weights alone nothing need be known
    about["task"] = "" if program is None else program.answer.name
    if program is not None:
        about["classes"] = _classes(about["classes"], program.answer, trials[0].expected)
        try:
            trials += (_another(program),)
        except ArgumentError as error:
            fixed = f"the network does not take another number of them ({in_words(error.__cause__ or error)[:200]})"
        about |= _described(trials, program.names)
        about["network_outputs"] = program.answer.taken_for(outputs)
    rows, metrics = source.measured()
    if chosen.kind == "family":
        point = source.family.shape.point
        domain = str(math.prod(point)) if point else "number"
    alphas = tuple(to_alpha(place) for place in chosen.places)
    metadata = Metadata(chosen.kind, point=chosen.words, alphas=alphas, average=chosen.average, domain=domain, **about)
    return Made(network, metadata, program, trials, fixed, _of(rows, chosen), metrics, notes=chosen.notes)


def _another(program: Program) -> Trial:
    """Return what the program does with one example, or with two where it is one.

    Where the batch lies in states of several layers is not certain: it is where the network takes another number.
    """
    try:
        return _answered(program, _inputs(program, program.inputs.resized()))
    except ArgumentError:
        others = replace(program.inputs, second=True)
        if others.batched == program.inputs.batched:
            raise
    trial = _answered(program, _inputs(program, others.resized()))
    program.inputs = others
    return trial


def _answered(program: Program, tensors: tuple[Tensor, ...]) -> Trial:
    return Trial(tensors, program.named(_run(program, tensors)))


def _inputs(program: Program, inputs: Inputs) -> tuple[Tensor, ...]:
    """Return what a program takes; a family alpha too."""
    if not isinstance(whole := program.networks[0], WholeFamily):
        return tuple(inputs.tensors)
    double = any(each.dtype == torch.float64 for each in whole.family.omega.values())
    return *inputs.tensors, whole.family.shape.midpoint().to(torch.float64 if double else torch.float32)


@torch.no_grad()
def _run(program: Program, tensors: Sequence[Tensor]) -> list[Any]:
    """Run the networks on some examples, and name the shapes of these if they do not take them."""
    try:
        return program.outputs(*tensors)
    except UserError:
        raise
    except Exception as error:  # of the network, which need not be ours
        if devices.ran_out(error):
            raise
        lone = program.inputs.tensors[0] if program.inputs.is_images or len(program.names) == 1 else None
        bytes_ = "divide bytes by 255, " if lone is not None and lone.dtype == torch.uint8 else ""
        raise ExportError(
            f"the network fails on {program.inputs.described()} ({in_words(error)[:300]}): {bytes_}pass an example of "
            "the shape and type that it takes, or fix it"
        ) from error


def _checked(program: Program, outputs: Sequence[Any]) -> dict[str, Tensor]:
    """Return the answer, whose outputs are what they are taken for and hold no NaN."""
    answer = program.answer
    answer.check(outputs)
    found = program.named(outputs)
    for name, value in found.items():
        numbers = value.is_floating_point() or value.is_complex()
        if numbers and bool((value.isnan() if answer.task is None else ~value.isfinite()).any()):
            raise ExportError(f"the network's {name} are not finite: its weights or the example hold NaN or infinity")
    return found


def _classes(given: tuple[str, ...], answer: Answer, expected: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the names of the classes, by default numbers."""
    if not isinstance(answer.task, Classification):
        if given:
            raise ArgumentError(f"classes={checks.shown(list(given))}: expected it with a classification only")
        return ()
    size = next(iter(expected.values())).shape[answer.dim]
    if len(given or range(size)) != size:
        raise ArgumentError(f"classes has {len(given)} names: expected {size}, one for each output of the network")
    return given or tuple(map(str, range(size)))


def _described(trials: Sequence[Trial], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return type and shape of what goes in and comes out, by name."""
    first, last = trials[0], trials[-1] if len(trials) > 1 else None
    takes = {
        name: shown(each, None if last is None else last.inputs[index])
        for index, (name, each) in enumerate(zip(names, first.inputs, strict=True))
    }
    others = {} if last is None else last.expected
    return {"takes": takes, "returns": {name: shown(each, others.get(name)) for name, each in first.expected.items()}}


def _of(rows: Sequence[Row], chosen: Chosen) -> list[Row]:
    """Return the rows that are about these points."""
    alphas = [to_alpha(place) for place in chosen.places]
    if chosen.kind == "family":
        return [row for row in rows if row.kind == "point"]
    average = chosen.average or None
    same = (row for row in rows if sorted(map(str, row.alphas)) == sorted(map(str, alphas)))
    return list({row.split: row for row in same if row.average == average and _plain(row)}.values())


def _plain(row: Row) -> bool:
    """Say whether a row is of networks without dropout."""
    return row.role != "dropout" and row.networks == len(row.alphas)
