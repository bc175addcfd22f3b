"""From a source and a point to the program that is exported, with what its file and its card say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from subspaces import memory
from subspaces.data.dataset import Progress
from subspaces.ensembles import Ensemble
from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.display import counted
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.record import Description, Row
from subspaces.networks.factories import in_words
from subspaces.norms import tracked
from subspaces.production import anchors
from subspaces.production.choosing import Chosen
from subspaces.production.errors import ExportError
from subspaces.production.metadata import Metadata
from subspaces.production.programs import OneNetwork, Program, Several, WholeFamily, statistics_of
from subspaces.production.sources import OwnSource, Source, plain
from subspaces.subspace import Subspace


@dataclass(frozen=True)
class Deviation:
    """How far mixed batch-norm statistics are from measured ones, in probabilities, at points between the anchors."""

    places: tuple[Place, ...]
    images: int
    largest: float
    mean: float
    changed: float  # the share of images with another label


@dataclass(frozen=True)
class Made:
    """A program on the CPU, ready to be written."""

    program: Program
    about: Metadata
    example: tuple[Tensor, ...]
    expected: tuple[Tensor, ...]
    rows: Sequence[Row] = ()
    metrics: Sequence[Description] = ()
    deviation: Deviation | None = None
    notes: Sequence[str] = ()

    @property
    def family(self) -> Subspace | None:
        """The family, if it is one that is exported."""
        return self.program.family if isinstance(self.program, WholeFamily) else None

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the network under its own names; those of members after `members.0.` and so on."""
        if isinstance(self.program, OneNetwork):
            return dict(self.program.network.state_dict())
        assert isinstance(self.program, Several)
        return {f"members.{name}": value for name, value in self.program.members.state_dict().items()}


def make(source: Source, chosen: Chosen, progress: Progress) -> Made:
    """Return the program of a point, of several or of the whole family."""
    images = source.images
    if chosen.kind == "family":
        return _whole(source, chosen, progress)
    tick = counted(progress, "networks", 0, len(chosen.places))
    networks = []
    for place in chosen.places:
        networks.append(source.network(place))
        tick(1)
    together: nn.Module = networks[0]
    if chosen.kind == "ensemble":
        together = Ensemble(networks, "logits" if chosen.average == "logits" else "probabilities")
    return _finished(together, source, chosen, images)


def make_own(source: OwnSource) -> Made:
    """Return the program of a network or an ensemble as it is."""
    ensemble = isinstance(source.module, Ensemble)
    average = str(source.module.average) if ensemble else ""
    words = f"{len(source.module.members)} networks" if isinstance(source.module, Ensemble) else "the network as it was"
    chosen = Chosen("ensemble" if ensemble else "network", words, (), "", average)
    return _finished(plain(source.module), source, chosen, source.images)


def _finished(network: nn.Module, source: Source, chosen: Chosen, images: Tensor) -> Made:
    about = source.about
    how = (about["mean"], about["std"], images.ndim)
    program = Several(network, *how) if isinstance(network, Ensemble) else OneNetwork(network, *how)
    return _made(program, source, chosen, (images,))


def _whole(source: Source, chosen: Chosen, progress: Progress) -> Made:
    """Return a family whose batch-norm statistics are mixed from those at anchors, and how far that is off."""
    family, about, images = source.family, source.about, source.images
    normed = bool(tracked(family.template))
    places = anchors.anchors(family.shape) if normed else []
    between = anchors.between(family.shape) if normed else []
    tick = counted(progress, "anchors", 0, len(places) + len(between))
    networks = []
    for place in places:
        networks.append(source.network(place))
        tick(1)
    how = (about["mean"], about["std"], images.ndim)
    program = WholeFamily(family, statistics_of(networks), *how).eval()
    middle = family.shape.midpoint().float()
    made = _made(program, source, chosen, (images, middle))
    made = replace(made, about=replace(made.about, anchors=len(places)))
    found: list[Tensor] = []
    for place in between:
        alone = OneNetwork(source.network(place), *how).eval()
        with torch.no_grad():
            found.append(torch.stack([program(images, torch.tensor(to_alpha(place))), alone(images)]))
        tick(1)
    if not found:
        return made
    mixed, fresh = torch.stack(found, dim=1)  # [points, n, classes] each
    apart, changed = (mixed - fresh).abs(), (mixed.argmax(-1) != fresh.argmax(-1)).float()
    off = Deviation(tuple(between), len(images), float(apart.max()), float(apart.mean()), float(changed.mean()))
    return replace(made, deviation=off)


def _made(program: Program, source: Source, chosen: Chosen, example: tuple[Tensor, ...]) -> Made:
    """Run the program once, and describe it."""
    about, program = source.about, program.eval()
    said = _run(program, example)
    expected = said if isinstance(said, tuple) else (said,)
    size = expected[0].shape[1]
    classes = about.pop("classes") or tuple(map(str, range(size)))
    if len(classes) != size:
        raise ArgumentError(f"classes has {len(classes)} names: expected {size}, one for each output of the network")
    if not bool(expected[0].isfinite().all()):
        raise ExportError("the network's probabilities are not finite: its weights or the example hold NaN or infinity")
    rows, metrics = source.measured()
    domain = ""
    if isinstance(program, WholeFamily):
        point = program.family.shape.point
        domain = str(math.prod(point)) if point else "number"
    alphas = tuple(to_alpha(place) for place in chosen.places)
    metadata = Metadata(
        kind=chosen.kind,
        point=chosen.words,
        classes=classes,
        alphas=alphas,
        average=chosen.average,
        domain=domain,
        **about,
    )
    return Made(program, metadata, example, expected, _of(rows, chosen), metrics, notes=chosen.notes)


@torch.no_grad()
def _run(program: Program, example: tuple[Tensor, ...]) -> Any:
    """Run the program on the example, and name its shape if the network does not take it."""
    try:
        return program(*example)
    except UserError:
        raise
    except Exception as error:  # of the network, which need not be ours
        if memory.ran_out(error):
            raise
        raise ExportError(
            f"the network fails on images of shape {tuple(example[0].shape)} ({in_words(error)[:300]}): pass an "
            "example of the shape that it takes, or fix it"
        ) from error


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
