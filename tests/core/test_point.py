"""The network itself at one point: `with family.point() as net`."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import subspaces as ss
from subspaces.core import batchnorm


class Net(nn.Module):
    """A network with methods, an attribute and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 3
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5))
        self.head, self.twin = nn.Linear(6, 3), nn.Linear(6, 3)
        self.twin.weight = self.head.weight

    @property
    def norm(self) -> Tensor:
        return self.head.weight.norm()

    def embed(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x)) + self.twin(self.embed(x))


def made(shape: ss.Shape | None = None, make: Any = Net, **options: Any) -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(make, shape or ss.Line(), seed=0, **options)


x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("shape", [ss.Line(), ss.Bezier(), ss.Simplex(3)], ids=repr)
def test_the_network_is_at_one_point_with_all_its_methods(shape, layerwise):
    family = made(shape, layerwise=layerwise)
    alpha = family.sample()
    plain = family.at(alpha)
    with family.point(alpha) as net:
        assert type(net) is Net
        assert net.size == 3
        net.body[2].eval(), plain.body[2].eval()
        assert_close(net.embed(x), plain.embed(x))
        assert_close(net(x), plain(x))
        assert_close(net.norm, plain.norm)
        assert net.head.weight is net.twin.weight
        names, parameters = zip(*net.named_parameters(), strict=True)
        assert names == tuple(name for name, _ in plain.named_parameters())
        for found, expected in zip(parameters, plain.parameters(), strict=True):
            assert_close(found, expected)
        net(x).square().sum().backward()
    plain(x).square().sum().backward()
    c = family.coefficients(alpha)
    for group in family.layout.groups:
        row = group.pack({name: parameter.grad for name, parameter in plain.named_parameters(remove_duplicate=False)})
        coefficients = c[group.name]
        columns = coefficients[:, None] if coefficients.ndim == 1 else coefficients
        assert_close(family.omega[group.name].grad, columns * row)


def test_train_mode_draws_and_eval_mode_is_the_midpoint():
    family, twin = made(), made()
    with family.point() as net:
        first = net.head.weight.clone()
        assert torch.equal(net.head.weight, first)
    with family.point() as net:
        assert not torch.equal(net.head.weight, first)
    assert torch.equal(first, twin.at(twin.sample()).head.weight)
    with family.eval().point() as net:
        assert not net.training
        assert torch.equal(net.head.weight, family.midpoint().head.weight)
        assert torch.equal(net(x), family(x))


def test_nothing_is_left_behind_also_after_an_error():
    family = made()
    keys = list(family.state_dict())
    with pytest.raises(RuntimeError, match="shapes"), family.point() as net:
        net.eval()(torch.randn(2, 2))
    assert not list(family.template.parameters())
    assert list(family.state_dict()) == keys
    assert all(part.training for part in family.modules())
    with family.point():
        family.eval()
    assert not any(part.training for part in family.modules())
    copy.deepcopy(family)


def test_blocks_nest_and_calls_inside_have_points_of_their_own():
    family = made()
    ends = family.at(0.0).eval(), family.at(1.0).eval()
    family.eval()
    with family.point(0.0) as first:
        assert_close(first(x), ends[0](x))
        with family.point(1.0) as second:
            assert_close(second(x), ends[1](x))
            assert_close(family(x, alpha=0.0), ends[0](x))
            assert_close(second(x), ends[1](x))
        assert_close(first(x), ends[0](x))
        assert_close(family(x), family.midpoint()(x))
        assert_close(family.at(1.0)(x), ends[1](x))
        assert_close(first(x), ends[0](x))


def test_the_family_is_itself_inside_a_block(tmp_path):
    family = made()
    state, names = family.state_dict(), [name for name, _ in family.named_parameters()]
    head = family.vertex(1)["head.weight"].clone()
    optimizer = torch.optim.SGD(family.parameters(), lr=0.1)
    with family.point() as net:
        net(x).sum().backward()
        assert [name for name, _ in family.named_parameters()] == names
        torch.nn.utils.clip_grad_norm_(family.parameters(), 1.0)
        assert list(family.state_dict()) == list(state)
        ss.save(family, tmp_path / "family.safetensors")
        optimizer.step()
        family.zero_grad()
    assert_close(ss.load(tmp_path / "family.safetensors", Net).vertex(1)["head.weight"], head)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def test_a_block_is_refused_where_statistics_every_cannot_see_the_inputs():
    family = made(make=normed, statistics_every=2)
    with pytest.raises(ValueError, match=r"statistics_every=.*call family\(x\), .*recalibrate"), family.point():
        pass
    family(x)
    with family.eval().point() as net:
        assert_close(net(x), family(x))
    with made(statistics_every=2).point() as net:  # without norms
        net(x)


def test_statistics_that_belong_to_no_point_are_told():
    family = made(make=normed)
    with family.point() as net:
        net(x)
    with pytest.warns(batchnorm.StatisticsWarning, match="recalibrate") as found, family.eval().point():
        pass
    assert found[0].filename == __file__


