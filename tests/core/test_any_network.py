"""A family can be made of any network: each kind is trained, cut out, copied, pickled and cut into samples."""

import copy
import dataclasses
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from helpers import Tied, gradients
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close

import subspaces as ss

# Here a family and its networks are compared with the same statistics, whatever they are of.
pytestmark = pytest.mark.filterwarnings("ignore::subspaces.core.batchnorm.StatisticsWarning")
BATCH = 4


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return numbers from a normal distribution, the same ones at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def tokens(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).view(shape) * 7 % 10


# Networks. They are at the top level of the module so that they can be pickled.


class SelfAttention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.attention(x, x, x, key_padding_mask=mask)


class SharedPart(nn.Module):
    """Uses one module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again = self.first
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.again(torch.tanh(self.first(x)))))


class Frozen(nn.Module):
    """Has a frozen backbone, a trainable adapter, and a part whose bias alone is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(3, 4).requires_grad_(False)
        self.adapter = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)
        self.head.weight.requires_grad_(False)
        with torch.no_grad():  # what a pretrained network has: the same frozen weights each time
            self.backbone.weight.copy_(numbers(4, 3))
            self.backbone.bias.copy_(numbers(4))
            self.head.weight.copy_(numbers(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.backbone(x)
        return self.head(y + torch.tanh(self.adapter(y)))


class SeveralDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.coarse = nn.Linear(3, 8)
        self.brain = nn.Linear(8, 8, dtype=torch.bfloat16)
        self.fine = nn.Linear(8, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.fine(self.brain(torch.tanh(self.coarse(x)).bfloat16()).double())


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(3, 5, dtype=torch.complex64))
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.fft.irfft(torch.fft.rfft(x) @ self.filter))


class Buffers(nn.Module):
    """Has buffers of every sort: saved and not, written in place and replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 2)
        self.register_buffer("positions", numbers(3), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += len(x)
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.part(x + self.positions - self.mean)


class Pair(NamedTuple):
    mean: Tensor
    logit: Tensor


@dataclasses.dataclass(frozen=True)
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...]
    loss: Tensor
    cache: None = None


torch.export.register_dataclass(Output)


class Nested(nn.Module):
    """Returns its numbers in a container of the given sort."""

    def __init__(self, sort: str) -> None:
        super().__init__()
        self.sort = sort
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        hidden = torch.tanh(self.body(x))
        logits = self.head(hidden)
        loss = logits.square().mean()
        return {
            "dict": {"logits": logits, "inner": {"hidden": [hidden]}, "loss": loss, "name": "net"},
            "tuple": (logits, (hidden, loss)),
            "list": [logits, [hidden], None],
            "namedtuple": Pair(hidden, logits),
            "dataclass": Output(logits, (hidden, hidden * 2), loss),
        }[self.sort]


class RemembersLoss(nn.Module):
    """Leaves a result of the last call on itself, as mixtures of experts do with their balance loss."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 2)
        self.balance: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.part(x)
        self.balance = y.square().mean()
        return y


def conv(kind: str, dims: int) -> nn.Module:
    return getattr(nn, f"{kind}{dims}d")(2, 3, 2, stride=2, dilation=1)


def images(dims: int, channels: int = 2) -> Tensor:
    return numbers(BATCH, channels, *[4] * dims)


def normed(norm: nn.Module, dims: int = 2) -> nn.Module:
    """Return a network around a norm whose scale and shift, if it has some, are not 1 and 0."""
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    kind = [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1]
    return nn.Sequential(kind(2, 4, 2), norm, nn.Tanh(), nn.Flatten(), nn.Linear(4 * 3**dims, 2))


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to make a network, and a batch for it."""

    make: Callable[[], nn.Module]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batched: bool = True  # whether the first dimension of all inputs and outputs is the batch
    pickles: bool = True
    copies: bool = True  # as torch copies a network

    def family(self, shape: ss.Shape | None = None, **options: Any) -> ss.Subspace:
        torch.manual_seed(0)
        return ss.Subspace(self.make, shape or ss.Simplex(3), seed=0, **options)

    def __call__(self, network: nn.Module, alpha: Any = None, **options: Any) -> Any:
        args = copy.deepcopy(self.args)
        if isinstance(network, ss.Subspace):
            options["alpha"] = alpha
        return network(*args, **self.kwargs, **options)


sequence = numbers(BATCH, 5, 3)  # batch, time, channels

CASES = {
    "linear": Case(lambda: nn.Linear(3, 2), (numbers(BATCH, 3),)),
    **{f"conv{d}d": Case(lambda d=d: conv("Conv", d), (images(d),)) for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": Case(lambda d=d: conv("ConvTranspose", d), (images(d),)) for d in (1, 2, 3)},
    "channels_last": Case(lambda: nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last), (images(2),)),
    "gru": Case(lambda: nn.GRU(3, 4, 2, bidirectional=True), (sequence,), batched=False),
    "transformer": Case(
        lambda: nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True),
        (numbers(BATCH, 5, 8), numbers(BATCH, 3, 8)),
    ),
    "attention": Case(SelfAttention, (numbers(BATCH, 5, 8),), {"mask": tokens(BATCH, 5) > 6}),
    "batch_norm2d": Case(lambda: normed(nn.BatchNorm2d(4), 2), (images(2),)),
    "group_norm": Case(lambda: normed(nn.GroupNorm(2, 4)), (images(2),)),
    "weight_norm": Case(lambda: parametrizations.weight_norm(nn.Linear(3, 4)), (numbers(BATCH, 3),), pickles=False),
    "tied": Case(Tied, (tokens(BATCH, 5) % 7,)),
    "shared_part": Case(SharedPart, (numbers(BATCH, 3),)),
    "frozen": Case(Frozen, (numbers(BATCH, 3),)),
    "several_dtypes": Case(SeveralDtypes, (numbers(BATCH, 3),)),
    "complex": Case(Complex, (numbers(BATCH, 4),)),
    "buffers": Case(Buffers, (numbers(BATCH, 3),)),
    "remembers_loss": Case(RemembersLoss, (numbers(BATCH, 3),), copies=False),
    **{
        f"nested_{sort}": Case(lambda sort=sort: Nested(sort), (numbers(BATCH, 3),))
        for sort in ("dict", "tuple", "list", "namedtuple", "dataclass")
    },
}


def networks(*needs: str) -> pytest.MarkDecorator:
    """Parametrise a test over all networks that have what it needs."""
    names = [name for name, case in CASES.items() if all(getattr(case, need) for need in needs)]
    return pytest.mark.parametrize("case", [CASES[name] for name in names], ids=names)


every_network = networks()


def leaves(value: Any) -> list[Tensor]:
    """Return all tensors in an output, in order."""
    if isinstance(value, Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else []


def assert_same(actual: Any, expected: Any, **tolerance: float) -> None:
    assert type(actual) is type(expected)
    assert leaves(expected)
    assert_close(leaves(actual), leaves(expected), **tolerance)


def loss_of(output: Any) -> Tensor:
    """Return a loss that depends on every number of an output, each in its own way."""
    total = torch.zeros((), dtype=torch.float64)
    for leaf in leaves(output):
        real = torch.view_as_real(leaf) if leaf.is_complex() else leaf
        weights = torch.cos(torch.arange(real.numel(), dtype=torch.float64)).view(real.shape)
        total = total + (weights * real.double()).sum() + (0.1 * real.double().square()).sum()
    return total


def trained(case: Case, **options: Any) -> ss.Subspace:
    """Return a family after two steps of SGD."""
    family = case.family(**options)
    optimizer = torch.optim.SGD(family.parameters(), lr=1e-2)
    for _ in range(2):
        loss = loss_of(case(family)) + family.penalty(0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return family


ALPHA = [0.5, 0.2, 0.3]


@every_network
def test_gradient_of_each_vertex_is_its_coefficient_times_that_of_the_network(case: Case):
    family = case.family()
    network = family.at(ALPHA)
    loss = loss_of(case(family, ALPHA))
    loss.backward()
    expected = loss_of(case(network))
    expected.backward()
    assert_close(loss, expected)
    parameters = {name: p for name, p in network.named_parameters(remove_duplicate=False) if p.requires_grad}
    for index, coefficient in enumerate(ALPHA):
        vertex = gradients(family, index)
        assert set(vertex) == set(parameters)
        for name, parameter in parameters.items():
            assert vertex[name].isfinite().all()
            assert vertex[name].abs().max() > 0, name
            tolerance = (
                {"rtol": 2e-2, "atol": 1e-2} if parameter.dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
            )
            assert_close(vertex[name], coefficient * parameter.grad, **tolerance)


@every_network
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_network_cut_out_gives_the_same_output(case: Case, mode: bool):
    family = trained(case).train(mode)
    network = family.at(ALPHA).train(mode)
    assert_same(case(network), case(family, ALPHA))
    assert_same(case(network.eval()), case(family.eval(), ALPHA))  # what they remember is the same as well
    plain = case.make()  # which takes its state
    plain.load_state_dict(network.state_dict(), strict=True)
    assert_same(case(plain.eval()), case(family, ALPHA))
    described = [[(n, p.dtype, p.shape, p.requires_grad) for n, p in m.named_parameters()] for m in (network, plain)]
    assert described[0] == described[1]


@networks("copies")
def test_copies_after_training_are_whole(case: Case):
    family = trained(case)
    copies = [copy.deepcopy(family)]
    if case.pickles:
        copies.append(pickle.loads(pickle.dumps(family)))
    expected = [case(family), case(family.eval(), ALPHA)]
    for other in copies:
        assert_same(case(other), expected[0])  # draws the same alpha
        assert_same(case(other.eval(), ALPHA), expected[1])
        loss_of(case(other, ALPHA)).backward()  # and can be trained on
        assert all(parameter.grad.isfinite().all() for parameter in other.omega.values())


def joined(values: list[Any]) -> list[Tensor]:
    """Put the tensors of several outputs together, independently of the package."""
    columns = zip(*[leaves(value) for value in values], strict=True)
    return [torch.cat(column) if column[0].ndim else torch.stack(column).mean() for column in columns]


@networks("batched", "copies")
def test_samples_cut_inputs_and_join_outputs(case: Case):
    family = trained(case)
    twin = copy.deepcopy(family)
    whole = case(family, samples=2)

    def half(part: slice) -> Any:
        def cut(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(cut, value))
            return value[part] if isinstance(value, Tensor) else value

        kwargs = {name: cut(value) for name, value in case.kwargs.items()}
        return dataclasses.replace(case, args=cut(case.args), kwargs=kwargs)

    alphas = [twin.sample(), twin.sample()]
    assert not torch.equal(*alphas)
    halves = [half(slice(2))(twin, alphas[0]), half(slice(2, None))(twin, alphas[1])]
    assert type(whole) is type(halves[0])
    assert_close(leaves(whole), joined(halves))
    loss_of(whole).backward()
    for index in range(3):
        assert all(gradient.isfinite().all() for gradient in gradients(family, index).values())


@every_network
def test_layerwise(case: Case):
    family = case.family(ss.Line(), layerwise=True)
    alpha = family.sample()
    assert alpha.shape == (len(family.layers),)
    loss_of(case(family)).backward()
    for index in range(2):
        assert all(gradient.abs().max() > 0 for gradient in gradients(family, index).values())
    family.eval()
    assert_same(case(family.at(alpha).eval()), case(family, alpha))


# What is particular to one kind


def test_several_dtypes_are_kept():
    family = trained(CASES["several_dtypes"])
    assert {omega.dtype for omega in family.omega.values()} == {torch.float32, torch.bfloat16, torch.float64}
    network = family.midpoint()
    assert network.brain.weight.dtype == torch.bfloat16
    assert network.fine.bias.dtype == torch.float64
    assert family.sample().dtype == torch.float64  # alpha is as fine as the finest weight
