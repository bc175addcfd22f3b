"""Small networks, and the strategies and shapes that several test files share."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import subspaces as ss
from subspaces.evaluation import files

quick = settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

SHAPES = [ss.Point(), ss.Line(), ss.Bezier(), ss.Bezier(bends=3), ss.Simplex(2), ss.Simplex(3), ss.Simplex(6)]
shapes = st.sampled_from(SHAPES)
seeds = st.integers(0, 2**32)

IMAGES = [  # parts that keep [batch, 4, 5, 5]
    lambda: nn.Conv2d(4, 4, 3, padding=1),
    lambda: nn.Conv2d(4, 4, 1, bias=False),
    lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2).to(memory_format=torch.channels_last),
    lambda: nn.BatchNorm2d(4),
    lambda: nn.GroupNorm(2, 4),
    lambda: nn.InstanceNorm2d(4, affine=True),
    nn.Tanh,
]
VECTORS = [  # parts that keep [batch, 6]
    lambda: nn.Linear(6, 6),
    lambda: nn.Linear(6, 6, bias=False),
    lambda: nn.LayerNorm(6),
    lambda: nn.BatchNorm1d(6),
    lambda: nn.PReLU(6),
    nn.Tanh,
]


@st.composite
def architectures(draw: st.DrawFn) -> Callable[[], nn.Module]:
    """Draw a factory of a small random network from [batch, 4, 5, 5] to [batch, 3]."""
    images = draw(st.lists(st.sampled_from(IMAGES), max_size=3))
    vectors = draw(st.lists(st.sampled_from(VECTORS), max_size=3))

    def make() -> nn.Module:
        body = [part() for part in images]
        return nn.Sequential(
            *body, nn.Flatten(), nn.Linear(100, 6), *[part() for part in vectors], nn.Linear(6, 3)
        ).double()

    return make


def images(count: int = 5) -> Tensor:
    return torch.randn(count, 4, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(count))


class Small(nn.Module):
    """A float64 network with named parts: convolution, batch norm, and a head with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 3, 3, dtype=torch.float64)
        self.norm = nn.BatchNorm2d(3, dtype=torch.float64)
        self.head = nn.Linear(27, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).tanh().flatten(1))


class Tied(nn.Module):
    """An embedding whose weight is the output layer's too."""

    def __init__(self, tie: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.middle = nn.Linear(4, 4)
        self.output = nn.Linear(4, 7)
        if tie:
            self.output.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.middle(self.embedding(x)))


class Wrapped(nn.Module):
    """Returns what a function makes of the input."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def gradients(family: ss.Subspace, vertex: int) -> dict[str, Tensor]:
    """Return the gradient of one vertex under the network's own names, where there is one."""
    found = {}
    for group in family.layout.groups:
        if (gradient := family.omega[group.name].grad) is not None:
            found |= group.unpack(gradient[vertex])
    return found


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same_state(module: nn.Module, before: dict[str, Tensor]) -> None:
    after = module.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def unsealed(path: Path) -> dict[str, Any]:
    """Return what a JSON file with a checksum holds, without what says which run it is of."""
    found = files.read_json(path, "correct the test")
    own = ("recipe", "lines", "families") if path.name != "evaluation.json" else ()
    return {name: value for name, value in found.items() if name not in own}


def resealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON file in place, and its checksum too."""
    value = json.loads(path.read_bytes())
    del value[files.CHECKSUM]
    change(value)
    files.write_json(path, value)


class Dropped(nn.Module):
    """Two layers with batch norm and dropout."""

    def __init__(self, inputs: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(x)))


def dropped(classes: int, image_shape: tuple[int, int, int], dropout: float) -> nn.Module:
    return Dropped(math.prod(image_shape), classes, dropout)
