"""A family of networks: every point of a line, curve or simplex in weight space is one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from subspaces.core import _compat, batchnorm, checks, distributed, functional, geometry, initial, randomness
from subspaces.core import alpha as points
from subspaces.core.alpha import Alpha
from subspaces.core.ensemble import Average, Ensemble
from subspaces.core.initial import Factory, GetGroups, Init, parameter_groups
from subspaces.core.layout import Layout, Predicate, is_weight
from subspaces.core.nested import feature_similarity, in_groups
from subspaces.core.pretrained import Pretrained
from subspaces.core.selection import select
from subspaces.core.shapes import Shape, check_shape
from subspaces.errors import ArgumentError
from subspaces.text import one_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Subspace(batchnorm.KeepingStatistics, Pretrained):
    r"""A subspace of networks, linear in its vertices: theta = P(alpha) = c(alpha)^T Omega.

    In train mode each call draws one alpha uniformly and runs the network there; in eval mode the call is the midpoint;
    `family(x, alpha=0.3)` is the point asked for. All positions belong to the network's own inputs. The gradient of a
    vertex is d loss / d omega_i = c_i(alpha) d loss / d theta.

    Args:
        network: a function that makes a network, called once per vertex, or a module, at whose weights all vertices
            start. It is copied and left alone.
        shape: `Line()`, `Bezier(bends)`, `Simplex(m)`, or any other `Shape`.
        layerwise: draw one alpha for each layer instead of one for the whole network.
        init: "independent" vertices, by default for a function, or "point": all at one network, always for a module.
        offset: with init="point", set the vertices apart by random steps of this length, relative to that of each
            penalised weight and orthogonal to it and to each other (by default 0.1); the midpoint stays.
        penalised: `penalised(name, parameter)`, whether penalty and distances include it; by default if it is not 1-d.
        groups: `groups(network)` makes the optimiser groups of a network; `parameter_groups()` returns the same.
        seed: starts the family's random numbers; by default drawn from torch's global generator.
        statistics_every: for networks with batch norm: run the midpoint too, without gradient, at the first
            training call and every so many, and keep the statistics of those passes only.

    Only trainable parameters are in the subspace; frozen ones and buffers are shared, and tied weights stay tied.
    Learning Neural Network Subspaces, Wortsman et al., ICML 2021.

    Example:
        >>> family = ss.Subspace(make_net, ss.Simplex(3))
        >>> loss = F.cross_entropy(family(x), y) + family.penalty(beta=1.0)
        >>> net, other = family.midpoint(), family.at([0.2, 0.3, 0.5])
        >>> pair = family.ensemble([[1, 0, 0], [0, 0.5, 0.5]])
        >>> line = ss.Subspace.from_modules([net, other], ss.Line())
        >>> ss.recalibrate(line, loader, alpha=0.3).eval()(x, alpha=0.3).shape
        torch.Size([16, 3])
        >>> weights = line.theta(line.coefficients(line.sample()))
        >>> weights["head.weight"].shape == line.vertex(0)["head.weight"].shape
        True
        >>> family.distances().l2.shape
        torch.Size([3, 3])
    """

    rng: Tensor
    _calls = 0

    def __init__(
        self,
        network: nn.Module | Factory,
        shape: Shape,
        layerwise: bool = False,
        *,
        init: Init | None = None,
        offset: float | None = None,
        penalised: Predicate = is_weight,
        groups: GetGroups | None = None,
        seed: int | None = None,
        statistics_every: int | None = None,
    ) -> None:
        super().__init__()
        check_shape(shape)
        networks, same, offset = initial.initial_networks(network, shape.vertices, init, offset)
        points.check_names(networks[0])
        self.shape = shape
        self.layerwise = checks.flag("layerwise", layerwise)
        self.cast_weights = False  # the weights of linear layers and convolutions, at once, under autocast
        labels, self.options = initial.grouped(networks[0], groups)
        self.layout = Layout.of(networks[0], penalised, labels)
        self.layers = self.layout.layers  # the names of the modules that directly own trainable parameters
        named = [dict(each.named_parameters(remove_duplicate=False)) for each in networks]
        packed = {group.name: torch.stack([group.pack(each) for each in named]) for group in self.layout.groups}
        self.omega = nn.ParameterDict(packed)
        self.template = networks[0]
        functional.fill(self.template, dict.fromkeys(self.layout.entries))
        self._slots = functional.Slots(self._modules, self.layout.entries)
        seed = int(torch.randint(2**62, ())) if seed is None else checks.whole("seed", seed, -(2**63), 2**63 - 1)
        if offset and shape.vertices > 1:
            vertices = [self.vertex(index) for index in range(shape.vertices)]
            initial.set_apart(vertices, self.layout, shape, offset, torch.Generator().manual_seed(seed))
        self.register_buffer("rng", randomness.new_state(seed).to(next(iter(self.omega.values())).device))
        if statistics_every is not None:
            checks.whole("statistics_every", statistics_every, 1, 10**9, beside=", or None")
        self.statistics_every = statistics_every
        self.begin_statistics(known=same)

    @classmethod
    def from_modules(
        cls, modules: Iterable[nn.Module], shape: Shape, layerwise: bool = False, **options: Any
    ) -> "Subspace":
        """Return the family spanned by copies of networks, one per vertex, with the buffers of the first one."""
        left = iter(initial.given_networks(modules, shape))
        return cls(lambda: functional.copied(next(left)), shape, layerwise, init="independent", **options)

    @property
    def device(self) -> torch.device:
        """The device of the vertices."""
        return self.rng.device

    @property
    def mesh(self) -> "DeviceMesh | None":
        """The devices that the vertices are cut over; None before `subspaces.distribute`."""
        return distributed.mesh_of(self.omega.values())

    @property
    def _dtype(self) -> torch.dtype:
        """The dtype of alpha: float32, or float64 where a weight is."""
        omega: Any = self._modules["omega"]
        for value in omega._parameters.values():
            if value.dtype in (torch.float64, torch.complex128):
                return torch.float64
        return torch.float32

    def sample(self, per: Literal["network", "layer"] | None = None) -> Tensor:
        """Draw alpha uniformly, for the network or one per layer; by default as a training step does."""
        if _compat.in_backward():
            raise RuntimeError(
                "a point was drawn in a backward pass (activation checkpointing?) and is not the one of the forward "
                "pass: draw it before, checkpoint(family, x, alpha=family.sample(), use_reentrant=False)"
            )
        layerwise = self.layerwise if per is None else one_of("per", per, ("network", "layer")) == "layer"
        rng: Any = self._buffers["rng"]
        size = (len(self.layout.layers),) if layerwise else ()
        return self.shape.sample(size, partial(randomness.uniform, rng)).to(self._dtype)

    def coefficients(self, alpha: Alpha, outside: bool = False) -> dict[str, Tensor]:
        """Return c(alpha) for each group of weights: [m], or [m, n] where it differs from weight to weight."""
        like = torch.empty(0, dtype=self._dtype, device=self.device)
        c = points.coefficients(points.to_alpha(alpha, self.shape, like, outside), self.shape, self.layout)
        distributed.check_same({**c, "draws": self.rng[1:]}, self.mesh)
        return c

    def theta(self, coefficients: Mapping[str, Tensor], cast: torch.dtype | None = None) -> dict[str, Tensor]:
        """Return the named weights c^T Omega of one point, connected to Omega for autograd.

        `cast` is the dtype that autocast would give the weights of linear layers and convolutions.
        """
        omega: Any = self._modules["omega"]
        rng: Any = self._buffers["rng"]
        if torch.is_autocast_enabled(device := rng.device.type):  # a product in bfloat16 would break batch norm
            with torch.autocast(device, enabled=False):
                return self.theta(coefficients, cast)
        weights: dict[str, Tensor] = {}
        for group in self.layout.groups:
            row = geometry.mix(coefficients[group.name], omega._parameters[group.name])
            if cast is not None and group.castable and row.dtype == torch.float32:
                row = row.to(cast)  # once for all of them
            weights |= group.unpack(row)
        return weights

    def _chosen(self, alpha: Alpha | None, outside: bool) -> tuple[Any, dict[str, Tensor]]:
        """Return a point and its coefficients: alpha, or else a draw in train mode and the midpoint in eval mode."""
        if alpha is None:  # to check a point of our own would be to wait for the device
            alpha = self.sample() if self.training else self.shape.midpoint().to(self.device, self._dtype)
            return alpha, points.coefficients(alpha, self.shape, self.layout)
        return alpha, self.coefficients(alpha, outside)

    def _weights(self, coefficients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return theta for its places in the network, cast as autocast would if that is wanted."""
        cast = None
        if self.cast_weights and torch.is_autocast_enabled(self.device.type):
            cast = torch.get_autocast_dtype(self.device.type)
        weights, names = self.theta(coefficients, cast), self._slots.names
        return weights if len(weights) == len(names) else {name: weights[name] for name in names}

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
            alpha: the point, a number or a list of numbers or a tensor, or one point per layer.
            samples: in train mode, cut the batch into this many groups with an alpha each: every input whose first
                dimension is the batch; outputs are joined along theirs.
            features: the name of a module whose input is wanted too; the result is then `Sampled`.
            outside: allow points outside the domain, such as -0.05 and 1.05 on a line.
        """
        if len(args) > 1:
            points.check_inputs(args, self.shape, self.layout)
        if not (self.training and torch.is_grad_enabled()):
            self.check_call(alpha)
        if self.training and self.statistics_every:
            refresh = torch.compiler.disable(self._refresh) if torch.compiler.is_compiling() else self._refresh
            refresh((args, kwargs))  # it counts
        if features is None and type(samples) is int and samples == 1:
            return self._run(alpha, outside, args, kwargs)[1]
        if not isinstance(samples, int) or samples < 1 or (samples > 1 and alpha is not None):
            raise ArgumentError(f"samples={samples!r}: expected an integer from 1, and no alpha with more")
        run = partial(self._run, alpha, outside)
        return in_groups(self.template, (args, kwargs), samples if self.training else 1, features, run)

    def _run(self, alpha: Alpha | None, outside: bool, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Run the network at a point, given or drawn; return the point and the output."""
        alpha, c = self._chosen(alpha, outside)
        template: Any = self._modules["template"]
        tracking = not (self.training and self.statistics_every)
        return alpha, functional.call(template, self._weights(c), args, kwargs, tracking, self._slots)

    @torch.no_grad()
    def _refresh(self, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        """Run the midpoint on the inputs of every so many calls, for its statistics."""
        if _compat.in_backward():
            return  # the call has been counted
        self._calls += 1
        every = self.statistics_every or 1
        if self._calls == 1 or self._calls % every == 0:  # at once too, so that there are some from the beginning
            c = points.coefficients(self.shape.midpoint().to(self.device, self._dtype), self.shape, self.layout)
            with batchnorm.counted_as(self.template, every):
                functional.call(self.template, self._weights(c), *inputs, slots=self._slots)
            distributed.average_statistics(batchnorm.tracked(self.template).values(), self.mesh, counting=False)
            self.keep_statistics()

    @contextmanager
    def point(self, alpha: Alpha | None = None, *, outside: bool = False) -> Iterator[Any]:
        """Return a context whose value is the network itself at one point, with all its methods and attributes.

        The point is alpha, or a fresh draw in train mode, or the midpoint in eval mode. Its weights are those of the
        moment of entry, connected to Omega for autograd.

        Example:
            >>> with family.point() as net:
            ...     loss = F.triplet_margin_loss(net.embed(anchor), net.embed(positive), net.embed(negative))
        """
        if self.training and self.statistics_every and batchnorm.tracked(self.template):
            raise ArgumentError(
                "family.point() in train mode, where statistics_every= cannot see the inputs: call family(x), or leave "
                "statistics_every= out and call subspaces.recalibrate before you evaluate"
            )
        if not (self.training and torch.is_grad_enabled()):
            self.check_call(alpha, depth=3)
        training, modes = self.training, [(part, part.training) for part in self.template.modules()]
        weights = self._weights(self._chosen(alpha, outside)[1])
        try:
            with functional.filled(self._slots, weights), functional.unwritten(weights):
                yield self.template
        finally:
            for part, mode in modes if self.training == training else ():  # or the block has changed the family's
                part.training = mode

    def vertex(self, index: int) -> dict[str, Tensor]:
        """Return vertex `index` under the network's own names: views without gradient, gathered if distributed."""
        if not -self.shape.vertices <= index < self.shape.vertices:
            raise IndexError(f"vertex({index}): {self.shape} has vertices 0 to {self.shape.vertices - 1}")
        rows = {group: distributed.row(self.omega[group.name], index) for group in self.layout.groups}
        return {name: view for group, row in rows.items() for name, view in group.unpack(row).items()}

    @torch.inference_mode(False)  # else its tensors could not be trained or recalibrated later
    @torch.no_grad()
    def at(self, alpha: Alpha, outside: bool = False, *, share: bool = False) -> nn.Module:
        """Return the network at alpha: an independent, ordinary module with the network's own `state_dict`.

        Its batch-norm statistics are copies of the family's, which belong to no point: recalibrate it. With
        `share=True` its frozen parameters are the family's own, which spares the memory of a large base; what moves,
        casts or changes them in the network does so in the family.
        """
        weights = self.theta(self.coefficients(alpha, outside))
        parameters: dict[str, nn.Parameter] = {}
        for entry in self.layout.entries.values():  # one parameter for all names of tied weights
            parameters |= dict.fromkeys(entry.names, nn.Parameter(weights[entry.names[0]].clone()))
        return functional.copy_with(self.template, parameters, share)

    def midpoint(self, *, share: bool = False) -> nn.Module:
        """Return the network in the middle of the subspace, as `at` does."""
        return self.at(self.shape.midpoint(), share=share)

    def ensemble(
        self,
        alphas: Sequence[Alpha] | Tensor,
        average: Average = "probabilities",
        *,
        outside: bool = False,
        share: bool = False,
        **options: Any,
    ) -> Ensemble:
        """Return the networks at several points as one module that averages their outputs (see `Ensemble` and `at`)."""
        if not checks.listed(alphas):
            raise ArgumentError(f"ensemble({checks.shown(alphas)}): expected several points, such as [0.1, 0.9]")
        return Ensemble([self.at(alpha, outside, share=share) for alpha in alphas], average, **options)

    select, feature_similarity, parameter_groups = select, feature_similarity, parameter_groups

    def penalty(self, beta: float | Tensor = 1.0) -> Tensor:
        """Return beta cos^2(omega_j, omega_k) for a random pair of vertices, over the penalised weights.

        Its expectation over the pairs is the paper's regularisation term; with two vertices it is exact.
        """
        if not isinstance(beta, Tensor) and (not isinstance(beta, int | float) or not 0 <= beta < 1e300):
            raise ArgumentError(f"penalty(beta={checks.shown(beta)}): expected a number of at least 0")
        rows, m = self._penalised(), self.shape.vertices
        if not rows or m < 2 or (not isinstance(beta, Tensor) and beta == 0):
            return torch.zeros((), dtype=self._dtype, device=self.device)
        value = geometry.cos2(rows, randomness.pair(self.rng, m) if m > 2 else None)
        return beta * value if isinstance(beta, Tensor) else value if beta == 1 else float(beta) * value

    def _penalised(self) -> list[nn.Parameter]:
        omega: Any = self._modules["omega"]
        return [omega._parameters[group.name] for group in self.layout.groups if group.penalised]

    def distances(self) -> geometry.Distances:
        """Return the L2 distance and cos^2 of all pairs of vertices, over the penalised weights."""
        with torch.no_grad():
            return geometry.distances(self._penalised() or list(self.omega.values()))

    def apply(self, fn: Callable[[nn.Module], None]) -> Self:
        raise ArgumentError(
            "apply on a family, whose network has no weights of its own: initialise the weights in the function that "
            "makes the network, Subspace(make_net, shape), and apply what changes no weights to family.template"
        )

    # Inside `with family.point()` the weights of the point are not parameters of the family

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        with self._slots.emptied():
            return super().state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        with self._slots.emptied():
            return iter(list(super().named_parameters(*args, **kwargs)))

    def extra_repr(self) -> str:
        weights = sum(omega.shape[1] for omega in self.omega.values())
        return f"{self.shape}, layerwise={self.layerwise}, {self.shape.vertices} vertices of {weights:,} weights"

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            template = self.__dict__.get("_modules", {}).get("template")
            if name.startswith("__") or not (hasattr(type(template), name) or hasattr(template, name)):
                raise
            raise AttributeError(f"{error}; the network has it: with family.point() as net: net.{name}") from None
