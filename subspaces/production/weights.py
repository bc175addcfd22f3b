"""Weights as what predicts: the network that their file names, built and filled."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subspaces import files, storage
from subspaces.ensembles import Ensemble
from subspaces.networks import registry
from subspaces.networks.factories import is_factory
from subspaces.norms import tracked
from subspaces.production.errors import ModelError
from subspaces.production.metadata import FORMAT, VERSION, Metadata
from subspaces.production.models import Model, called
from subspaces.production.programs import OneNetwork, Program, Several


def read_weights(path: Path, trust: bool) -> Model:
    """Return the model of a safetensors file."""
    try:
        header, tensors = files.read_tensors(path)
        if header.get("format") == storage.FORMAT:
            return _family(path, header, trust)
        about = Metadata.of(header, path)
        files.check(header, tensors)
    except files.DamageError as error:
        raise ModelError(f"{path} is damaged ({error}): use another copy") from None
    if about.kind == "ensemble":
        count = len({name.split(".")[1] for name in tensors if name.startswith("members.")})
        if not 1 <= count <= len(tensors):
            raise ModelError(f"{path} is damaged (it holds no members): use another copy")
        members = [_network(path, about, _below(f"members.{index}.", tensors), trust) for index in range(count)]
        average: Any = "logits" if about.average == "logits" else "probabilities"
        program: Program = Several(Ensemble(members, average), about.mean, about.std)
    else:
        program = OneNetwork(_network(path, about, tensors, trust), about.mean, about.std)
    return Model(about, called(program.eval()))


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _family(path: Path, header: dict[str, str], trust: bool) -> Model:
    """Return a family that needs no statistics, at a point that is given later."""
    notes = {name.removeprefix("export."): value for name, value in header.items() if name.startswith("export.")}
    if not notes:
        raise ModelError(f"{path} is a family without its network: export it, `subspaces export RUN --point family`")
    about = Metadata.of({**notes, "format": FORMAT, "version": str(VERSION)}, path)
    network = _built(path, about, trust)
    if tracked(network):
        raise ModelError(
            f"{path} holds the weights of a family with batch norm, whose statistics belong to a point: export a "
            "point, or the family as --format pt2 or onnx, which hold statistics for all of it"
        )
    family = storage.load(path, network).eval()
    program = OneNetwork(family, about.mean, about.std)

    def call(images: Tensor, alpha: Tensor) -> list[Tensor]:
        logits = family(program.normalised(images), alpha=alpha)
        return [logits.softmax(-1)]

    return Model(about, call)


def _built(path: Path, about: Metadata, trust: bool) -> nn.Module:
    """Return the network that the metadata names, if it may be built."""
    if is_factory(about.network) and trust is not True:
        module, _, factory = about.network.partition(":")
        raise ModelError(
            f"{path} names the network {about.network!r}; to build it would import module {module!r} and call "
            f"{factory!r}: pass --trust (trust=True) if you trust it"
        )
    if len(about.image_shape) != 3:
        raise ModelError(f"{path} takes inputs of shape {about.image_shape}, which are no images")
    shape = (about.image_shape[0], about.image_shape[1], about.image_shape[2])
    try:
        return registry.build(about.network, classes=len(about.classes), image_shape=shape, dropout=about.dropout)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"{path} holds the weights of {about.network!r}, which cannot be built here ({error}): load them yourself, "
            "or export the network as --format pt2 or onnx"
        ) from None


def _network(path: Path, about: Metadata, tensors: dict[str, Tensor], trust: bool) -> nn.Module:
    """Return the network with these weights."""
    if is_factory(about.network) or ":" in about.network:
        network = _built(path, about, trust)
    else:
        with torch.device("meta"):  # a size that only the metadata claims takes no memory
            network = _built(path, about, trust)
    try:
        network.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        said = " ".join(str(error).split())[:300]
        raise ModelError(
            f"{path} holds other weights than those of {about.network!r} ({said}): use another copy"
        ) from None
    return network.eval()