def test_predictions_at_random_points_are_told_once():
    family = made()
    with torch.no_grad():
        with pytest.warns(batchnorm.RandomPointWarning, match=r"family.eval\(\).*or pass alpha=") as found:
            family(x)
        assert found[0].filename == __file__
        family(x)
        with pytest.warns(batchnorm.RandomPointWarning) as found, made().point():
            pass
        assert found[0].filename == __file__
        made()(x, alpha=0.3)
        made().eval()(x)
        ss.Subspace(Net, ss.Point())(x)
    ss.recalibrate(made(make=normed), [x])
    made(make=normed, statistics_every=1)(x)


@pytest.mark.parametrize("whole", [True, False])
def test_compiled_code_may_use_a_block(whole):
    family, expected = (made(make=lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh())) for _ in range(2))

    def loss(family: Any) -> Tensor:
        with family.point(torch.tensor(0.25)) as net:
            return net(x).square().sum() + net[0](x).sum()

    compiled = torch.compile(loss, backend="eager") if whole else loss
    target = family if whole else torch.compile(family, backend="eager")
    for _ in range(2):
        compiled(target).backward()
        loss(expected).backward()
    for found, wanted in zip(family.parameters(), expected.parameters(), strict=True):
        assert_close(found.grad, wanted.grad)
    assert not list(family.template.parameters())


# Patterns of public training scripts


class LanguageModel(nn.Module):
    """That of pytorch/examples, in small: tied weights and a hidden state that the script keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(9, 6), nn.LSTM(6, 6, 2), nn.Linear(6, 9)
        self.decoder.weight = self.encoder.weight

    def init_hidden(self, batch: int) -> tuple[Tensor, Tensor]:
        weight = next(self.parameters())
        return weight.new_zeros(2, batch, 6), weight.new_zeros(2, batch, 6)

    def forward(self, tokens: Tensor, hidden: Any) -> tuple[Tensor, Any]:
        found, hidden = self.rnn(self.encoder(tokens), hidden)
        return self.decoder(found).log_softmax(-1), hidden


def test_an_lstm_language_model_keeps_its_hidden_state() -> None:
    family, tokens = made(make=LanguageModel), torch.randint(9, (3, 4, 2))
    optimizer = torch.optim.SGD(family.parameters(), lr=0.1)
    with pytest.raises(AttributeError, match=r"net.init_hidden"):
        family.init_hidden(2)
    with family.point() as net:
        hidden = net.init_hidden(2)
    for part in tokens:
        hidden = tuple(each.detach() for each in hidden)
        optimizer.zero_grad()
        with family.point() as net:
            found, hidden = net(part[:-1], hidden)
            F.nll_loss(found.flatten(0, 1), part[1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(family.parameters(), 0.25)
        optimizer.step()
    family.eval()
    plain = family.midpoint()
    with torch.no_grad(), family.point() as net:
        state, expected = net.init_hidden(1), plain.init_hidden(1)
        for token in torch.tensor([[[3]], [[5]]]):
            found, state = net(token, state)
            wanted, expected = plain(token, expected)
            assert_close(found, wanted)


def test_the_closure_of_lbfgs_evaluates_one_point() -> None:
    family, x = made(make=lambda: nn.Linear(3, 1)), torch.randn(20, 3)
    y = x @ torch.tensor([[1.0], [2.0], [3.0]]) + 4
    optimizer = torch.optim.LBFGS(family.parameters(), line_search_fn="strong_wolfe")
    alpha = family.sample()

    def closure() -> Tensor:
        optimizer.zero_grad()
        with family.point(alpha) as net:
            loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert F.mse_loss(family(x, alpha=alpha), y) < 1e-3


# What a family does not have


@pytest.mark.parametrize("name", ["embed", "head", "size", "norm"])
def test_what_only_the_network_has_says_how_to_get_it(name):
    family = made()
    assert not hasattr(family, name)
    with pytest.raises(
        AttributeError, match=rf"'{name}'; the network has it: with family.point\(\) as net: net.{name}"
    ):
        getattr(family, name)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = family.other
    with pytest.raises(AttributeError, match="no attribute '__other__'"):
        _ = family.__other__


def _load(net: nn.Module) -> None:
    net.load_state_dict(nn.Linear(3, 2).state_dict())


def _zero(net: nn.Module) -> None:
    nn.init.zeros_(net.weight)


@pytest.mark.parametrize("write", [_load, _zero])
def test_weights_that_are_written_in_a_block_are_not_lost_without_a_word(write):
    family = ss.Subspace(lambda: nn.Linear(3, 2), ss.Line())
    before = {name: value.clone() for name, value in family.state_dict().items()}
    with pytest.raises(ss.UserError, match=r"wrote into weights in place, which is lost"), family.point(0.5) as net:
        write(net)
    assert all(torch.equal(value, before[name]) for name, value in family.state_dict().items())
