"""Nested batches and outputs: moved, cut along the batch and joined again."""

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from subspaces import Line, Subspace, UserError
from subspaces.core import nested

Pair = namedtuple("Pair", ["left", "right"])


def test_apply_reaches_every_tensor_keeps_everything_else_and_changes_nothing():
    one, two = torch.arange(3), torch.ones(2, 2)
    value = OrderedDict(a=[one, None, "text"], b=(Pair(two, 3),), c=UserDict(d=one), e=defaultdict(list, f=[two]))
    changed = nested.apply(lambda tensor: tensor + 1, value)
    assert isinstance(changed, OrderedDict)
    assert torch.equal(changed["a"][0], one + 1)
    assert changed["a"][1:] == [None, "text"]
    assert isinstance(changed["b"][0], Pair)
    assert torch.equal(changed["b"][0].left, two + 1)
    assert isinstance(changed["c"], UserDict)
    assert torch.equal(changed["c"]["d"], one + 1)
    assert changed["e"].default_factory is list
    assert torch.equal(changed["e"]["f"][0], two + 1)
    assert value["c"]["d"] is one
    assert [id(tensor) for tensor in nested.tensors(value)] == [id(each) for each in (one, two, one, two)]


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


@dataclasses.dataclass
class Scene:
    x: torch.Tensor
    scale: torch.Tensor


class Opaque:
    """Holds a tensor where nobody finds it."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.head(batch.x * getattr(batch, "scale", 1.0))


def test_a_dataclass_is_cut_into_groups_and_what_cannot_be_is_refused() -> None:
    family = Subspace(Scaled, Line())
    rows: list[int] = []
    family.template.head.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    assert family(Scene(torch.randn(10, 4), torch.ones(10, 4)), samples=4).shape == (10, 3)
    assert rows == [3, 3, 2, 2]
    with pytest.raises(UserError, match=r"samples=4: found no tensor to cut in the inputs \(Opaque\)"):
        family(Opaque(torch.randn(10, 4)), samples=4)
    assert family(Scene(torch.randn(0, 4), torch.ones(0, 4)), samples=4).shape == (0, 3)


@dataclasses.dataclass(frozen=True)
class Masked:
    x: torch.Tensor
    mask: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", torch.zeros(len(self.x)))


def test_a_dataclass_is_changed_as_it_is_and_not_made_anew() -> None:
    batch = Masked(torch.randn(4, 2))
    object.__setattr__(batch, "mask", torch.ones(4))
    found = nested.apply(lambda tensor: tensor[:2], batch)
    assert (len(found.x), len(batch.x)) == (2, 4)
    assert torch.equal(found.mask, torch.ones(2))
    assert nested.batch_size(batch) == 4
