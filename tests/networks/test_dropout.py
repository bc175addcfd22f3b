"""One definition of dropout: what a network may be built with is what MC-dropout switches on."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subspaces as ss
from subspaces.networks import registry
from subspaces.networks.registry import dropping, rates


class Called(nn.Module):
    """A network that calls F.dropout itself, and says at which rate by an attribute of some name."""

    def __init__(self, classes: int, dropout: float, attribute: str) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, classes)
        self.attribute = attribute
        setattr(self, attribute, dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.body(x), getattr(self, self.attribute), self.training))


def in_secret(classes: int, dropout: float) -> nn.Module:
    return Called(classes, dropout, "hidden")


def test_dropout_that_nobody_can_see_is_refused_before_training(tmp_path: Path):
    message = r"dropout=0\.5: network 'test_dropout:in_secret' has no dropout of that rate; .* `dropout` or `drop_rate`"
    with pytest.raises(ValueError, match=message):
        registry.build("test_dropout:in_secret", classes=10, image_shape=(1, 8, 8), dropout=0.5)
    with pytest.raises(ValueError, match=message):
        ss.train("digits-standard", network="test_dropout:in_secret", dropout=0.5, out=tmp_path, show="quiet")
    assert list(tmp_path.iterdir()) == []


def test_only_dropout_is_switched_on():
    network = Called(3, 0.5, "drop_rate")
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    norm = network.body[2]
    with dropping(network) as inside, torch.no_grad():
        assert not torch.equal(inside(x), inside(x))
        assert network.training
        assert not norm.training
    assert not network.training
    assert norm.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Dropout(0.25), {0.25}),
        (nn.Dropout2d(0.0), set()),
        (nn.AlphaDropout(0.1), {0.1}),
        (nn.MultiheadAttention(8, 2, dropout=0.2), {0.2}),
        (nn.Linear(2, 2), set()),
        (Called(3, 0.5, "drop_rate"), {0.5}),
        (Called(3, 0.0, "dropout"), set()),
        (Called(3, True, "dropout"), set()),
        (Called(3, 0.5, "hidden"), set()),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, nn.Module) else str(part),
)
def test_the_rates_of_a_module(module: nn.Module, expected: set[float]):
    assert rates(module) == expected
