"""Cutting nested inputs along the batch and joining nested outputs again."""

import copy
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from subspaces import Line, Subspace
from subspaces.core import nested

SIZE = 7
Pair = namedtuple("Pair", ["left", "right"])


class Typed(NamedTuple):
    only: Any


@dataclass
class Record:
    first: Any
    second: Any = None


@dataclass(frozen=True, slots=True)
class Frozen:
    only: Any


@dataclass
class Derived:
    given: Any
    made: Any = field(init=False)

    def __post_init__(self) -> None:
        self.made = "made by the network"


class Attributes(OrderedDict):
    """A dict whose items are attributes too, and whose constructor takes them by name, as model outputs often are."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.__dict__.update(items)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.__dict__[key] = value


def same(first: Any, second: Any) -> bool:
    """Say whether two structures have the same containers, and equal leaves."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    one, other = nested.children(first), nested.children(second)
    if one is None or other is None:
        return first is second or bool(first == second)
    keys = not hasattr(first, "keys") or list(first) == list(second)
    return keys and len(one) == len(other) and all(map(same, one, other))


def batch(width: int) -> Tensor:
    return torch.arange(SIZE * width).view(SIZE, width)


tensors = st.builds(batch, st.integers(1, 3)) | st.builds(lambda: torch.arange(SIZE) > 3)
scalars = st.builds(lambda number: torch.tensor(float(number)), st.integers(-8, 8))
others = st.none() | st.integers() | st.text(max_size=3) | st.just(torch.float32) | st.sampled_from([Record, {1, 2}])
structures = st.recursive(
    tensors | scalars | others,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=3).map(OrderedDict),
        st.dictionaries(st.integers(), inner, max_size=3).map(lambda items: defaultdict(list, items)),
        st.builds(Pair, inner, inner),
        st.builds(Typed, inner),
        st.builds(Record, inner, inner),
        st.builds(Frozen, inner),
    ),
    max_leaves=8,
)


@settings(deadline=None, derandomize=True)
@given(structures, st.integers(1, SIZE))
def test_joining_what_was_split_gives_it_back(value, groups):
    parts = nested.split(value, SIZE, groups)
    assert len(parts) == groups
    assert same(nested.join(parts, nested.group_sizes(SIZE, groups)), value)


@settings(deadline=None, derandomize=True)
@given(structures)
def test_apply_reaches_every_tensor_and_keeps_everything_else(value):
    seen: list[Tensor] = []
    assert same(nested.apply(lambda tensor: seen.append(tensor) or tensor, value), value)
    changed = nested.apply(lambda tensor: tensor + 1 if tensor.dtype != torch.bool else ~tensor, value)
    if seen:
        assert not same(changed, value)
        back = nested.apply(lambda tensor: tensor - 1 if tensor.dtype != torch.bool else ~tensor, changed)
        assert same(back, value)
    else:
        assert same(changed, value)


def test_only_tensors_of_the_batch_are_cut():
    table, scalar = torch.zeros(SIZE + 1, 2), torch.tensor(2.0)
    for part in nested.split((torch.zeros(SIZE, 3), [table, scalar], "name"), SIZE, 2):
        assert len(part[0]) in (3, 4)
        assert part[1][0] is table
        assert part[1][1] is scalar
        assert part[2] == "name"


def test_scalars_are_averaged():
    assert nested.join([torch.tensor(1.0), torch.tensor(4.0)], [8, 4]) == 2.0
    parts = [{"loss": torch.tensor(value, requires_grad=True)} for value in (1.0, 2.0, 6.0)]
    loss = nested.join(parts, [2, 2, 2])["loss"]
    torch.testing.assert_close(loss.detach(), torch.tensor(3.0))
    loss.backward()
    assert all(part["loss"].grad.item() == pytest.approx(1 / 3) for part in parts)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_whole_number_scalars_are_averaged_too(dtype):
    assert nested.join([torch.tensor(1, dtype=dtype), torch.tensor(0, dtype=dtype)], [3, 3]) == 0.5


