"""A family of networks: every point of a line, curve or simplex in weight space is one."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from subspaces.core import _compat, batchnorm, checks, distributed, functional, geometry, initial, randomness
from subspaces.core import alpha as points
from subspaces.core.alpha import Alpha
from subspaces.core.batchnorm import KeepingStatistics
from subspaces.core.ensemble import Average, Ensemble
from subspaces.core.features import Sampled, in_groups, similarity
from subspaces.core.initial import Factory, GetGroups, Init
from subspaces.core.layout import Layout, Predicate, is_weight
from subspaces.core.selection import select
from subspaces.core.shapes import Shape, check_shape
from subspaces.errors import ArgumentError
from subspaces.text import nearest

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_DOUBLE = (torch.float64, torch.complex128)


class Subspace(KeepingStatistics):
    r"""A subspace of networks, linear in its vertices: theta = P(alpha) = c(alpha)^T Omega.

    In train mode each call draws one alpha uniformly and runs the network there; in eval mode the
    call is the midpoint; `family(x, alpha=0.3)` is the point asked for. All positions belong to the
    network's own inputs. `with family.point() as net` is for its other methods, and for several calls at
    one point. The gradient of a vertex is d loss / d omega_i = c_i(alpha) d loss / d theta.

    Args:
        network: a function that makes a network, called once per vertex, which draws each of them anew;
            or a module, at whose weights all vertices start. It is copied and left alone.
        shape: `Line()`, `Bezier(bends)`, `Simplex(m)`, or any other `Shape`.
        layerwise: draw one alpha for each layer instead of one for the whole network.
        init: "independent" vertices, the default for a function, or "point" for all of them at one network,
            the default for a module and the only choice there.
        offset: with init="point", set the vertices apart by random steps of this length, relative to that of each
            penalised weight and orthogonal to it and to each other (by default 0.1); the midpoint stays.
        penalised: which parameters the penalty and the distances look at; by default all but the
            one-dimensional ones (biases, scales and shifts of norms).
        groups: makes the optimiser groups of one network, as torch takes them, `groups(network)`; those of
            `parameter_groups()` are then the same with the vertices in them. By default they are "weights", the
            penalised parameters, and "others", the rest.
        seed: starts the family's random numbers; by default drawn from torch's global generator.
        statistics_every: for networks with batch norm: run the midpoint too, without gradient, at the first
            training call and every so many, and keep the statistics of those passes only. Then a family in eval mode
            is its midpoint at any time, as `recalibrate` would make it.

    Only trainable parameters are in the subspace; frozen ones and buffers are shared, and tied
    weights stay tied. Learning Neural Network Subspaces, Wortsman et al., ICML 2021.

    Example:
        >>> family = Subspace(make_net, Simplex(3))
        >>> loss = F.cross_entropy(family(x), y) + family.penalty(beta=1.0)
        >>> net = family.midpoint()
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
        checks.function("penalised", penalised, "a function of a parameter's name and value")
        if groups is not None:
            checks.function("groups", groups, "a function that makes the optimiser groups of a network, or None")
        init, offset = initial.check_start(network, init, offset)
        networks = initial.initial_networks(network, shape.vertices, init)
        self.shape = shape
        self.layerwise = checks.flag("layerwise", layerwise)
        self.cast_weights = False
        """Under autocast, cast the weights of all linear layers and convolutions at once: quicker, and the same for a
        network that uses them in their own layers and under autocast alone."""
        self.options: list[dict[str, Any]] | None = None
        """The options of the optimiser groups that `groups=` made; None without it."""
        labels: dict[str, str] | None = None
        if groups is not None:
            labels, self.options = initial.grouped(networks[0], groups)
        self.layout = Layout.of(networks[0], penalised, labels)
        self.omega = nn.ParameterDict(self._packed(networks))
        self._take(networks[0])
        seed = int(torch.randint(2**62, ())) if seed is None else checks.whole("seed", seed, -(2**63), 2**63 - 1)
        if offset and shape.vertices > 1:
            self._set_apart(offset, torch.Generator().manual_seed(seed))
        self.register_buffer("rng", randomness.new_state(seed).to(next(iter(self.omega.values())).device))
        if statistics_every is not None:
            checks.whole("statistics_every", statistics_every, 1, 10**9, beside=", or None")
        self.statistics_every = statistics_every
        self.begin_statistics(known=init == "point")

    def _packed(self, networks: Sequence[nn.Module]) -> dict[str, Tensor]:
        """Return the weights of networks as the rows of each group's matrix [m, n]."""
        named = [dict(network.named_parameters(remove_duplicate=False)) for network in networks]
        return {part.name: torch.stack([part.pack(each) for each in named]) for part in self.layout.groups}

    def _take(self, network: nn.Module) -> None:
        """Make a network the template: its weights go, and its inputs and the places of its weights are looked up."""
        self.template = network
        functional.fill(network, dict.fromkeys(self.layout.entries))
        self._prepare()
        self._slots.put([None] * len(self.layout.places))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        slots = self.__dict__.get("_slots")
        if name == "template" and slots is not None and all(part is not slots.network for part in value.modules()):
            self._prepare()  # another network; one that wraps the old one has its places

    def _prepare(self) -> None:
        self._positions = points.positional_inputs(self.template)
        self._slots = functional.Slots(self.template, self.layout.places)

    def _set_apart(self, size: float, generator: torch.Generator) -> None:
        vertices = [self.vertex(index) for index in range(self.shape.vertices)]
        middle = self.shape.coefficients(self.shape.midpoint().double())
        for name in (entry.names[0] for group in self.layout.groups if group.penalised for entry in group.entries):
            steps = initial.offsets(vertices[0][name], middle, size, generator)
            for vertex, step in zip(vertices, steps, strict=True):
                vertex[name].add_(step)

    @classmethod
    def from_modules(
        cls, modules: Iterable[nn.Module], shape: Shape, layerwise: bool = False, **options: Any
    ) -> "Subspace":
        """Return the family spanned by networks that already exist, one per vertex; they are copied.

        The buffers are those of the first network: recalibrate before evaluating a network with batch norm.
        """
        check_shape(shape)
        networks = iter(initial.given_networks(modules, shape))
        return cls(lambda: functional.copied(next(networks)), shape, layerwise, init="independent", **options)

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
    def layers(self) -> tuple[str, ...]:
        """The names of the layers: the modules that directly own trainable parameters."""
        return self.layout.layers

    @property
    def _dtype(self) -> torch.dtype:
        """The dtype of alpha: float32, or float64 where a weight is."""
        omega: Any = self._modules["omega"]
        for value in omega._parameters.values():
            if value.dtype in _DOUBLE:
                return torch.float64
        return torch.float32

    @property
    def _like(self) -> Tensor:
        """An empty tensor with the dtype and device of alpha."""
        return torch.empty(0, dtype=self._dtype, device=self.device)

    def sample(self, per: Literal["network", "layer", "weight"] | None = None) -> Any:
        """Draw alpha uniformly: one for the network, one per layer, or one per weight (a dict by name).

        The default is what a training step draws: per layer in a layerwise family, else per network.
        """
        if _compat.in_backward():  # activation checkpointing would get another point than before
            raise RuntimeError(
                "a point was drawn in a backward pass (activation checkpointing?) and is not the one of the forward "
                "pass: draw it before, checkpoint(family, x, alpha=family.sample(), use_reentrant=False)"
            )
        rng: Any = self._buffers["rng"]
        random, dtype = partial(randomness.uniform, rng), self._dtype
        if per is None:
            per = "layer" if self.layerwise else "network"
        elif not isinstance(per, str) or per not in ("network", "layer", "weight"):
            raise ArgumentError(f"per={checks.shown(per)}: expected 'network', 'layer' or 'weight'")
        if per == "weight":
            entries = (entry for group in self.layout.groups for entry in group.entries)
            return {entry.names[0]: self.shape.sample(entry.shape, random).to(dtype) for entry in entries}
        alpha = self.shape.sample((len(self.layout.layers),) if per == "layer" else (), random)
        return alpha if alpha.dtype == dtype else alpha.to(dtype)

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
        return self._mixed(coefficients)

    def _mixed(self, coefficients: Mapping[str, Tensor], cast: torch.dtype | None = None) -> dict[str, Tensor]:
        """Return theta; `cast` is the dtype that autocast would give the weights of linear layers and convolutions."""
        omega: Any = self._modules["omega"]
        rng: Any = self._buffers["rng"]
        device = rng.device.type
        if torch.is_autocast_enabled(device):  # a product in bfloat16 would break batch norm
            with torch.autocast(device, enabled=False):
                return self._mixed(coefficients, cast)
        weights: dict[str, Tensor] = {}
        for group in self.layout.groups:
            row = geometry.mix(coefficients[group.name], omega._parameters[group.name])
            if cast is not None and group.castable and row.dtype == torch.float32:
                row = row.to(cast)  # once for all of them
            weights |= group.unpack(row)
        return weights

    def _point(self, alpha: Alpha | None) -> Any:
        """Return alpha, or where it is None a draw in train mode and the midpoint in eval mode."""
        if alpha is not None:
            return alpha
        return self.sample() if self.training else self.shape.midpoint().to(self._like)

    def _weights(self, point: Any, drawn: bool, outside: bool = False) -> dict[str, Tensor]:
        """Return the weights of a point, `drawn` here or given, for their places in the network."""
        if drawn:  # to check a point of our own would be to wait for the device
            c = points.coefficients(point, self.shape, self.layout)
        else:
            c = self.coefficients(point, outside)
            distributed.check_same({**c, "draws": self.rng[1:]}, self.mesh)
        kind = self.rng.device.type if self.cast_weights else ""
        cast = torch.get_autocast_dtype(kind) if kind and torch.is_autocast_enabled(kind) else None
        weights = self._mixed(c, cast)
        if len(weights) == len(self.layout.places):  # in the same order
            return weights
        return {name: weights[name] for name in self.layout.places}

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
        if not (self.training and torch.is_grad_enabled()):
            self.check_call(alpha)
        before = self.look() if self._looking else None
        if self.training and self.statistics_every:
            refresh = torch.compiler.disable(self._refresh) if torch.compiler.is_compiling() else self._refresh
            refresh((args, kwargs))  # it counts
        if features is None and type(samples) is int and samples == 1:
            output = self._run(self._weights(self._point(alpha), alpha is None, outside), args, kwargs)
        else:
            output = self._run_groups(args, kwargs, alpha, samples, features, outside)
        if before is not None:
            self.look_again(before)
        return output

    def _run(self, weights: dict[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        template: Any = self._modules["template"]
        if not (self.training and self.statistics_every):
            return functional.call(template, weights, args, kwargs, slots=self._slots)
        with batchnorm.untracked(template):
            return functional.call(template, weights, args, kwargs, False, self._slots)

    def _run_groups(
        self, args: Any, kwargs: Any, alpha: Alpha | None, samples: Any, features: str | None, outside: bool
    ) -> Any:
        """Run the network on each group of a batch at a point of its own, with the features inside on request."""
        if not isinstance(samples, int) or samples < 1 or (samples > 1 and alpha is not None):
            raise ArgumentError(
                f"samples={samples!r}: expected an integer from 1, and no alpha where it is more than 1"
            )

        def run(point: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._run(self._weights(point, alpha is None, outside), args, kwargs)

        count = samples if self.training else 1
        return in_groups(self.template, (args, kwargs), count, features, lambda: self._point(alpha), run)

    @torch.no_grad()
    def _refresh(self, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        """Run the midpoint on the inputs of every so many calls, for its statistics."""
        if _compat.in_backward():
            return  # the call has been counted
        self._calls += 1
        every = self.statistics_every or 1
        if self._calls == 1 or self._calls % every == 0:  # at once too, so that there are some from the beginning
            weights = self._weights(self.shape.midpoint().to(self._like), True)
            with batchnorm.counted_as(self.template, every):
                functional.call(self.template, weights, *inputs, slots=self._slots)
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
        if not (self.training and torch.is_grad_enabled()):
            self.check_call(alpha, depth=2)
        return self._at(alpha, outside)

    @contextmanager
    def _at(self, alpha: Alpha | None, outside: bool) -> Iterator[Any]:
        network, training = self.template, self.training
        before = self.look() if self._looking else None
        weights = self._weights(self._point(alpha), alpha is None, outside)
        tracking = not (training and self.statistics_every)
        modes = [(part, part.training) for part in network.modules()]
        versions = _versions(weights)
        try:
            fresh = nullcontext() if tracking else functional.refreshing(network, weights, self._refresh)
            with functional.filled(self._slots, weights, tracking), fresh:
                yield network
        finally:
            if self.training == training:  # else the block has changed the mode of the family
                for part, mode in modes:
                    part.training = mode
        if before is not None:
            self.look_again(before)
        if changed := [name for name, version in _versions(weights).items() if versions[name] != version]:
            raise ArgumentError(
                f"the block of family.point() wrote into {changed[0]!r} in place, which is lost, as the weights of a "
                "point are computed from the vertices: write into family.vertex(index), or call family.apply(function)"
            )

    # Networks of their own

    def vertex(self, index: int) -> dict[str, Tensor]:
        """Return vertex `index` under the network's own names: views without gradient, not copies.

        Of a distributed family they are gathered, so all ranks have to ask.
        """
        m = self.shape.vertices
        if not checks.integer(index):
            raise ArgumentError(f"vertex({checks.shown(index)}): expected an integer from 0 to {m - 1}")
        if not -m <= index < m:
            raise IndexError(f"vertex({checks.shown(index)}): {self.shape} has vertices 0 to {m - 1}")
        found: dict[str, Tensor] = {}
        for group in self.layout.groups:
            found |= group.unpack(distributed.row(self.omega[group.name], index))
        return found

    @torch.inference_mode(False)  # else its tensors could not be trained or recalibrated later
    @torch.no_grad()
    def at(self, alpha: Alpha, outside: bool = False, *, share: bool = False) -> nn.Module:
        """Return the network at alpha: an independent, ordinary module with the network's own `state_dict`.

        Its batch-norm statistics are copies of the family's, which belong to no point: recalibrate it.

        With `share=True` its frozen parameters are the family's own and not copies, which spares the memory of a large
        base. Whatever moves, casts or changes these in the network (`.to("cuda")`, `.half()`) does so in the family.
        """
        coefficients = self.coefficients(alpha, outside)
        self.check_moved()
        distributed.check_same({**coefficients, "draws": self.rng[1:]}, self.mesh)
        return self._network(self._mixed(coefficients), share)

    def _network(self, weights: Mapping[str, Tensor], share: bool = False) -> nn.Module:
        """Return a copy of the network with copies of the weights."""
        parameters: dict[str, nn.Parameter] = {}
        for name, entry in self.layout.entries.items():  # one parameter for all names of tied weights
            known = parameters.get(entry.names[0])
            parameters[name] = nn.Parameter(weights[name].clone()) if known is None else known
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
        """Return the networks at several points as one module that averages their outputs (see `Ensemble`).

        With `share=True` all of them have the family's own frozen parameters (see `at`).
        """
        if not checks.listed(alphas):
            raise ArgumentError(f"ensemble({checks.shown(alphas)}): expected several points, such as [0.1, 0.9]")
        return Ensemble([self.at(alpha, outside, share=share) for alpha in alphas], average, **options)

    select = select

    # Training

    @torch.no_grad()
    def apply(self, fn: Callable[[nn.Module], None]) -> Self:
        """Apply a function such as `init_weights` to the network of every vertex in turn, and keep their weights.

        Frozen parameters and buffers are shared, so the function has to leave them alone or give them the same values
        each time.
        """
        checks.function("fn", fn, "a function of a module, such as init_weights")
        if self.mesh is not None:
            raise ArgumentError(
                "apply on a distributed family, whose processes would draw different weights: call family.apply(fn) "
                "before subspaces.distribute(family)"
            )
        networks = [self._network(self.vertex(index)) for index in range(self.shape.vertices)]
        initial.applied(fn, networks)
        found = self._packed(networks)
        self._take(networks[0])
        if any(not torch.equal(self.omega[name], value) for name, value in found.items()):
            for name, value in found.items():
                self.omega[name].copy_(value)
            self.keep_statistics(known=not batchnorm.batches(self.template))
        return self

    def penalty(self, beta: float | Tensor = 1.0) -> Tensor:
        """Return beta cos^2(omega_j, omega_k) for a random pair of vertices, over the penalised weights.

        Its expectation over the pairs is the paper's regularisation term; with two vertices it is exact.
        """
        if isinstance(beta, Tensor):
            known = beta.layout == torch.strided and not (beta.is_quantized or beta.is_meta)
            number = known and beta.numel() == 1 and not beta.is_complex() and beta.dtype != torch.bool
        else:
            number = isinstance(beta, int | float) and not isinstance(beta, bool) and 0 <= beta < 1e300
        if not number:
            raise ArgumentError(f"penalty(beta={checks.shown(beta)}): expected a number of at least 0")
        rows, m = self._penalised(), self.shape.vertices
        if not rows or m < 2 or (not isinstance(beta, Tensor) and beta == 0):
            return self._like.new_zeros(())
        value = geometry.cos2(rows, randomness.pair(self.rng, m) if m > 2 else None)
        return beta * value if isinstance(beta, Tensor) else value if beta == 1 else float(beta) * value

    def feature_similarity(self, sampled: Sampled, strength: float = 1.0) -> Tensor:
        """Return strength |alpha_j - alpha_k| cos^2(phi_j, phi_k) for two random groups of one call.

        `sampled` is the result of `family(x, samples=s, features="head")`. The features of a group are
        one long vector; groups that differ in size are compared on what they share. On a simplex the
        distance of the points is half their L1 distance; in a layerwise family it is the mean over layers.
        """
        if not isinstance(sampled, Sampled):
            raise ArgumentError(
                f"feature_similarity got a {type(sampled).__name__}: expected family(x, samples=2, features=…)"
            )
        if len(sampled.features) < 2:
            return self._like.new_zeros(())
        chosen = randomness.pair(self.rng, len(sampled.features))
        return strength * similarity(sampled, chosen, self.shape)

    def _penalised(self) -> list[Tensor]:
        omega: Any = self._modules["omega"]
        found = []
        for group in self.layout.groups:
            if group.penalised:
                found.append(omega._parameters[group.name])
        return found

    def distances(self) -> geometry.Distances:
        """Return the L2 distance and cos^2 of all pairs of vertices, over the penalised weights."""
        with torch.no_grad():
            return geometry.distances(self._penalised() or list(self.omega.values()))

    def parameter_groups(self, **options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return groups for a torch optimiser, with options by group name.

        Example:
            >>> SGD(family.parameter_groups(others={"weight_decay": 0}), lr=0.1, weight_decay=1e-4)
        """
        made = self.options
        labels = list(dict.fromkeys(group.label for group in self.layout.groups))
        labels = labels if made is None else [f"group{index}" for index in range(len(made))]
        known = ["weights", "others"] if made is None else labels
        for name, given in options.items():
            if name not in known:
                raise ArgumentError(f"parameter_groups({name}=…): no group of that name; {nearest(name, known)}")
            if not isinstance(given, Mapping):
                raise ArgumentError(f"parameter_groups({name}={checks.shown(given)}): expected a dict of options")
            if taken := [key for key in initial.PARAMETERS if key in given]:
                raise ArgumentError(
                    f"parameter_groups({name}={{{taken[0]!r}: …}}): expected options, such as 'lr', only"
                )
        found = []
        for index, label in enumerate(labels):
            rows = [self.omega[group.name] for group in self.layout.groups if group.label == label]
            found.append({"params": rows, **(made[index] if made is not None else {}), **options.get(label, {})})
        return found

    # As a module. Inside `with family.point()` the weights of the point are not parameters of the family

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

    def extra_repr(self) -> str:
        weights = sum(omega.shape[1] for omega in self.omega.values())
        return f"{self.shape}, layerwise={self.layerwise}, {self.shape.vertices} vertices of {weights:,} weights"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo.update(functional.memo(self.template))
        make, args, state, *_ = self.__reduce_ex__(2)
        memo[id(self)] = make(*args)
        memo[id(self)].__setstate__(copy.deepcopy(state, memo))
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._slots.filled:
            raise ArgumentError(
                "a family cannot be copied or pickled inside `with family.point()`: end the block first"
            )
        return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_slots": None}

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


def _versions(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how often each weight was written in place; nothing where torch does not count."""
    if torch.compiler.is_compiling():
        return {}
    return {name: weight._version for name, weight in weights.items() if not weight.is_inference()}
