"""Networks by name: those of this package, of timm, of torchvision, and any that a user can import; their dropout."""

import importlib
import math
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.networks.factories import check_form, from_factory, in_words, is_factory, taken
from subspaces.networks.models import MLP, CResNet, ImageShape, LeNet, ResNet18, ResNet50
from subspaces.text import hint


def _cresnet(depth: int, classes: int, image_shape: ImageShape, dropout: float) -> CResNet:
    return CResNet(depth, classes, dropout)


_BUILDERS: Mapping[str, Callable[[int, ImageShape, float], nn.Module]] = {
    **{f"cresnet{depth}": partial(_cresnet, depth) for depth in (20, 8, 14, 32, 56)},
    "resnet18": lambda classes, image_shape, dropout: ResNet18(classes),
    "resnet50": lambda classes, image_shape, dropout: ResNet50(classes),
    "lenet": lambda classes, image_shape, dropout: LeNet(image_shape, classes),
    "mlp": lambda classes, image_shape, dropout: MLP(math.prod(image_shape), classes),
}
DENSE = ("mlp",)
"""Those of matrix products alone, of which a CPU computes many small ones at once in less time than one by one."""
_ANY_CHANNELS = ("lenet", "mlp")


def names() -> tuple[str, ...]:
    """Return the names of this package's own networks."""
    return tuple(_BUILDERS)


def build(name: str, *, classes: int, image_shape: ImageShape, dropout: float = 0.0) -> nn.Module:
    """Return a new network with random weights; pretrained ones are never downloaded.

    Args:
        name: one of `names()`, `timm:NAME`, `torchvision:NAME`, or `package.module:factory`. A factory is
            called with those of `classes` (or `num_classes`), `image_shape` and `dropout` that its
            signature names; it is a Python function, or a class derived from `nn.Module`.
        classes: outputs of the network.
        image_shape: channels, height and width.
        dropout: given to every network that takes it, 0 too; a network that takes none refuses any other.
    """
    check_name(name)
    sizes = image_shape if isinstance(image_shape, tuple | list) else ()
    if len(sizes) != 3 or min(*sizes, classes) < 1 or not 0 <= dropout <= 1:
        raise ArgumentError(
            f"classes={classes!r}, image_shape={image_shape!r}, dropout={dropout!r}: expected at least one class, "
            "(channels, height, width) of at least 1, and a rate from 0 to 1"
        )
    if name in _BUILDERS:
        if name not in _ANY_CHANNELS:
            _check_colour(name, image_shape)
        network = _BUILDERS[name](classes, image_shape, dropout)
    else:
        libraries = {"timm": _from_timm, "torchvision": _from_torchvision}
        network = libraries.get(name.partition(":")[0], from_factory)(name, classes, image_shape, dropout)
        _check_takes_images(name, network, classes, image_shape)
    if dropout > 0 and not any(dropout in rates(part) for part in network.modules()):
        raise ArgumentError(
            f"dropout={dropout}: network {name!r} has no dropout of that rate; set dropout=0, or let the module that "
            "calls F.dropout have the rate as its attribute `dropout` or `drop_rate`"
        )
    return network


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a network; nothing is imported to find out."""
    source, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    if name not in names() and not (source and colon and rest):
        known = f"{', '.join(map(repr, _BUILDERS))}, 'timm:NAME', 'torchvision:NAME' or 'package.module:factory'"
        raise ArgumentError(f"unknown network {name!r}{hint(name, _BUILDERS)}: expected {known}")
    if is_factory(name):
        check_form(name)


def head_name(module: nn.Module) -> str:
    """Return the name of the last submodule that owns parameters, whose input are a classifier's features."""
    owners: list[str] = [name for name, part in module.named_modules() if any(True for _ in part.parameters(False))]
    # spectral norm and the like move the weights of a module to its part `parametrizations.weight`
    heads = [head for head in (f".{name}".partition(".parametrizations.")[0][1:] for name in owners) if head]
    if not heads:
        raise ArgumentError(f"{type(module).__name__} has no submodule that owns parameters, hence no head to find")
    return heads[-1]


