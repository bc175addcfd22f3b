"""Networks by name, and what is said about a name that leads nowhere."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import subspaces as ss
from subspaces.errors import UserError
from subspaces.networks import MLP, CResNet, LeNet, ResNet18, ResNet50, build, head_name
from subspaces.networks.registry import rates

COLOUR, GREY = (3, 32, 32), (1, 8, 8)


def flat(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


OWN = {"cresnet20": CResNet, "resnet18": ResNet18, "resnet50": ResNet50, "lenet": LeNet, "mlp": MLP}


@pytest.mark.parametrize("name", OWN)
def test_own(name: str):
    with torch.device("meta"):
        network = build(name, classes=7, image_shape=COLOUR)
        assert type(network) is OWN[name]
        assert network(torch.empty(2, *COLOUR)).shape == (2, 7)
    assert head_name(network) == "head"


@pytest.mark.parametrize("name", ["mlp", f"{__name__}:flat"])
def test_dropout_on_a_network_without(name: str):
    with pytest.raises(ValueError, match=f"dropout=0.2: network '{name}' has no dropout"):
        build(name, classes=10, image_shape=GREY, dropout=0.2)


@pytest.mark.parametrize("name", ["cresnet20", "resnet18"])
def test_grey_images_on_a_network_for_colour(name: str):
    with pytest.raises(ValueError, match=rf"'{name}' takes images of 3 channels, and .*\(1, 8, 8\) has 1: use 'lenet'"):
        build(name, classes=10, image_shape=GREY)


@pytest.mark.parametrize(
    "wrong", [{"classes": 0}, {"image_shape": (8, 8)}, {"image_shape": (1, 0, 8)}, {"dropout": -0.1}, {"dropout": 1.5}]
)
def test_wrong_numbers(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match=r"=.*: expected at least one class, \(channels, height, width\).*a rate from"):
        build("mlp", **{"classes": 10, "image_shape": GREY, **wrong})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet19", r"unknown network 'resnet19' \(did you mean 'resnet18'\?\)"),
        *((name, r"'mlp', 'timm:NAME', 'torchvision:NAME' or 'package\.module:factory'") for name in ("timm:", 5)),
        *((name, r"^network=.*: expected package\.module:factory") for name in ("..bad:x", "a:b:c")),
    ],
)
def test_names_that_no_network_has(name: Any, message: str):
    with pytest.raises(ValueError, match=message):
        build(name, classes=10, image_shape=COLOUR)


# Dropout


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
    message = (
        r"dropout=0\.5: network 'test_registry:in_secret' has no dropout of that rate; .* `dropout` or `drop_rate`"
    )
    with pytest.raises(ValueError, match=message):
        build("test_registry:in_secret", classes=10, image_shape=(1, 8, 8), dropout=0.5)
    with pytest.raises(ValueError, match=message):
        ss.train("digits-standard", network="test_registry:in_secret", dropout=0.5, out=tmp_path, show="quiet")
    assert list(tmp_path.iterdir()) == []


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


# Factories of the user's own.

FACTORIES = """
import functools
import torch
from torch import Tensor, nn
from torch.nn import functional as F

number = 3

class ByClasses(nn.Sequential):
    def __init__(self, classes, dropout=0.5):
        super().__init__(nn.Flatten(), nn.Linear(64, classes), nn.Dropout(dropout))

def by_num_classes(*, num_classes=1000):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))

def by_shape(image_shape, classes):
    return nn.Sequential(nn.Conv2d(image_shape[0], classes, image_shape[1:]), nn.Flatten())

def by_size(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(65, classes))

def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def attention(classes, dropout):
    layer = nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = layer, nn.Linear(64, classes)
        def forward(self, x):
            return self.head(self.layer(x[:, 0], x[:, 0], x[:, 0])[0].flatten(1))
    return Net()

def pair():
    class Net(nn.Linear):
        def forward(self, x):
            return x, x
    return Net(1, 1)

def broken():
    raise RuntimeError("my\\n own")

class Plain:
    pass

def needs_more(classes, width):
    raise AssertionError("called")

def text():
    return "network"

half = functools.partial(by_shape, classes=10)

