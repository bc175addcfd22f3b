"""Runs the network of a family at a point: as a call, or as a block in which the network is at that point."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from subspaces.core import alpha as points
from subspaces.core import batchnorm, checks, distributed, functional, geometry, nested, randomness
from subspaces.core.alpha import Alpha
from subspaces.core.features import Sampled, watch
from subspaces.core.layout import Layout
from subspaces.core.shapes import Shape
from subspaces.core.signatures import ShowingInputs
from subspaces.core.stale import KeepingStatistics
from subspaces.errors import ArgumentError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_NOTHING = nullcontext()


class Running(ShowingInputs, KeepingStatistics):
    """A family, as far as its network runs at its points."""

    omega: nn.ParameterDict
    shape: Shape
    layerwise: bool
    layout: Layout
    cast_weights: bool
    statistics_every: int | None
    _calls: int
    rng: Tensor
    averaging: "DeviceMesh | None" = None
    """The processes over which the gradient of theta is averaged; see `subspaces.reduce_theta`."""

    # Points and their weights

    @property
    def device(self) -> torch.device:
        """The device of the vertices."""
        return self.rng.device

    @property
    def mesh(self) -> "DeviceMesh | None":
        """The devices that the vertices are cut over; None before `subspaces.distribute`."""
        return distributed.mesh_of(self.omega.values())

    @property
    def _like(self) -> Tensor:
        """An empty tensor with the dtype and device of alpha: float32, or float64 where a weight is."""
        return torch.empty(0, dtype=self._dtype, device=self.device)

    @property
    def _dtype(self) -> torch.dtype:
        double = any(omega.dtype in (torch.float64, torch.complex128) for omega in self.omega.values())
        return torch.float64 if double else torch.float32

    def sample(self, per: Literal["network", "layer", "weight"] | None = None) -> Any:
        """Draw alpha uniformly: one for the network, one per layer, or one per weight (a dict by name).

        The default is what a training step draws: per layer in a layerwise family, else per network.
        """

        def draw(size: tuple[int, ...]) -> Tensor:
            return self.shape.sample(size, lambda s: randomness.uniform(self.rng, s)).to(self._dtype)

        randomness.refuse_in_backward("checkpoint(family, x, alpha=family.sample(), use_reentrant=False)")
        if per is None:
            per = "layer" if self.layerwise else "network"
        if not isinstance(per, str) or per not in ("network", "layer", "weight"):
            raise ArgumentError(f"per={checks.shown(per)}: expected 'network', 'layer' or 'weight'")
        if per == "weight":
            entries = (entry for group in self.layout.groups for entry in group.entries)
            return {entry.names[0]: draw(entry.shape) for entry in entries}
        return draw((len(self.layers),) if per == "layer" else ())

    def coefficients(self, alpha: Alpha, outside: bool = False) -> dict[str, Tensor]:
        """Return c(alpha) for each group of weights: [m], or [m, n] where it differs from weight to weight."""
        if isinstance(alpha, Mapping):
            return points.named_coefficients(alpha, self.shape, self.layout, self._like, outside)
        checked = points.to_alpha(alpha, self.shape, self._like, outside)
        return points.coefficients(checked, self.shape, self.layout)

    def theta(self, coefficients: Mapping[str, Tensor], cast: torch.dtype | None = None) -> dict[str, Tensor]:
        """Return the named weights c^T Omega of one point, connected to Omega for autograd.

        `cast` is the dtype that autocast would give the weights of linear layers and convolutions at
        each use: done here, it is one cast for all of them.
        """
        if not isinstance(coefficients, Mapping) or any(group.name not in coefficients for group in self.layout.groups):
            raise ArgumentError(
                f"theta({checks.shown(coefficients)}): expected what family.coefficients(alpha) returns"
            )
        weights: dict[str, Tensor] = {}
        with geometry.exactly(self.device):
            for group in self.layout.groups:
                row = distributed.averaged(
                    geometry.mix(coefficients[group.name], self.omega[group.name]), self.averaging
                )
                if cast is not None and group.castable and row.dtype == torch.float32:
                    row = row.to(cast)
                weights |= group.unpack(row)
        return weights

    def _check_same(self, coefficients: Mapping[str, Tensor], mesh: "DeviceMesh | None") -> None:
        if mesh is not None:
            distributed.check_same({**coefficients, "draws": self.rng[1:]}, mesh)

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
        if not isinstance(samples, int) or samples < 1 or (samples > 1 and alpha is not None):
            raise ArgumentError(
                f"samples={samples!r}: expected an integer from 1, and no alpha where it is more than 1"
            )
        points.refuse_as_input(args, self.shape, self.layout, self.most_inputs)
        training = self.training
        if not training:
            self.check_statistics()
        elif not torch.is_grad_enabled():
            self.check_mode(alpha)
        inputs = (args, kwargs)
        size = (nested.batch_size(inputs) or 1) if samples > 1 and training else 1
        groups = min(samples, size)
        parts = nested.split(inputs, size, groups) if groups > 1 else [inputs]
        outputs, entered = [], []
        tracking = not (training and self.statistics_every)
        cast = self._autocast() if self.cast_weights else None
        before = self.look() if self._looking else None
        if not tracking:
            batchnorm.apart.run(self._refresh, cast, inputs)  # it counts
        with _NOTHING if features is None else watch(self.template, features) as seen:
            alphas = [self._point(alpha) for _ in range(groups)]
            for (positional, named), point in zip(parts, alphas, strict=True):
                weights = self._weights(point, alpha is None, outside, cast)
                with _NOTHING if tracking else batchnorm.untracked(self.template):
                    outputs.append(functional.call(self.template, weights, positional, named, tracking))
                if seen is not None:
                    entered.extend(seen[-1:])  # of the last call, where the network calls that module several times
                    seen.clear()
        if before is not None:
            self.look_again(before)
        output = nested.join(outputs, nested.group_sizes(size, groups)) if groups > 1 else outputs[0]
        if features is None:
            return output
        if len(entered) < groups:
            raise ArgumentError(f"features={features!r}: the network ran without calling that module on a tensor")
        return Sampled(output, tuple(alphas), tuple(entered))

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
        cast = self._autocast() if self.cast_weights else None
        before = self.look() if self._looking else None
        weights = self._weights(self._point(alpha), alpha is None, outside, cast)
        tracking = not (training and self.statistics_every)
        modes = [(part, part.training) for part in network.modules()]
        versions = functional.versions(weights)
        try:
            refresh = partial(self._refresh, cast)
            fresh = _NOTHING if tracking else functional.refreshing(network, weights, refresh)
            with functional.filled(network, weights, tracking), fresh:
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

    def _weights(self, point: Any, drawn: bool, outside: bool, cast: torch.dtype | None) -> dict[str, Tensor]:
        """Return the weights of a point, `drawn` here or given, for their places in the network."""
        if drawn:  # to check a point of our own would be to wait for the device
            c = points.coefficients(point, self.shape, self.layout)
        else:
            c = self.coefficients(point, outside)
            self._check_same(c, self.mesh or (self.averaging if torch.is_grad_enabled() else None))
        weights = self.theta(c, cast)
        return {name: weights[name] for name in self.layout.places}

    def _autocast(self) -> torch.dtype | None:
        """Return the dtype of autocast, where it is on."""
        kind = self.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    @torch.no_grad()
    def _refresh(self, cast: torch.dtype | None, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        """Run the midpoint on the inputs of every so many calls, for its statistics."""
        if randomness.in_backward():
            return  # the call has been counted
        self._calls += 1
        every = self.statistics_every or 1
        if self._calls == 1 or self._calls % every == 0:  # at once too, so that there are some from the beginning
            with batchnorm.forgetting(self.template, every):
                functional.call(self.template, self._weights(self._middle, True, False, cast), *inputs)
            distributed.average_statistics(batchnorm.tracked(self.template).values(), self.mesh, counting=False)
            self.keep_statistics()

    def _point(self, alpha: Alpha | None) -> Any:
        if alpha is not None:
            return alpha
        return self.sample() if self.training else self._middle

    @property
    def _middle(self) -> Tensor:
        return self.shape.midpoint().to(self._like)

    # Inside `with family.point()` the weights of the point are not parameters of the family

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        with functional.emptied(self.template, self.layout.places):
            return super().state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        if not functional.is_filled(self.template, self.layout.places):
            return super().named_parameters(*args, **kwargs)
        with functional.emptied(self.template, self.layout.places):
            return iter(list(super().named_parameters(*args, **kwargs)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        if functional.is_filled(self.template, self.layout.places):
            raise ArgumentError(
                "a family cannot be copied or pickled inside `with family.point()`: end the block first"
            )
        return super().__reduce_ex__(protocol)
