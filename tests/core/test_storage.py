"""Families as files: what is in them, what comes back, and what is refused."""

import copy
import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from subspaces import Bezier, FileError, Line, Simplex, Subspace, load, save
from subspaces.core import storage
from subspaces.core.shapes import _Interval
from subspaces.core.storage import VERSION

pytestmark = [  # what is stale or drawn here is meant so
    pytest.mark.filterwarnings("ignore::subspaces.core.batchnorm.StatisticsWarning"),
    pytest.mark.filterwarnings("ignore::subspaces.core.batchnorm.RandomPointWarning"),
]


class Net(nn.Module):
    """A convolution, batch norm and a head."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.conv.weight.dtype)
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = nn.Linear(5, 5, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.mean((1, 2))).relu())


class Buffers(Net):
    """Buffers of several kinds, one of them not to be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("nothing", torch.zeros(0, 2))
        self.register_buffer("turned", torch.randn(2, 3).t())
        self.register_buffer("bytes", torch.tensor([1, 255], dtype=torch.uint8))
        self.register_buffer("scratch", torch.tensor(1.0), persistent=False)


def frozen() -> nn.Module:
    net = Net()
    net.conv.requires_grad_(False)
    return net


def by_part(network: Any) -> list[dict[str, Any]]:
    parts = [("norm", {"weight_decay": 0.0, "betas": (0.9, 0.99)}), ("conv", {}), ("head", {"lr": 0.5})]
    found = [{"params": list(getattr(network, name).parameters()), **options} for name, options in parts]
    return [*found[:2], {"params": [], "lr": torch.tensor(2.0)}, found[2]]


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Subspace]]] = {
    "line": (Net, lambda make: Subspace(make, Line())),
    "simplex": (Net, lambda make: Subspace(make, Simplex(4))),
    "layerwise": (Net, lambda make: Subspace(make, Simplex(3), layerwise=True)),
    "tied": (Tied, lambda make: Subspace(make, Line())),
    "frozen": (frozen, lambda make: Subspace(make(), Line())),
    "buffers": (Buffers, lambda make: Subspace(make(), Line())),
    "curve in half precision": (lambda: Net().bfloat16(), lambda make: Subspace(make, Bezier(1))),
    "predicate": (Net, lambda make: Subspace(make, Line(), penalised=lambda name, _: name == "norm.bias")),
}


def trained(name: str) -> tuple[Subspace, Callable[[], nn.Module]]:
    """Return a family after some use: its buffers, its random numbers and all vertices are its own."""
    make, build = FAMILIES[name]
    family = build(make)
    with torch.no_grad():
        for parameter in family.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for _ in range(3):
            family(torch.randn(4, 3, 5, 5))
            family.penalty()
    return family, make


def same(first: Any, second: Any) -> bool:
    return first.dtype == second.dtype and torch.equal(first, second)


def assert_all_came_back(family: Subspace, loaded: Subspace) -> None:
    """Compare all tensors; of `calibrated` only what it says: a file knows no number of batches."""
    before, after = family.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(same(before[key], after[key]) for key in before if key != "calibrated")
    assert family.is_calibrated == loaded.is_calibrated


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "family.safetensors"


# What comes back


@pytest.mark.parametrize(("index", "name"), list(enumerate(FAMILIES)))
def test_a_loaded_family_is_the_saved_one(index, name, path):
    family, make = trained(name)
    before = {name: value.clone() for name, value in family.state_dict().items()}
    content = [save(family, path), path.read_bytes()]
    assert content == [save(family, path), path.read_bytes()]  # the same bytes
    assert all(same(value, before[name]) for name, value in family.state_dict().items())
    assert os.listdir(path.parent) == [path.name]
    loaded = load(path, make() if index % 2 else make, verify=index % 3 > 0)
    assert_all_came_back(family, loaded)
    x = torch.randn(4, 3, 5, 5)
    for net in (family, loaded):
        net.eval()
    assert same(loaded(x), family(x))
    alpha = family.sample("layer" if family.layerwise else "network")
    assert same(loaded(x, alpha=alpha), family(x, alpha=alpha))
    assert same(loaded.at(alpha)(x), family.at(alpha)(x))
    assert loaded.shape == family.shape
    assert loaded.layerwise == family.layerwise
    assert loaded.layout == family.layout


