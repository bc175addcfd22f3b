"""The module that is exported: from the tensors of an example to named tensors, with images normalised inside.

Of a family, alpha is an input. Its batch-norm statistics belong to a point: they are measured at anchors a_1 … a_k and
mixed by a basis with b_i(a_j) = [i = j]:

    statistics(alpha) = sum_i b_i(alpha) statistics(a_i)

    a number in [0, 1]   hat functions on 11 points, b_i = max(0, 1 - |10 alpha - i|)
    a simplex            vertices, b_i = alpha_i (2 alpha_i - 1), and middles of edges, b_ij = 4 alpha_i alpha_j
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from subspaces.core import checks
from subspaces.core._compat import pytree
from subspaces.core.batchnorm import tracked
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.outputs import OutputCheck, prediction
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError
from subspaces.evaluation.tasks import SHAPES, Classification
from subspaces.export import ExportError

PIECES = 10  # of the interval
BETWEEN = (0.05, 0.35, 0.65, 0.95)  # in the middle of four pieces, where the error is largest
EXPECTED = "a few inputs of the network, such as torch.rand(16, 3, 32, 32), a tuple of tensors, or a dict of them"


# Examples


@dataclass(frozen=True)
class Inputs:
    """An example of a network's inputs: its tensors, in order, with the names of the arguments that they are in."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    form: Any  # of the arguments and keyword arguments, in which the tensors are the leaves

    @classmethod
    def of(cls, network: nn.Module, example: Any) -> Self:
        """Return an example of a network's inputs, checked: one tensor, a tuple or list, or a dict by keyword."""
        keyword = isinstance(example, Mapping)
        args = () if keyword else tuple(example) if isinstance(example, (tuple, list)) else (example,)
        try:
            signature = inspect.signature(network.forward)
            bound = signature.bind(*args, **(example if keyword else {}))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"example= does not fit the inputs of {type(network).__name__} ({error}): expected {EXPECTED}"
            ) from None
        leaves, form = pytree.tree_flatten((bound.args, bound.kwargs))
        if not any(isinstance(each, Tensor) and each.ndim for each in leaves):
            raise ArgumentError(f"example={checks.shown(example)}: expected {EXPECTED}")
        for each in leaves:
            if not isinstance(each, Tensor):
                raise ArgumentError(
                    f"example has {checks.shown(each)}: expected tensors alone; give constants a default"
                )
            if each.layout != torch.strided or each.is_meta or not each.numel():
                raise ArgumentError(f"example has a tensor {tuple(each.shape)}, {each.dtype}: expected {EXPECTED}")
        arguments = dict(bound.arguments)
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(parameter.name, {})
        names = unique(name for name, _ in _named_leaves(arguments))
        if len(names) == 1 and not keyword and leaves[0].ndim == 4 and leaves[0].is_floating_point():
            names = ("images",)
        return cls(names, tuple(each.detach().cpu().contiguous() for each in leaves), form)

    def arguments(self, tensors: Iterable[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments and keyword arguments of the network that hold these tensors."""
        args, kwargs = pytree.tree_unflatten(list(tensors), self.form)
        return args, kwargs

    @property
    def count(self) -> int:
        """The number of examples: the first length of the first tensor that has any."""
        return next(len(each) for each in self.tensors if each.ndim)

    @property
    def batched(self) -> list[int | None]:
        """The dimension of the batch in each tensor: the first one of its length, None where there is none."""
        return [next((dim for dim, size in enumerate(each.shape) if size == self.count), None) for each in self.tensors]

    def resized(self) -> tuple[Tensor, ...]:
        """Return one example of several, or two of one."""
        return tuple(
            x if dim is None else x.narrow(dim, 0, 1).contiguous() if self.count > 1 else torch.cat([x, x], dim)
            for x, dim in zip(self.tensors, self.batched, strict=True)
        )

    def __str__(self) -> str:
        pairs = zip(self.names, self.tensors, strict=True)
        return ", ".join(f"{name} of shape {tuple(each.shape)} and {each.dtype}" for name, each in pairs)


def _named_leaves(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return what nested containers hold, with the keys, fields and places that lead there as names: `name_0_key`."""
    found, _ = pytree.tree_flatten_with_path(dict(value) if isinstance(value, Mapping) else value)
    return [(re.sub(r"\W+", "_", prefix + pytree.keystr(path)).strip("_"), leaf) for path, leaf in found]


def unique(names: Iterable[str], taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names as identifiers, each of them once."""
    found = list(taken)
    for name in names:
        base = re.sub(r"\W|^(?=\d)", "_", name) or "output"
        numbered = (f"{base}_{number}" for number in range(1, len(found) + 1))
        found.append(next(each for each in (base, *numbered) if each not in found))
    return tuple(found[len(taken) :])


# Families


def anchors(shape: Shape) -> list[Any]:
    """Return the points where statistics are measured."""
    if not shape.point:
        return [index / PIECES for index in range(PIECES + 1)]
    m = shape.vertices
    ends = (chosen for size in (1, 2) for chosen in combinations(range(m), size))
    return [[1 / len(chosen) if index in chosen else 0.0 for index in range(m)] for chosen in ends]


def basis(shape: Shape, alpha: Tensor) -> Tensor:
    """Return the weight of each anchor at alpha: [*point] -> [k]."""
    if not shape.point:
        places = torch.arange(PIECES + 1, dtype=alpha.dtype, device=alpha.device)
        return F.relu(1 - (PIECES * alpha - places).abs())
    edges = [4 * alpha[i] * alpha[j] for i, j in combinations(range(shape.vertices), 2)]
    return torch.cat([alpha * (2 * alpha - 1), torch.stack(edges)])


def inside(shape: Shape, alpha: Tensor) -> Tensor:
    """Return the nearest point of the domain, since a graph cannot refuse one that is off it."""
    if not shape.point:
        return alpha.clamp(0, 1)
    positive = alpha.clamp(min=0)
    return positive / positive.sum()


def between(shape: Shape) -> list[Any]:
    """Return points far from all anchors, where mixed statistics are compared with measured ones."""
    if not shape.point:
        return list(BETWEEN)
    centre = shape.midpoint()
    return [centre.tolist(), *((centre + torch.eye(shape.vertices)[:3]) / 2).tolist()]


class WholeFamily(nn.Module):
    """A family as a module that takes alpha; `networks` are those at all anchors, with statistics of their own."""

    def __init__(self, family: Subspace, networks: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.family = family
        self.norms = [
            f"{name}.{kind}"
            for name, norm in (tracked(networks[0]).items() if networks else ())
            for kind in ("running_mean", "running_var")
            if getattr(norm, kind) is not None
        ]
        for index, name in enumerate(self.norms):
            measured = torch.stack([each.get_buffer(name) for each in networks])  # [k, channels]
            self.register_buffer(f"statistics_{index}", measured.detach())
        if self.norms:
            family.keep_statistics()  # those of the point, which `forward` fills in

    def forward(self, alpha: Tensor, *args: Any, **kwargs: Any) -> Any:
        family, filled = self.family, dict[str, Tensor]()
        alpha = inside(family.shape, alpha.to(next(iter(family.omega.values())).dtype))
        weights = basis(family.shape, alpha)
        for index, name in enumerate(self.norms):
            mixed = weights @ self.get_buffer(f"statistics_{index}")
            filled[f"template.{name}"] = mixed.clamp(min=0) if name.endswith("_var") else mixed  # a parabola may dip
        return torch.func.functional_call(family, filled, args, {**kwargs, "alpha": alpha})


# Programs


class Program(nn.Module):
    """From the tensors of a network's inputs to its answer: one tensor or several.

    A classification gives `probabilities`, and of `several` networks `disagreement`; `task=None` outputs as they are.
    `shape` is that of a family; its alpha is the last input.
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self,
        network: Any,
        inputs: Inputs,
        task: Classification | None,
        *,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        several: bool = False,
        shape: Shape | None = None,
    ) -> None:
        super().__init__()
        self.network, self.inputs, self.task, self.several, self.shape = network, inputs, task, several, shape
        self.names = inputs.names if shape is None else (*inputs.names, "alpha")
        first = inputs.tensors[0]
        for name, numbers in (("mean", mean), ("std", std)):
            sides = [1] * (first.ndim - 2)
            value = torch.tensor(list(numbers), dtype=first.dtype).view(-1, *sides) if numbers else None
            self.register_buffer(name, value)

    def forward(self, *tensors: Tensor) -> Any:
        found = tuple(self.answer(*tensors).values())
        return found if len(found) > 1 else found[0]

    def with_alpha(self, tensors: Sequence[Tensor], alpha: Any = None) -> tuple[Tensor, ...]:
        """Return all inputs of a call; a family's alpha is by default the midpoint."""
        if self.shape is None:
            return tuple(tensors)
        return *tensors, (self.shape.midpoint() if alpha is None else torch.tensor(alpha)).float()

    def output(self, *tensors: Tensor, of: Any = None) -> Any:
        """Return the output of the network, by default of its call, for inputs that are normalised first."""
        given = list(tensors)
        alpha = [] if self.shape is None else [given.pop()]
        if self.mean is not None and self.std is not None:
            given[0] = (given[0] - self.mean) / self.std
        args, kwargs = self.inputs.arguments(given)
        return (of or self.network)(*alpha, *args, **kwargs)

    def answer(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Return the answer to some inputs by its names, none of which is that of an input."""
        found = _named(self.output(*tensors)) if self.task is None else self._classified(*tensors)
        return dict(zip(unique((name for name, _ in found), self.names), (each for _, each in found), strict=True))

    def _classified(self, *tensors: Tensor) -> list[tuple[str, Tensor]]:
        predicted = self.output(*tensors, of=self.network.predict) if self.several else None
        found = predicted.output if predicted else self.output(*tensors)
        if self.network.average == "logits":
            found = found.softmax(self.network.dim)
        return [("probabilities", found), *([("disagreement", predicted.disagreement)] if predicted else [])]


def _named(output: Any) -> list[tuple[str, Tensor]]:
    """Return the tensors of an output with names: keys and fields, or `output_0` and so on for the parts of a tuple."""
    prefix = "output" if isinstance(output, (Tensor, list)) or type(output) is tuple else ""
    found = [(name, each) for name, each in _named_leaves(output, prefix) if each is not None]
    if not found or not all(isinstance(each, Tensor) for _, each in found):
        raise ExportError(
            f"the network returns a {type(output).__name__}{' with other things than tensors' if found else ''}: "
            "expected tensors, or tuples and dicts of them; wrap it in a module that returns these"
        )
    return found


def answering(task: Classification, network: nn.Module, output: Any) -> Ensemble:
    """Return a network as the ensemble, perhaps of one member, that answers with the probabilities of the classes.

    `output` is that of the network, or of the first member of an ensemble, which knows how it averages.
    """
    like = network if isinstance(network, Ensemble) else Ensemble([network], outputs=task.outputs)
    if like.average not in ("probabilities", "logits"):
        raise ExportError(f"the ensemble has average={like.average!r}: pass task='outputs' for its outputs as they are")
    outputs = task.outputs or like.member_outputs
    if outputs != (like.member_outputs or outputs):
        raise ExportError(f"outputs={outputs!r}: the ensemble was told outputs={like.member_outputs!r}")
    select: Callable[[Any], Any] = like.select or (lambda output: output)
    expected = (
        f"logits of shape {SHAPES[task.of].partition(' for')[0]} of two classes or more; pass task='outputs' for "
        "outputs as they are, or 'tokens' or 'pixels' for classes"
    )
    found, dim = prediction(select(output), expected), 1 if task.of == "pixels" else -1
    fits = {"examples": found.ndim == 2, "tokens": found.ndim == 3, "pixels": found.ndim > 2}[task.of]
    if not fits or found.shape[dim] < 2:
        raise ExportError(f"the network returns a tensor of shape {tuple(found.shape)}: expected {expected}")
    OutputCheck(outputs)(found, dim)
    average: Any = like.average
    return Ensemble(
        like.members, average, dim=dim, select=lambda output: prediction(select(output)), outputs=outputs or "logits"
    )