def _from_timm(name: str, classes: int, image_shape: ImageShape, dropout: float) -> nn.Module:
    """Build a timm network, for the channels of the images, and for their size where it must be known."""
    timm, model = _package("timm", name), name.partition(":")[2]
    if not timm.is_model(model):
        raise ArgumentError(f"timm has no network {model!r}{hint(model, timm.list_models())}: see timm.list_models()")
    options: dict[str, Any] = {"num_classes": classes, "drop_rate": dropout}
    if image_shape[0] != 3:
        options["in_chans"] = image_shape[0]
    config = timm.get_pretrained_cfg(model, allow_unregistered=True)
    if config is not None and config.fixed_input_size:
        options["img_size"] = image_shape[1:]
    return _construct(name, partial(timm.create_model, model_name=model, pretrained=False), options)


def _from_torchvision(name: str, classes: int, image_shape: ImageShape, dropout: float) -> nn.Module:
    """Build a torchvision classifier; its constructors hide most arguments, so its class is asked for them."""
    models, model = _package("torchvision.models", name), name.partition(":")[2]
    known = models.list_models(module=models)  # classifiers alone: others may download a pretrained backbone
    if model not in known:
        raise ArgumentError(f"torchvision has no classifier {model!r}{hint(model, known)}: see models.list_models()")
    _check_colour(name, image_shape)
    builder = models.get_model_builder(model)
    offered = {"dropout": dropout, "drop_rate": dropout, "image_size": image_shape[1]}
    offered |= {"aux_logits": False, "init_weights": True}  # one output, and no warning that it may change
    options = {"num_classes": classes, **taken(typing.get_type_hints(builder)["return"], offered)}
    return _construct(name, partial(builder, weights=None), options)


def _package(package: str, name: str) -> Any:
    """Import an optional package, or say how to install it."""
    top = package.partition(".")[0]
    try:
        return importlib.import_module(package)
    except Exception as error:  # a build for another torch fails in many ways
        raise MissingPackageError(
            f"network {name!r} needs {top}, made for torch {torch.__version__} ({error}): "
            f"pip install --upgrade 'subspaces[{top}]'",
            name=top,
        ) from error


def _construct(name: str, make: Callable[..., nn.Module], options: dict[str, Any]) -> nn.Module:
    """Call a library's constructor; where it refuses, say what it was given."""
    try:
        return make(**options)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        given = ", ".join(f"{key}={value}" for key, value in options.items())
        raise ArgumentError(f"network {name!r} cannot be built with {given}: {error}") from error


def _check_colour(name: str, image_shape: ImageShape) -> None:
    """Refuse images that do not have three channels."""
    if image_shape[0] != 3:
        raise ArgumentError(
            f"network {name!r} takes images of 3 channels, and image_shape={image_shape} has {image_shape[0]}: "
            "use 'lenet', 'mlp' or a timm network, which take any number, or repeat the channel"
        )


def _check_takes_images(name: str, network: nn.Module, classes: int, image_shape: ImageShape) -> None:
    """Run two black images through a network that is not ours; no weight, statistic or mode changes."""
    like = next((each for each in network.parameters() if each.is_floating_point()), torch.zeros(()))
    images = torch.zeros(2, *image_shape, dtype=like.dtype, device=like.device)
    modes = [(part, part.training) for part in network.modules()]
    try:
        with torch.no_grad():
            output = network.eval()(images)
    except (Exception, SystemExit) as error:
        message = f"network {name!r} does not take images of shape {image_shape}: {in_words(error)}"
        raise ArgumentError(message) from error
    finally:
        for part, training in modes:
            part.training = training
    found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    if found != f"shape {(2, classes)}":
        raise ArgumentError(
            f"network {name!r} answers 2 images with {found}: expected a tensor of shape {(2, classes)}, "
            "one logit per class; a factory whose arguments name `classes` or `num_classes` is told their number"
        )


# Dropout


def rates(module: nn.Module) -> set[float]:
    """Return the rates above 0 at which a module itself drops, as a dropout layer or by calling `F.dropout`.

    Such a call cannot be seen from outside, so a module that makes one has its rate as an attribute, `dropout` or
    `drop_rate`, as torch's attention and the networks of timm have.
    """
    if isinstance(module, _BatchNorm):
        return set()
    layer = isinstance(module, nn.modules.dropout._DropoutNd) or "Dropout" in type(module).__name__
    found = [getattr(module, name, None) for name in (("p",) if layer else ("dropout", "drop_rate"))]
    numbers = [rate for rate in found if isinstance(rate, int | float) and not isinstance(rate, bool)]
    return {float(rate) for rate in numbers if rate > 0}