@pytest.mark.parametrize("name", ["line", "layerwise"])
def test_training_goes_on_as_if_it_had_not_stopped(name, path):
    family, make = trained(name)
    save(family, path)
    loaded, x = load(path, make), torch.randn(4, 3, 5, 5)
    assert loaded.training
    for net in (family, loaded):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (net(x, samples=2).square().mean() + net.penalty()).backward()
            optimizer.step()
    assert all(same(one, other) for one, other in zip(family.parameters(), loaded.parameters(), strict=True))
    assert same(family.rng, loaded.rng)
    assert same(family.sample(), loaded.sample())


def test_predicate_and_groups_come_back(path):
    family, make = trained("predicate")
    save(family, path)
    loaded = load(path, make)
    assert [group.penalised for group in loaded.layout.groups] == [group.penalised for group in family.layout.groups]
    assert same(loaded.penalty(), family.penalty())
    family = Subspace(Net, Line(), groups=by_part)
    save(family, path)
    with pytest.raises(FileError, match="made with groups=: pass that function"):
        load(path, Net)
    loaded, other = load(path, Net, groups=by_part), Subspace(Net, Line(), groups=by_part)
    storage.restore(other, path)
    assert_all_came_back(family, loaded)
    assert_all_came_back(family, other)
    groups, expected = loaded.parameter_groups(), family.parameter_groups()
    assert [len(group.pop("params")) for group in groups] == [len(group.pop("params")) for group in expected]
    assert groups == expected


def test_a_family_is_restored_in_place(path):
    family, make = trained("layerwise")
    save(family, path)
    other = Subspace(make, Simplex(3), layerwise=True)
    other(torch.randn(4, 3, 5, 5))
    vertices = list(other.parameters())
    storage.restore(other, path)
    assert_all_came_back(family, other)
    assert all(one is two for one, two in zip(vertices, other.parameters(), strict=True))
    with pytest.raises(FileError, match=r"holds a family of shape .*Simplex.*, not .*Line"):
        storage.restore(Subspace(make, Line()), path)


# What is in a file


def test_vertices_have_the_networks_own_names(path):
    family, _ = trained("simplex")
    save(family, path)
    tensors = load_file(path)  # plain safetensors
    names = [name for name, _ in Net().named_parameters()]
    buffers = [name for name, _ in Net().named_buffers()]
    vertices = {f"vertex.{index}.{name}" for index in range(4) for name in names}
    assert tensors.keys() == {"rng"} | vertices | {f"shared.{name}" for name in buffers}
    for index in range(4):
        for name, value in family.vertex(index).items():
            assert same(tensors[f"vertex.{index}.{name}"], value)


# Shapes of one's own


@dataclass(frozen=True)
class Broken(_Interval):
    """A line that bends sharply at a number of places."""

    places: tuple[float, ...] = (0.5,)
    vertices = 2

    def coefficients(self, alpha: Tensor) -> Tensor:
        return torch.stack([1 - alpha, alpha], -1)


def test_a_shape_of_ones_own_is_passed_again(path):
    namesake = dataclass(frozen=True)(type("Line", (Broken,), {}))
    save(Subspace(Net, namesake()), path)
    with pytest.raises(FileError, match="pass it"):
        load(path, Net)
    assert type(load(path, Net, namesake()).shape) is namesake
    family = Subspace(Net, Broken((0.25, 0.5)))
    save(family, path)
    with pytest.raises(FileError, match=r"Broken.*pass it, load\(path, network, shape=…\)"):
        load(path, Net)
    with pytest.raises(FileError, match=rf"{path} holds a family of shape .*\[0\.25, 0\.5\].*, not .*Broken"):
        load(path, Net, Broken((0.1,)))
    loaded, x = load(path, Net, Broken((0.25, 0.5))), torch.randn(4, 3, 5, 5)
    assert same(loaded.eval()(x), family.eval()(x))


