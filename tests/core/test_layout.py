import torch
from helpers import Small, quick
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from subspaces.core.layout import Layout

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@st.composite
def parameters(draw: st.DrawFn) -> nn.Parameter:
    """Draw a parameter of 0 to 5 dimensions, in row-major, channels-last or any other dense memory order."""
    shape = draw(st.lists(st.integers(1, 4), max_size=5))
    value = torch.randn(shape)
    order = draw(st.sampled_from(["rows", "channels last", "permuted"]))
    if order == "channels last" and value.ndim in FORMATS:
        value = value.contiguous(memory_format=FORMATS[value.ndim])
    elif order == "permuted":
        value = value.permute(draw(st.permutations(range(value.ndim))))
    return nn.Parameter(value)


def dense_order(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """The strides that matter: those of dimensions longer than one."""
    return [(dim, stride) for dim, stride in enumerate(tensor.stride()) if tensor.shape[dim] > 1]


def network(*parts: nn.Parameter) -> nn.ParameterList:
    return nn.ParameterList(parts)


def names(layout: Layout) -> dict[str, list[str]]:
    return {group.name: [entry.names[0] for entry in group.entries] for group in layout.groups}


@quick
@given(st.lists(parameters(), min_size=1, max_size=5))
def test_pack_and_unpack_are_inverse(parts):
    module = network(*parts)
    layout = Layout.of(module)
    named = dict(module.named_parameters())
    unpacked = {}
    for group in layout.groups:
        row = group.pack(named)
        assert row.shape == (sum(group.sizes),)
        assert not row.requires_grad
        unpacked |= group.unpack(row)
        for name, view in group.unpack(row).items():
            assert view.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()
            assert dense_order(view) == dense_order(named[name])
            assert view.is_contiguous() or not named[name].is_contiguous()
    assert unpacked.keys() == named.keys()
    assert all(torch.equal(unpacked[name], named[name]) for name in named)


def test_groups_by_label_and_penalty():
    labels = {name: name.partition(".")[0] for name, _ in Small().named_parameters()}
    layout = Layout.of(Small(), lambda name, p: name == "conv.weight", labels)
    assert names(layout) == {
        "conv_penalised_layers": ["conv.weight"],
        "conv_free_rest": ["conv.bias"],
        "norm": ["norm.weight", "norm.bias"],
        "head_layers": ["head.weight"],
        "head_rest": ["head.bias"],
    }
    assert [group.name for group in layout.groups if group.penalised] == ["conv_penalised_layers"]
    assert [group.label for group in layout.groups] == ["conv", "conv", "norm", "head", "head"]


def test_shared_modules_are_one_layer():
    part = nn.Linear(3, 3)
    layout = Layout.of(nn.Sequential(part, nn.ReLU(), part))
    assert layout.layers == ("0",)
    assert layout.entries["2.weight"] is layout.entries["0.weight"]
