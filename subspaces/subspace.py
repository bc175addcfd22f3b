"""A family of networks: every point of a line, curve or simplex in weight space is one."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from subspaces import geometry, nested, norms, points, randomness, sharding, template, values
from subspaces.ensembles import Average, Ensemble
from subspaces.errors import ArgumentError
from subspaces.features import Sampled, similarity, watch
from subspaces.initial import Factory, Init, applied, check_start, given_networks, initial_networks, offsets
from subspaces.layout import Grouping, Layout, Predicate, is_weight
from subspaces.norms import KeepingStatistics
from subspaces.points import Alpha
from subspaces.selection import Selecting
from subspaces.shapes import Shape, check_shape
from subspaces.signatures import ShowingInputs
from subspaces.text import nearest

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Subspace(ShowingInputs, KeepingStatistics, Selecting):
    r"""A subspace of networks, linear in its vertices: theta = P(alpha) = c(alpha)^T Omega.

    In train mode each call draws one alpha uniformly and runs the network there; in eval mode the
    call is the midpoint; `family(x, alpha=0.3)` is the point asked for. All positions belong to the
    network's own inputs. The gradient of a vertex is d loss / d omega_i = c_i(alpha) d loss / d theta.

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
        group: names the optimiser group of a parameter; by default "weights" for the penalised
            ones and "others" for the rest.
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
    averaging: "DeviceMesh | None" = None
    """The processes over which the gradient of theta is averaged; see `subspaces.reduce_theta`."""

    def __init__(
        self,
        network: nn.Module | Factory,
        shape: Shape,
        layerwise: bool = False,
        *,
        init: Init | None = None,
        offset: float | None = None,
        penalised: Predicate = is_weight,
        group: Grouping | None = None,
        seed: int | None = None,
        statistics_every: int | None = None,
    ) -> None:
        super().__init__()
        check_shape(shape)
        values.function("penalised", penalised, "a function of a parameter's name and value")
        if group is not None:
            values.function("group", group, "a function of a parameter's name and value, or None")
        init, offset = check_start(network, init, offset)
        networks = initial_networks(network, shape.vertices, init)
        self.shape = shape
        self.layerwise = layerwise
        self.cast_weights = False
        """Under autocast, cast the weights of all linear layers and convolutions at once: quicker, and the same for a
        network that uses them in their own layers and under autocast alone."""
        self.layout = Layout.of(networks[0], penalised, group)
        rows = [dict(vertex.named_parameters(remove_duplicate=False)) for vertex in networks]
        self.omega = nn.ParameterDict(
            {part.name: torch.stack([part.pack(row) for row in rows]) for part in self.layout.groups}
        )
        self.template = networks[0]
        self.show_inputs()
        template.fill(self.template, dict.fromkeys(self.layout.entries))
        seed = int(torch.randint(2**62, ())) if seed is None else values.whole("seed", seed, -(2**63), 2**63 - 1)
        if offset and shape.vertices > 1:
            self._set_apart(offset, torch.Generator().manual_seed(seed))
        self.register_buffer("rng", randomness.new_state(seed).to(next(iter(self.omega.values())).device))
        if statistics_every is not None:
            values.whole("statistics_every", statistics_every, 1, beside=", or None")
            norms.apart.begin()
        self.statistics_every = statistics_every
        self._calls = 0
        self.begin_statistics(known=init == "point")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "averaging": None})  # a copy is not what was wrapped
        if self.statistics_every is not None:  # in a process that has made no such family yet
            norms.apart.begin()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo.update(template.memo(self.template))
        make, args, state = self.__reduce_ex__(2)
        memo[id(self)] = make(*args)
        memo[id(self)].__setstate__(copy.deepcopy(state, memo))
        return memo[id(self)]

    def _set_apart(self, size: float, generator: torch.Generator) -> None:
        vertices = [self.vertex(index) for index in range(self.shape.vertices)]
        middle = self.shape.coefficients(self.shape.midpoint().double())
        for name in (entry.names[0] for group in self.layout.groups if group.penalised for entry in group.entries):
            steps = offsets(vertices[0][name], middle, size, generator)
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
        networks = iter(given_networks(modules, shape))
        return cls(lambda: template.copied(next(networks)), shape, layerwise, init="independent", **options)

    # The points of the family

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers: the modules that directly own trainable parameters."""
        return self.layout.layers

    @property
    def device(self) -> torch.device:
        """The device of the vertices."""
        return self.rng.device

    @property
    def mesh(self) -> "DeviceMesh | None":
        """The devices that the vertices are cut over; None before `subspaces.distribute`."""
        return sharding.mesh_of(self.omega.values())

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
            raise ArgumentError(f"per={values.shown(per)}: expected 'network', 'layer' or 'weight'")
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
                f"theta({values.shown(coefficients)}): expected what family.coefficients(alpha) returns"
            )
        weights: dict[str, Tensor] = {}
        with geometry.exactly(self.device):
            for group in self.layout.groups:
                row = sharding.averaged(geometry.mix(coefficients[group.name], self.omega[group.name]), self.averaging)
                if cast is not None and group.castable and row.dtype == torch.float32:
                    row = row.to(cast)
                weights |= group.unpack(row)
        return weights

    def vertex(self, index: int) -> dict[str, Tensor]:
        """Return vertex `index` under the network's own names: views without gradient, not copies.

        Of a distributed family they are gathered, so all ranks have to ask.
        """
        m = self.shape.vertices
        if not values.integer(index):
            raise ArgumentError(f"vertex({values.shown(index)}): expected an integer from 0 to {m - 1}")
        if not -m <= index < m:
            raise IndexError(f"vertex({values.shown(index)}): {self.shape} has vertices 0 to {m - 1}")
        found: dict[str, Tensor] = {}
        for group in self.layout.groups:
            found |= group.unpack(sharding.row(self.omega[group.name], index))
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
        self._check_same(coefficients, self.mesh)
        weights = self.theta(coefficients)
        parameters: dict[str, nn.Parameter] = {}
        for name, entry in self.layout.entries.items():  # one parameter for all names of tied weights
            known = parameters.get(entry.names[0])
            parameters[name] = nn.Parameter(weights[name].clone()) if known is None else known
        return template.copy_with(self.template, parameters, share)

    def _check_same(self, coefficients: Mapping[str, Tensor], mesh: "DeviceMesh | None") -> None:
        if mesh is not None:
            sharding.check_same({**coefficients, "draws": self.rng[1:]}, mesh)

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
        if not values.listed(alphas):
            raise ArgumentError(f"ensemble({values.shown(alphas)}): expected several points, such as [0.1, 0.9]")
        return Ensemble([self.at(alpha, outside, share=share) for alpha in alphas], average, **options)

    # Training

    @torch.no_grad()
    def apply(self, fn: Callable[[nn.Module], None]) -> Self:
        """Apply a function such as `init_weights` to the network of every vertex in turn, and keep their weights.

        Frozen parameters and buffers are shared, so the function has to leave them alone or give them the same values
        each time.
        """
        values.function("fn", fn, "a function of a module, such as init_weights")
        if self.mesh is not None:
            raise ArgumentError(
                "apply on a distributed family, whose processes would draw different weights: call family.apply(fn) "
                "before subspaces.distribute(family)"
            )
        found = applied(fn, self.template, self.layout, dict(self.omega.items()))
        if any(not torch.equal(self.omega[name], value) for name, value in found.items()):
            for name, value in found.items():
                self.omega[name].copy_(value)
            self.keep_statistics(known=not norms.batches(self.template))
        return self

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
            alpha: the point, in any of the forms of `subspaces.points`.
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
        if not self.training:
            self.check_statistics()
        inputs = (args, kwargs)
        size = (nested.batch_size(inputs) or 1) if samples > 1 and self.training else 1
        groups = min(samples, size)
        parts = nested.split(inputs, size, groups) if groups > 1 else [inputs]
        outputs, entered = [], []
        tracking = not (self.training and self.statistics_every)
        kind = self.device.type
        cast = torch.get_autocast_dtype(kind) if self.cast_weights and torch.is_autocast_enabled(kind) else None
        if not tracking:
            norms.apart.run(self._refresh, inputs, cast)  # it counts
        with watch(self.template, features) as seen:
            alphas = [self._point(alpha) for _ in range(groups)]
            for (positional, named), point in zip(parts, alphas, strict=True):
                if alpha is None:  # a point of our own: to check it would be to wait for the device
                    c = points.coefficients(point, self.shape, self.layout)
                else:
                    c = self.coefficients(point, outside)
                    self._check_same(c, self.mesh or (self.averaging if torch.is_grad_enabled() else None))
                weights = self.theta(c, cast)
                with nullcontext() if tracking else norms.untracked(self.template):
                    outputs.append(self._run(weights, positional, named, tracking))
                entered.extend(seen[-1:])  # of the last call, where the network calls that module several times
                seen.clear()
        output = nested.join(outputs, nested.group_sizes(size, groups)) if groups > 1 else outputs[0]
        if features is None:
            return output
        if len(entered) < groups:
            raise ArgumentError(f"features={features!r}: the network ran without calling that module on a tensor")
        return Sampled(output, tuple(alphas), tuple(entered))

    def _run(
        self, weights: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], tracking: bool = True
    ) -> Any:
        return template.call(
            self.template, {name: weights[name] for name in self.layout.places}, args, kwargs, tracking
        )

    @torch.no_grad()
    def _refresh(self, inputs: tuple[tuple[Any, ...], dict[str, Any]], cast: torch.dtype | None) -> None:
        """Run the midpoint on the inputs of every so many calls, for its statistics."""
        if randomness.in_backward():
            return  # the call has been counted
        self._calls += 1
        every = self.statistics_every or 1
        if self._calls == 1 or self._calls % every == 0:  # at once too, so that there are some from the beginning
            with norms.forgetting(self.template, every):
                self._run(self.theta(self.coefficients(self.shape.midpoint()), cast), *inputs)
            sharding.average_statistics(norms.tracked(self.template).values(), self.mesh, counting=False)
            self.keep_statistics()

    def _point(self, alpha: Alpha | None) -> Any:
        if alpha is not None:
            return alpha
        return self.sample() if self.training else self.shape.midpoint().to(self._like)

    def penalty(self, beta: float | Tensor = 1.0) -> Tensor:
        """Return beta cos^2(omega_j, omega_k) for a random pair of vertices, over the penalised weights.

        Its expectation over the pairs is the paper's regularisation term; with two vertices it is exact.
        """
        if not isinstance(beta, Tensor) and not (isinstance(beta, int | float) and 0 <= beta < 1e300):
            raise ArgumentError(f"penalty(beta={values.shown(beta)}): expected a number of at least 0")
        rows = self._penalised()
        m = self.shape.vertices
        if not rows or m < 2 or (not isinstance(beta, Tensor) and beta == 0):
            return self._like.new_zeros(())
        chosen = randomness.pair(self.rng, m) if m > 2 else None
        return (beta if isinstance(beta, Tensor) else float(beta)) * geometry.cos2(rows, chosen)

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

    # Looking at the vertices

    def _penalised(self) -> list[Tensor]:
        return [self.omega[group.name] for group in self.layout.groups if group.penalised]

    def distances(self) -> geometry.Distances:
        """Return the L2 distance and cos^2 of all pairs of vertices, over the penalised weights."""
        with torch.no_grad():
            return geometry.distances(self._penalised() or list(self.omega.values()))

    def parameter_groups(self, **options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return groups for a torch optimiser, with options by group name.

        Example:
            >>> SGD(family.parameter_groups(others={"weight_decay": 0}), lr=0.1, weight_decay=1e-4)
        """
        labels = list(dict.fromkeys(group.label for group in self.layout.groups))
        for name, given in options.items():
            if not isinstance(given, Mapping):
                raise ArgumentError(f"parameter_groups({name}={values.shown(given)}): expected a dict of options")
            if name not in labels:
                raise KeyError(f"parameter_groups({name}=…): no group of that name; {nearest(name, labels)}")
        names = {label: [g.name for g in self.layout.groups if g.label == label] for label in labels}
        return [{"params": [self.omega[name] for name in names[label]], **options.get(label, {})} for label in labels]

    def extra_repr(self) -> str:
        weights = sum(omega.shape[1] for omega in self.omega.values())
        return f"{self.shape}, layerwise={self.layerwise}, {self.shape.vertices} vertices of {weights:,} weights"