# Damaged and foreign files


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2).bfloat16(), nn.BatchNorm1d(2), nn.Linear(2, 1).double())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Return a place for damaged files, and the bytes of a whole one."""
    path = tmp_path_factory.mktemp("files") / "family.safetensors"
    save(Subspace(small, Simplex(2)), path)
    return path, path.read_bytes()


def refused(path: Path, raw: bytes) -> str:
    """Return why a file with these bytes is refused."""
    path.write_bytes(raw)
    with pytest.raises(FileError) as caught:
        load(path, small)
    assert str(path) in str(caught.value)
    return str(caught.value)


def truncated(raw: bytes, draw: Callable[..., Any]) -> bytes:
    return raw[: draw(st.integers(0, len(raw) - 1))]


def flipped(raw: bytes, draw: Callable[..., Any]) -> bytes:
    header = 8 + struct.unpack("<Q", raw[:8])[0]
    damaged = bytearray(raw)
    damaged[draw(st.integers(0, 7) | st.integers(0, header - 1) | st.integers(header, len(raw) - 1))] ^= 1 << draw(
        st.integers(0, 7)
    )
    return bytes(damaged)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.data())
def test_damage_is_refused(whole, data):
    path, raw = whole
    damaged = data.draw(st.sampled_from([truncated, flipped]))(raw, data.draw)
    if damaged != raw:
        refused(path, damaged)


def test_numbers_types_shapes_and_the_header_are_protected_by_the_checksum(path):
    save(Subspace(Net, Line()), path)
    header, tensors = storage.read_tensors(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(FileError, match=rf"\({len(content) - 1} bytes that are not a complete safetensors file"):
        load(path, Net)
    name = "vertex.1.head.bias"
    bias = tensors[name].clone()
    for other in (bias + 1, bias.view(torch.int32), bias.reshape(1, -1)):
        save_file({**tensors, name: other}, path, header)
        with pytest.raises(FileError, match="checksum"):
            load(path, Net)
    save_file({**tensors, name: bias + 1}, path, header)
    assert torch.equal(load(path, Net, verify=False).vertex(1)["head.bias"], bias + 1)
    for key in ("family", "checksum"):
        for changed in ({**header, key: "[]"}, {each: value for each, value in header.items() if each != key}):
            save_file(tensors, path, changed)
            with pytest.raises(FileError, match="checksum"):
                load(path, Net)


@pytest.mark.parametrize("version", ["3", "99", ""])
def test_another_version_or_a_foreign_file_is_refused(version, path):
    save(Subspace(Net, Line()), path)
    save_file(load_file(path), path, {**storage.read_header(path), "version": version})
    with pytest.raises(FileError, match=f"{path} has format version {version}, expected {VERSION}: load it with"):
        load(path, Net)
    save_file(Net().state_dict(), path, {"format": "pt"})
    with pytest.raises(FileError, match=f"{path} is a safetensors file but not a family.*subspaces.save"):
        load(path, Net)


def test_missing_files_and_folders(tmp_path):
    folder, missing = tmp_path / "folder", tmp_path / "missing" / "family.safetensors"
    folder.mkdir()
    family = Subspace(Net, Line())
    for error, path in ((IsADirectoryError, folder), (FileNotFoundError, missing)):
        with pytest.raises((FileError, FileNotFoundError), match=str(path)):
            load(path, Net)
        with pytest.raises(error, match=str(path)):
            save(family, path)
    assert [*folder.iterdir(), *tmp_path.iterdir()] == [folder]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Tied, r"conv\.\w+ is .* in the file and missing in the network|first.weight is missing in the file"),
        (lambda: Net(classes=3), r"vertex\.0\.head\.\w+ is \(2.* in the file and \(3.* in the network"),
        (lambda: Net().double(), r"torch\.float32 in the file and .* torch\.float64 in the network"),
        (frozen, r"conv\.\w+ is missing in the file and .* in the network"),
        (Buffers, r"shared\.mask is missing in the file"),
    ],
    ids=["names", "shapes", "dtype", "frozen", "buffers"],
)
def test_a_family_of_another_network_is_refused(make, message, path):
    save(Subspace(Net, Line()), path)
    net = make()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(FileError, match=rf"{path} is a family of another network: .*{message}"):
        load(path, net)
    assert all(same(value, before[name]) for name, value in net.state_dict().items())


# Writing


class Extra(Net):
    def get_extra_state(self) -> dict[str, int]:
        return {"epoch": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


def with_buffer(value: Tensor) -> Subspace:
    net = Net()
    net.register_buffer("late", value)
    return Subspace(net, Line())


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda path: save(with_buffer(torch.zeros(2, dtype=torch.complex128)), path), TypeError, "late.*complex128"),
        (lambda path: save(with_buffer(torch.eye(2).to_sparse()), path), TypeError, "late.*sparse"),
        (lambda path: save(Subspace(Extra, Line()), path), TypeError, "_extra_state.*dict: only tensors"),
    ],
    ids=["dtype", "sparse", "extra state"],
)
def test_an_error_while_saving_leaves_the_old_file_and_no_other(attempt, error, message, path):
    family = Subspace(Net, Simplex(3))
    save(family, path)
    before = path.read_bytes()
    with pytest.raises(error, match=message):
        attempt(path)
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == before


@pytest.mark.gpu
def test_a_family_comes_back_on_the_networks_device(path):
    family = Subspace(Net, Simplex(3)).to("cuda").eval()
    save(family, path)
    x = torch.randn(4, 3, 5, 5, device="cuda")
    loaded = load(path, Net().to("cuda")).eval()
    assert loaded.device.type == "cuda"
    assert same(loaded(x), family(x))
    assert load(path, Net).device.type == "cpu"


def rewritten(path, tensors, **changes):
    """Write a family's file with another header, and a checksum that fits."""
    header = storage.read_header(path)
    about = {name: value for name, value in {**json.loads(header["family"]), **changes}.items() if value is not None}
    storage.write_tensors(path, tensors, {**header, "family": json.dumps(about)})