"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a package of the user's own, with factories in it."""
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(FACTORIES)
    (package / "needy.py").write_text("import a_package_nobody_has")
    (package / "leaving.py").write_text("raise SystemExit(0)")
    (package / "bad.py").write_text("def")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("their_package", "their_package.nets", "their_package.needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "their_package.nets"


@pytest.mark.parametrize("factory", ["ByClasses", "fixed", "half"])
def test_factory(mine: str, factory: str):
    network = build(f"{mine}:{factory}", classes=10, image_shape=GREY)
    assert network.training
    assert network(torch.randn(3, *GREY)).shape == (3, 10)


def test_factory_is_told_what_its_arguments_name(mine: str):
    assert build(f"{mine}:ByClasses", classes=4, image_shape=GREY, dropout=0.25)[2].p == 0.25
    assert build(f"{mine}:ByClasses", classes=4, image_shape=GREY)[2].p == 0
    assert build(f"{mine}:by_num_classes", classes=4, image_shape=GREY)[1].out_features == 4
    assert build(f"{mine}:by_shape", classes=4, image_shape=(2, 5, 6))[0].kernel_size == (5, 6)
    assert build(f"{mine}:attention", classes=4, image_shape=GREY, dropout=0.25).layer.dropout == 0.25


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "module 'no_such_module' cannot be imported .*; is its folder on the Python path"),
        ("torchvison:resnet18", r"did you mean 'torchvision'\?"),
        ("their_package.needy:f", "No module named 'a_package_nobody_has'"),
        ("their_package.bad:f", r"cannot be imported \(SyntaxError: "),
        ("their_package.leaving:f", r"cannot be imported \(SystemExit: 0\)"),
        ("their_package.nets:fixd", r"'their_package.nets' has no 'fixd' \(did you mean 'fixed'\?\)"),
        ("their_package.nets:number", "expected a Python function .* nn.Module, and it is 3"),
        ("their_package.nets:Plain", "and it is <class 'their_package.nets.Plain'>"),
        ("their_package.nets:needs_more", r"missing .*'width'; it may ask for .* defaults for all others"),
        ("their_package.nets:broken", "the factory failed with RuntimeError: my own"),
        ("their_package.nets:text", "must return an nn.Module, and it returned 'network'"),
        ("their_package.nets:pair", r"2 images with a tuple: expected a tensor of shape \(2, 4\)"),
        ("their_package.nets:by_size", r"does not take images of shape \(1, 8, 8\): .*shapes"),
        ("their_package.nets:fixed", r"shape \(2, 10\): expected a tensor of shape \(2, 4\), one logit"),
    ],
)
def test_factory_errors(mine: str, name: str, message: str):
    with pytest.raises(UserError, match=message):
        build(name, classes=4, image_shape=GREY)


@pytest.mark.parametrize("name", ["os:abort", "builtins:exec", "builtins:dict", "json:dumps", "io:BytesIO"])
def test_what_is_no_factory_is_not_called(name: str):
    with pytest.raises(UserError, match=f"network '{name}': "):
        build(name, classes=4, image_shape=GREY)


# Optional libraries.


def test_missing_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    message = r"network 'timm:resnet18' needs timm, .*pip install --upgrade 'subspaces\[timm\]'"
    with pytest.raises(ModuleNotFoundError, match=message):
        build("timm:resnet18", classes=10, image_shape=COLOUR)


class TestTimm:
    @pytest.fixture(autouse=True)
    def timm(self) -> Any:
        return pytest.importorskip("timm")

    @pytest.mark.parametrize(
        ("name", "image_shape", "head"),
        [("resnet18", COLOUR, "fc"), ("resnet18", (1, 32, 32), "fc"), ("vit_tiny_patch16_224", COLOUR, "head")],
    )
    def test_build(self, name: str, image_shape: tuple[int, int, int], head: str):
        network = build(f"timm:{name}", classes=7, image_shape=image_shape, dropout=0.25)
        assert network(torch.randn(2, *image_shape)).shape == (2, 7)
        assert head_name(network) == head

    def test_dropout_is_off_unless_asked_for(self):
        assert build("timm:ghostnet_050", classes=7, image_shape=COLOUR).drop_rate == 0  # timm's own is 0.2

    def test_unknown(self):
        with pytest.raises(ValueError, match=r"timm has no network 'resnet_18' \(did you mean 'resnet"):
            build("timm:resnet_18", classes=7, image_shape=COLOUR)


class TestTorchvision:
    @pytest.fixture(autouse=True)
    def torchvision(self) -> Any:
        return pytest.importorskip("torchvision")

    @pytest.mark.parametrize(
        ("name", "head"), [("resnet18", "fc"), ("wide_resnet50_2", "fc"), ("vit_b_32", "heads.head")]
    )
    def test_build(self, name: str, head: str):
        network = build(f"torchvision:{name}", classes=7, image_shape=(3, 64, 64))
        assert network(torch.randn(2, 3, 64, 64)).shape == (2, 7)
        assert head_name(network) == head

    def test_dropout(self):
        network = build("torchvision:mobilenet_v2", classes=7, image_shape=COLOUR, dropout=0.25)
        assert network.classifier[0].p == 0.25
        assert build("torchvision:mobilenet_v2", classes=7, image_shape=COLOUR).classifier[0].p == 0
        with pytest.raises(ValueError, match="'torchvision:resnet18' has no dropout"):
            build("torchvision:resnet18", classes=7, image_shape=COLOUR, dropout=0.25)

    def test_unknown(self):
        with pytest.raises(ValueError, match="torchvision has no classifier 'fcn_resnet50' "):
            build("torchvision:fcn_resnet50", classes=7, image_shape=COLOUR)

    def test_images_it_does_not_take(self):
        with pytest.raises(ValueError, match="takes images of 3 channels"):
            build("torchvision:resnet18", classes=7, image_shape=GREY)
        with pytest.raises(ValueError, match=r"does not take images of shape \(3, 32, 32\)"):
            build("torchvision:alexnet", classes=7, image_shape=COLOUR)
        with pytest.raises(ValueError, match=r"cannot be built with .*image_size=40"):
            build("torchvision:vit_b_32", classes=7, image_shape=(3, 40, 40))


def test_head_name():
    assert head_name(nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.Linear(2, 3), nn.ReLU()))) == "1.0"
    assert head_name(nn.Sequential(nn.Linear(1, 2), parametrizations.spectral_norm(nn.Linear(2, 3)))) == "1"
