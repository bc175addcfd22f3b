"""The patterns of public training scripts, each with a family in the place of its network."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import subspaces as ss


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class VAE(nn.Module):
    """That of pytorch/examples, in small."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.mean, self.log_variance = nn.Linear(12, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.fc3, self.fc4 = nn.Linear(2, 8), nn.Linear(8, 12)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.fc1(x).relu()
        return self.mean(hidden), self.log_variance(hidden)

    def decode(self, z: Tensor) -> Tensor:
        return self.fc4(self.fc3(z).relu()).sigmoid()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x)
        z = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        return self.decode(z), mean, log_variance


def test_a_variational_autoencoder_decodes() -> None:
    family, x = ss.Subspace(VAE, ss.Line()), torch.rand(4, 12)
    found, mean, log_variance = family(x)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    (F.binary_cross_entropy(found, x, reduction="sum") + divergence).backward()
    assert all(omega.grad is not None for omega in family.parameters())
    family.eval()
    z = torch.randn(3, 2)
    with pytest.raises(AttributeError, match=r"with family.point\(\) as net: net.decode"):
        family.decode(z)
    with torch.no_grad(), family.point() as net:
        assert_close(net.decode(z), family.midpoint().decode(z))


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
    family, tokens = ss.Subspace(LanguageModel, ss.Line()), torch.randint(9, (3, 4, 2))
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
    family, x = ss.Subspace(lambda: nn.Linear(3, 1), ss.Line()), torch.randn(20, 3)
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