def test_outputs_without_the_batch_in_front_are_refused():
    with pytest.raises(
        ValueError, match=r"samples=2: .* shape \(3, 4\) for 4 examples: expected the batch in the first"
    ):
        nested.join([torch.zeros(3, 4), torch.zeros(3, 4)], [4, 4])


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(b=1, a=torch.zeros(2)),
        defaultdict(list, {"a": torch.zeros(2)}),
        Counter({"a": torch.zeros(2)}),
        UserDict({"a": torch.zeros(2)}),
        MappingProxyType({"a": torch.zeros(2)}),
        Attributes(a=torch.zeros(2), b=None),
        Pair(torch.zeros(2), 1),
        Frozen(torch.zeros(2)),
        Derived(torch.zeros(2)),
        torch.zeros(2, 2).max(dim=0),
        torch.Size([3, 4]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers_keep_their_type_and_are_not_changed(value):
    before = list(nested.children(value))
    result = nested.apply(lambda tensor: tensor + 1, value)
    assert type(result) is type(value)
    assert all(now is then for now, then in zip(nested.children(value), before, strict=True))
    for new, old in zip(nested.children(result), before, strict=True):
        assert same(new, old + 1 if isinstance(old, Tensor) else old)


def test_a_default_dict_keeps_its_default_and_a_record_its_attributes():
    assert nested.apply(torch.neg, defaultdict(list, a=torch.ones(1))).default_factory is list
    output = nested.apply(torch.neg, Attributes(logits=torch.ones(1)))
    assert torch.equal(output.logits, -torch.ones(1))
    assert torch.equal(output["logits"], -torch.ones(1))


def test_batch_size_is_the_length_of_the_first_tensor_with_one():
    assert nested.batch_size({"a": None, "b": [torch.tensor(1.0), (torch.zeros(4, 2),)], "c": torch.zeros(9)}) == 4
    assert nested.batch_size(["no", {"tensor": 1}, torch.tensor(3.0)]) is None


def test_classes_are_no_containers():
    assert nested.children(Record) is None
    assert nested.children("text") is None
    assert nested.apply(torch.neg, Record) is Record


class Outputs(nn.Module):
    """Returns what `wrap` makes of its output and loss."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x)
        return self.wrap(y, y.square().mean())


@pytest.mark.parametrize(
    "wrap",
    [Pair, Record, lambda y, loss: {"y": y, "loss": loss}, lambda y, loss: defaultdict(list, y=y, loss=loss)],
    ids=["namedtuple", "dataclass", "dict", "defaultdict"],
)
def test_a_family_joins_the_outputs_of_its_groups(wrap):
    family = Subspace(lambda: Outputs(wrap), Line(), seed=0)
    x = torch.randn(5, 3)
    joined = nested.children(family(x, samples=2))
    draws = Subspace(lambda: Outputs(wrap), Line(), seed=0)
    alphas = [draws.sample(), draws.sample()]
    parts = [nested.children(family(part, alpha=alpha)) for part, alpha in zip(x.tensor_split(2), alphas, strict=True)]
    assert torch.equal(joined[0], torch.cat([part[0] for part in parts]))
    assert torch.allclose(joined[1], (3 * parts[0][1] + 2 * parts[1][1]) / 5)  # of all five examples


@pytest.mark.parametrize("wrap", [Pair, Record, lambda y, loss: {"y": y, "loss": loss}])
def test_cutting_and_joining_compiles_without_a_break(wrap):
    torch._dynamo.reset()
    family, x = Subspace(lambda: Outputs(wrap), Line(), seed=0), torch.randn(5, 3)
    compiled = torch.compile(copy.deepcopy(family), backend="eager", fullgraph=True)
    found, expected = compiled(x=x, samples=2), family(x=x, samples=2)
    assert type(found) is type(expected)
    torch.testing.assert_close(nested.children(found), nested.children(expected))
