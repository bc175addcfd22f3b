"""The call of a family: its network runs at a point, once or as a block in which it is at that point."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from subspaces.core import _compat, batchnorm, checks, distributed, functional, geometry, nested, randomness
from subspaces.core import alpha as points
from subspaces.core.alpha import Alpha
from subspaces.core.features import Sampled, watch
from subspaces.core.layout import Layout
from subspaces.core.shapes import Shape
from subspaces.core.stale import KeepingStatistics
from subspaces.errors import ArgumentError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

OWN = ("alpha", "samples", "features", "outside")
"""What a family's call takes beside the network's inputs, always by keyword."""
_DOUBLE = (torch.float64, torch.complex128)


class Running(KeepingStatistics):
    """A family, as far as its network runs at its points."""

    omega: nn.ParameterDict
    shape: Shape
    layerwise: bool
    layout: Layout
    cast_weights: bool
    statistics_every: int | None
    rng: Tensor
    averaging: "DeviceMesh | None" = None
    """The processes over which the gradient of theta is averaged; see `subspaces.reduce_theta`."""
    _calls = 0

    def _prepare(self) -> None:
        """Look at the network once for all calls: its inputs, and the places of its weights."""
        self._positions = positional_inputs(self.template)
        self._slots = functional.Slots(self.template, self.layout.places)

    # Points and their weights

    @property
    def device(self) -> torch.device:
        """The device of the vertices."""
        rng: Any = self._buffers["rng"]
        found: torch.device = rng.device
        return found

    @property
    def mesh(self) -> "DeviceMesh | None":
        """The devices that the vertices are cut over; None before `subspaces.distribute`."""
        return distributed.mesh_of(self.omega.values())

    @property
    def _dtype(self) -> torch.dtype:
        """The dtype of alpha: float32, or float64 where a weight is."""
        omega = self._modules["omega"]
        for group in self.layout.groups:
            if getattr(omega, group.name).dtype in _DOUBLE:
                return torch.float64
        return torch.float32

    @property
    def _like(self) -> Tensor:
        """An empty tensor with the dtype and device of alpha."""
        return torch.empty(0, dtype=self._dtype, device=self.device)

    @property
    def _middle(self) -> Tensor:
        return self.shape.midpoint().to(self._like)

    def sample(self, per: Literal["network", "layer", "weight"] | None = None) -> Any:
        """Draw alpha uniformly: one for the network, one per layer, or one per weight (a dict by name).

        The default is what a training step draws: per layer in a layerwise family, else per network.
        """
        randomness.refuse_in_backward("checkpoint(family, x, alpha=family.sample(), use_reentrant=False)")
        rng: Any = self._buffers["rng"]
        random, dtype = partial(randomness.uniform, rng), self._dtype
        if per is None:
            per = "layer" if self.layerwise else "network"
        if not isinstance(per, str) or per not in ("network", "layer", "weight"):
            raise ArgumentError(f"per={checks.shown(per)}: expected 'network', 'layer' or 'weight'")
        if per == "weight":
            entries = (entry for group in self.layout.groups for entry in group.entries)
            return {entry.names[0]: self.shape.sample(entry.shape, random).to(dtype) for entry in entries}
        return self.shape.sample((len(self.layout.layers),) if per == "layer" else (), random).to(dtype)

    def coefficients(self, alpha: Alpha, outside: bool = False) -> dict[str, Tensor]:
        """Return c(alpha) for each group of weights: [m], or [m, n] where it differs from weight to weight."""
        if isinstance(alpha, Mapping):
            return points.named_coefficients(alpha, self.shape, self.layout, self._like, outside)
        checked = points.to_alpha(alpha, self.shape, self._like, outside)
        return points.coefficients(checked, self.shape, self.layout)

    def theta(self, coefficients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the named weights c^T Omega of one point, connected to Omega for autograd."""
        if not isinstance(coefficients, Mapping) or any(group.name not in coefficients for group in self.layout.groups):
            raise ArgumentError(
                f"theta({checks.shown(coefficients)}): expected what family.coefficients(alpha) returns"
            )
        return self._mixed(coefficients, None)

    def _mixed(self, coefficients: Mapping[str, Tensor], cast: torch.dtype | None) -> dict[str, Tensor]:
        """Return theta; `cast` is the dtype that autocast would give the weights of linear layers and convolutions."""
        device = self.device.type
        if torch.is_autocast_enabled(device):  # a product in bfloat16 would break batch norm
            with torch.autocast(device, enabled=False):
                return self._mixed(coefficients, cast)
        omega = self._modules["omega"]
        weights: dict[str, Tensor] = {}
        for group in self.layout.groups:
            row = geometry.mix(coefficients[group.name], getattr(omega, group.name))
            if self.averaging is not None:
                row = distributed.averaged(row, self.averaging)
            if cast is not None and group.castable and row.dtype == torch.float32:
                row = row.to(cast)  # once for all of them
            group.unpack(row, weights)
        return weights

    def _point(self, alpha: Alpha | None) -> Any:
        if alpha is not None:
            return alpha
        return self.sample() if self.training else self._middle

    def _weights(self, point: Any, drawn: bool, outside: bool = False) -> dict[str, Tensor]:
        """Return the weights of a point, `drawn` here or given, for their places in the network."""
        if drawn:  # to check a point of our own would be to wait for the device
            c = points.coefficients(point, self.shape, self.layout)
        else:
            c = self.coefficients(point, outside)
            self._check_same(c, self.mesh or (self.averaging if torch.is_grad_enabled() else None))
        weights = self._mixed(c, self._autocast() if self.cast_weights else None)
        if len(weights) == len(self.layout.places):  # in the same order
            return weights
        return {name: weights[name] for name in self.layout.places}

    def _check_same(self, coefficients: Mapping[str, Tensor], mesh: "DeviceMesh | None") -> None:
        if mesh is not None:
            distributed.check_same({**coefficients, "draws": self.rng[1:]}, mesh)

    def _autocast(self) -> torch.dtype | None:
        """Return the dtype of autocast, where it is on."""
        kind = self.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    # Running the network

    def forward(
        self,
        *args: Any,
        alpha: Alpha | None = None,
        samples: int = 1,
        features: str | None = None,
        outside: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run the network at alpha, or at a fresh draw in train mode, or at the midpoint in eval mode.

        Args:
            args, kwargs: the network's inputs, as it takes them.
            alpha: the point, in any of the forms of `subspaces.core.alpha`.
            samples: in train mode, cut the batch into this many groups, each with its own alpha: every
                input whose first dimension is the batch; outputs are joined along theirs.
            features: the name of a module whose input is wanted too; the result is then `Sampled`.
            outside: allow points outside the domain, such as -0.05 and 1.05 on a line.
        """
        if len(args) > 1:
            points.refuse_as_input(args, self.shape, self.layout, self._positions)
        if not self.training:
            self.check_statistics()
        elif not torch.is_grad_enabled():
            self.check_mode(alpha)
        before = self.look() if self._looking else None
        tracking = not (self.training and self.statistics_every)
        if not tracking:
            batchnorm.apart.run(self._refresh, (args, kwargs))  # it counts
        if features is not None or type(samples) is not int or samples != 1:
            output = self._run_groups(args, kwargs, alpha, samples, features, outside, tracking)
        else:
            output = self._run(args, kwargs, self._weights(self._point(alpha), alpha is None, outside), tracking)
        if before is not None:
            self.look_again(before)
        return output

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], weights: dict[str, Tensor], tracking: bool) -> Any:
        template: Any = self._modules["template"]
        if tracking:
            return functional.call(template, weights, args, kwargs, slots=self._slots)
        with batchnorm.untracked(template):
            return functional.call(template, weights, args, kwargs, False, self._slots)

    def _run_groups(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        alpha: Alpha | None,
        samples: int,
        features: str | None,
        outside: bool,
        tracking: bool,
    ) -> Any:
        """Run the network on each group of a batch at a point of its own, with the features inside on request."""
        if not isinstance(samples, int) or samples < 1 or (samples > 1 and alpha is not None):
            raise ArgumentError(
                f"samples={samples!r}: expected an integer from 1, and no alpha where it is more than 1"
            )
        size = (nested.batch_size((args, kwargs)) or 1) if samples > 1 and self.training else 1
        groups = min(samples, size)
        parts = nested.split((args, kwargs), size, groups) if groups > 1 else [(args, kwargs)]
        outputs, entered = [], []
        with watch(self.template, features) as seen:
            alphas = [self._point(alpha) for _ in range(groups)]
            for (positional, named), point in zip(parts, alphas, strict=True):
                weights = self._weights(point, alpha is None, outside)
                outputs.append(self._run(positional, named, weights, tracking))
                entered.extend(seen[-1:])  # of the last call, where the network calls that module several times
                seen.clear()
        output = nested.join(outputs, nested.group_sizes(size, groups)) if groups > 1 else outputs[0]
        if features is None:
            return output
        if len(entered) < groups:
            raise ArgumentError(f"features={features!r}: the network ran without calling that module on a tensor")
        return Sampled(output, tuple(alphas), tuple(entered))

    @torch.no_grad()
    def _refresh(self, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        """Run the midpoint on the inputs of every so many calls, for its statistics."""
        if _compat.in_backward():
            return  # the call has been counted
        self._calls += 1
        every = self.statistics_every or 1
        if self._calls == 1 or self._calls % every == 0:  # at once too, so that there are some from the beginning
            with batchnorm.forgetting(self.template, every):
                self._run(inputs[0], inputs[1], self._weights(self._middle, True), True)
            distributed.average_statistics(batchnorm.tracked(self.template).values(), self.mesh, counting=False)
            self.keep_statistics()

    def point(self, alpha: Alpha | None = None, *, outside: bool = False) -> AbstractContextManager[Any]:
        """Return a context whose value is the network itself at one point, with all its methods and attributes.

        The point is alpha, or a fresh draw in train mode, or the midpoint in eval mode. The network has the weights
        c(alpha)^T Omega of the moment of entry, connected to Omega for autograd, until the block ends.

        Example:
            >>> with family.point() as net:
            ...     loss = F.triplet_margin_loss(net.embed(anchor), net.embed(positive), net.embed(negative))
            >>> loss.backward()
        """
        if not self.training:
            self.check_statistics(depth=2)
        elif not torch.is_grad_enabled():
            self.check_mode(alpha, depth=2)
        return self._at(alpha, outside)

    @contextmanager
    def _at(self, alpha: Alpha | None, outside: bool) -> Iterator[Any]:
        network, training = self.template, self.training
        before = self.look() if self._looking else None
        weights = self._weights(self._point(alpha), alpha is None, outside)
        tracking = not (training and self.statistics_every)
        modes = [(part, part.training) for part in network.modules()]
        versions = functional.versions(weights)
        try:
            fresh = nullcontext() if tracking else functional.refreshing(network, weights, self._refresh)
            with functional.filled(self._slots, weights, tracking), fresh:
                yield network
        finally:
            if self.training == training:  # else the family was told another mode inside
                for part, mode in modes:
                    part.training = mode
        if before is not None:
            self.look_again(before)
        if changed := [name for name, version in functional.versions(weights).items() if versions[name] != version]:
            raise ArgumentError(
                f"the block of family.point() wrote into {changed[0]!r} in place, which is lost, as the weights of a "
                "point are computed from the vertices: write into family.vertex(index), or call family.apply(function)"
            )

    # Inside `with family.point()` the weights of the point are not parameters of the family

    def without_point(self) -> AbstractContextManager[None]:
        """Return a context in which the network has no weights, also inside `with family.point()`."""
        return self._slots.emptied()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        with self._slots.emptied():
            return super().state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        if not self._slots.filled:
            return super().named_parameters(*args, **kwargs)
        with self._slots.emptied():
            return iter(list(super().named_parameters(*args, **kwargs)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._slots.filled:
            raise ArgumentError(
                "a family cannot be copied or pickled inside `with family.point()`: end the block first"
            )
        return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_slots": None, "averaging": None}  # a copy is not what was wrapped

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._prepare()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            template = self.__dict__.get("_modules", {}).get("template")
            known = template is not None and (hasattr(type(template), name) or hasattr(template, name))
            if name.startswith("__") or not known:
                raise
        call = "(…)" if callable(getattr(type(template), name, None)) else ""
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}, the network has it: with family.point() as "
            f"net: net.{name}{call}"
        )


def positional_inputs(network: nn.Module) -> int | None:
    """Return how many inputs a network takes by position (None: any number); inputs named as ours are refused."""
    try:
        inputs = inspect.signature(network.forward).parameters
    except (TypeError, ValueError):
        return None
    for name in OWN:
        if name in inputs:
            raise ArgumentError(
                f"the network has an input named {name!r}, which a family's own call takes: wrap the network in a "
                f"module whose forward has another name for it and passes it on, self.network(…, {name}=other)"
            )
    kinds = [each.kind for each in inputs.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return None if inspect.Parameter.VAR_POSITIONAL in kinds else sum(kind in positional for kind in kinds)