def test_a_header_that_does_not_fit_is_refused(path):
    save(Subspace(Net, Simplex(3)), path)
    rewritten(path, load_file(path), shape={"type": "Simplex", "m": 900})
    with pytest.raises(FileError, match=rf"{path}.* holds 3 vertices.*Simplex"):
        load(path, Net)
    rewritten(path, load_file(path), shape=None)
    with pytest.raises(FileError, match=rf"{path} is damaged .*header.*shape"):
        load(path, Net)
    storage.write_tensors(path, load_file(path), {**storage.read_header(path), "family": "[" * 100_000})
    with pytest.raises(FileError, match=rf"{path} is damaged .*header"):
        load(path, Net)


# Files without frozen parameters


class Adapted(nn.Module):
    """A frozen base with a batch norm, and a small part that is trained: its base is shared by all of a seed."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.base = nn.Linear(64, 64).requires_grad_(False)
        self.norm = nn.BatchNorm1d(64, affine=False)
        self.down, self.up = nn.Linear(64, 2, bias=False), nn.Linear(2, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.base(x)) + self.up(self.down(x))


def adapted() -> Subspace:
    """Return a family after some use."""
    family = Subspace(Adapted(), Simplex(3), seed=1)
    family(torch.randn(8, 64))
    return family


def test_a_file_without_frozen_parameters_is_small_and_comes_back(path):
    family, whole = adapted(), path.with_name("whole.safetensors")
    save(family, whole)
    save(family, path, shared=False)
    assert path.stat().st_size < whole.stat().st_size / 3
    assert set(load_file(whole)) - set(load_file(path)) == {"shared.base.weight", "shared.base.bias"}
    assert "shared.norm.running_mean" in load_file(path)
    for network in (Adapted(), Adapted):
        assert_all_came_back(family, load(path, network))
    for network in (lambda: Adapted(seed=2), lambda: Adapted().requires_grad_(True)):
        with pytest.raises(FileError, match=rf"{path} was saved without its frozen .*load it with the network that"):
            load(path, network)
    x = torch.randn(8, 64)
    assert same(load(path, Adapted).eval()(x), family.eval()(x))


def test_a_folder_is_no_family(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder: expected the file of a family"):
        load(tmp_path, lambda: nn.Linear(2, 2))


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Subspace(lambda: nn.Linear(2, 2), Line(), seed=seed) for seed in (0, 1))
    path, opened, real = tmp_path / "family.safetensors", list[Path](), storage.safe_open

    def replaced(file: Path, **options: Any) -> Any:
        opened.append(file)
        if len(opened) == 1:
            save(second, path)
        return real(file, **options)

    save(first, path)
    monkeypatch.setattr(storage, "safe_open", replaced)
    found = load(path, lambda: nn.Linear(2, 2))
    assert len(opened) == 2
    assert all(torch.equal(found.omega[name], value) for name, value in second.omega.items())
