"""Nested batches and outputs: moved, cut along the batch and joined again."""

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any, NamedTuple

import pytest
import torch
from helpers import quick
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from subspaces import Line, Subspace
from subspaces.core import nested

Pair = namedtuple("Pair", ["left", "right"])


class Typed(NamedTuple):
    only: Any


tensors = st.builds(lambda width: torch.arange(7 * width).view(7, width), st.integers(1, 3))
others = st.none() | st.integers() | st.text(max_size=3) | st.just(torch.float32)
structures = st.recursive(
    tensors | others,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=3).map(OrderedDict),
        st.dictionaries(st.integers(), inner, max_size=3).map(lambda items: defaultdict(list, items)),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(UserDict),
        st.builds(Pair, inner, inner),
        st.builds(Typed, inner),
    ),
    max_leaves=8,
)


def plain(value: Any) -> Any:
    """Return a structure with its tensors as lists and the types of its containers, to compare."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (dict, UserDict)):
        return type(value), [(key, plain(part)) for key, part in value.items()]
    return (type(value), [plain(part) for part in value]) if isinstance(value, (list, tuple)) else value


@quick
@given(structures)
def test_apply_reaches_every_tensor_keeps_everything_else_and_changes_nothing(value):
    before = plain(value)
    seen: list[Tensor] = []
    changed = nested.apply(lambda tensor: seen.append(tensor) or tensor + 1, value)
    assert plain(value) == before
    assert [tensor.tolist() for tensor in nested.tensors(value)] == [tensor.tolist() for tensor in seen]
    assert (plain(changed) == before) == (not seen)
    assert plain(nested.apply(lambda tensor: tensor - 1, changed)) == before


def test_sizes_of_batches():
    assert nested.batch_size({"a": None, "b": [torch.tensor(1.0), (torch.zeros(4, 2),)], "c": torch.zeros(9)}) == 4
    assert nested.batch_size(["no", {"tensor": 1}, torch.tensor(3.0)]) is None
    assert nested.is_empty((torch.zeros(0, 3), {"y": torch.zeros(0)}))
    assert not nested.is_empty((torch.zeros(0, 3), torch.zeros(1)))
    assert not nested.is_empty("no tensors")


class Outputs(nn.Module):
    """Returns what `wrap` makes of its output and loss."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.wrap = wrap

    def forward(self, x: Tensor, table: Tensor | None = None) -> Any:
        y = self.linear(x) if table is None else self.linear(x) @ table
        return self.wrap(y, y.square().mean())


def family_of(wrap: Any) -> Subspace:
    torch.manual_seed(0)
    return Subspace(lambda: Outputs(wrap), Line(), seed=0)


def test_whole_numbers_are_averaged_and_what_is_no_tensor_is_that_of_the_first_group():
    found = family_of(lambda y, loss: [y, torch.tensor(len(y)), "net", None])(torch.randn(5, 3), samples=2)
    assert_close(found[1], torch.tensor((3 * 3 + 2 * 2) / 5))
    assert found[2:] == ["net", None]


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda y, loss: y.T, r"samples=2: .* shape \(2, 2\) for 2 examples|expected the batch in the first dimension"),
        (lambda y, loss: torch.distributions.Normal(y, 1.0), "samples=2: the network returned a Normal, and only"),
    ],
)
def test_outputs_that_cannot_be_joined_are_refused(wrap, words):
    with pytest.raises(ValueError, match=words):
        family_of(wrap)(torch.randn(5, 3), samples=2)
