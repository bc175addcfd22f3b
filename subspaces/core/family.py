"""A family of networks: every point of a line, curve or simplex in weight space is one."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, distributed, functional, geometry, optimizer_groups, randomness
from subspaces.core.alpha import Alpha
from subspaces.core.ensemble import Average, Ensemble
from subspaces.core.features import Sampled, similarity
from subspaces.core.initial import Factory, Init, applied, check_start, given_networks, initial_networks, offsets
from subspaces.core.layout import Layout, Predicate, is_weight
from subspaces.core.optimizer_groups import GetGroups
from subspaces.core.running import Running
from subspaces.core.selection import select
from subspaces.core.shapes import Shape, check_shape
from subspaces.errors import ArgumentError


class Subspace(Running):
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
        init, offset = check_start(network, init, offset)
        networks = initial_networks(network, shape.vertices, init)
        self.shape = shape
        self.layerwise = checks.flag("layerwise", layerwise)
        self.cast_weights = False
        """Under autocast, cast the weights of all linear layers and convolutions at once: quicker, and the same for a
        network that uses them in their own layers and under autocast alone."""
        made = None if groups is None else optimizer_groups.grouped(networks[0], groups)
        self.layout = Layout.of(networks[0], penalised, None if made is None else made.labels)
        self.options = None if made is None else made.options
        """The options of the optimiser groups that `groups=` made; None without it."""
        rows = [dict(vertex.named_parameters(remove_duplicate=False)) for vertex in networks]
        self.omega = nn.ParameterDict(
            {part.name: torch.stack([part.pack(row) for row in rows]) for part in self.layout.groups}
        )
        self.template = networks[0]
        self._prepare()
        functional.fill(self.template, dict.fromkeys(self.layout.entries))
        seed = int(torch.randint(2**62, ())) if seed is None else checks.whole("seed", seed, -(2**63), 2**63 - 1)
        if offset and shape.vertices > 1:
            self._set_apart(offset, torch.Generator().manual_seed(seed))
        self.register_buffer("rng", randomness.new_state(seed).to(next(iter(self.omega.values())).device))
        if statistics_every is not None:
            checks.whole("statistics_every", statistics_every, 1, 10**9, beside=", or None")
            batchnorm.apart.begin()
        self.statistics_every = statistics_every
        self.begin_statistics(known=init == "point")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.statistics_every is not None:  # in a process that has made no such family yet
            batchnorm.apart.begin()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo.update(functional.memo(self.template))
        make, args, state, *_ = self.__reduce_ex__(2)
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
        return cls(lambda: functional.copied(next(networks)), shape, layerwise, init="independent", **options)

    # The points of the family

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers: the modules that directly own trainable parameters."""
        return self.layout.layers

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
        self._check_same(coefficients, self.mesh)
        return self._network(self.theta(coefficients), share)

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
        applied(fn, networks)
        rows = [dict(network.named_parameters(remove_duplicate=False)) for network in networks]
        found = {group.name: torch.stack([group.pack(row) for row in rows]) for group in self.layout.groups}
        self.template = networks[0]
        functional.fill(self.template, dict.fromkeys(self.layout.entries))
        functional.forget(self.template)
        self._prepare()
        if any(not torch.equal(self.omega[name], value) for name, value in found.items()):
            for name, value in found.items():
                self.omega[name].copy_(value)
            self.keep_statistics(known=not batchnorm.batches(self.template))
        return self

    def penalty(self, beta: float | Tensor = 1.0) -> Tensor:
        """Return beta cos^2(omega_j, omega_k) for a random pair of vertices, over the penalised weights.

        Its expectation over the pairs is the paper's regularisation term; with two vertices it is exact.
        """
        number = isinstance(beta, int | float) and not isinstance(beta, bool) and 0 <= beta < 1e300
        if not (geometry.is_number(beta) if isinstance(beta, Tensor) else number):
            raise ArgumentError(f"penalty(beta={checks.shown(beta)}): expected a number of at least 0")
        rows = self._penalised()
        m = self.shape.vertices
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

    select = select

    # Looking at the vertices

    def _penalised(self) -> list[Tensor]:
        omega = self._modules["omega"]
        return [getattr(omega, group.name) for group in self.layout.groups if group.penalised]

    def distances(self) -> geometry.Distances:
        """Return the L2 distance and cos^2 of all pairs of vertices, over the penalised weights."""
        with torch.no_grad():
            return geometry.distances(self._penalised() or list(self.omega.values()))

    def parameter_groups(self, **options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return groups for a torch optimiser, with options by group name.

        Example:
            >>> SGD(family.parameter_groups(others={"weight_decay": 0}), lr=0.1, weight_decay=1e-4)
        """
        return optimizer_groups.parameter_groups(self.layout, self.omega, self.options, options)

    def extra_repr(self) -> str:
        weights = sum(omega.shape[1] for omega in self.omega.values())
        return f"{self.shape}, layerwise={self.layerwise}, {self.shape.vertices} vertices of {weights:,} weights"
