"""The code in the documents runs as it is printed."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import subspaces as ss
from subspaces.shapes import _Interval

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = [(torch.randn(16, 5), torch.randint(3, (16,))) for _ in range(4)]
    names = {"make_net": Net, "loader": loader, "x": loader[0][0], "y": loader[0][1]}
    code = blocks("README.md")
    assert len(code) == 2
    for block in code:
        exec(block, names)
    assert isinstance(names["net"], Net)
    assert (tmp_path / "family.safetensors").is_file()
    assert names["loss"].requires_grad


def test_contributing_has_a_row_for_every_place_in_the_package() -> None:
    rows = re.findall(r"^\| `([\w/.]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    entries = (ROOT / "subspaces").iterdir()
    places = {f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries if not entry.name.startswith("_")}
    assert set(rows) == places - {"py.typed", "version.py"}


def test_no_placeholder_is_left() -> None:
    for file in ("README.md", "CONTRIBUTING.md", "results/README.md"):
        assert re.findall(r"^[A-Z]{5,}$", (ROOT / file).read_text(), re.MULTILINE) == []


def test_readme_links_exist() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    local = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_the_shape_in_contributing_is_a_shape(tmp_path: Path) -> None:
    (code,) = blocks("CONTRIBUTING.md")
    names = {"dataclass": dataclass, "_Interval": _Interval, "Tensor": Tensor, "torch": torch, "F": F}
    exec(code, names)
    polygon = names["Polygon"](5)
    alpha = torch.linspace(0, 1, 101)
    c = polygon.coefficients(alpha)
    torch.testing.assert_close(c.sum(-1), torch.ones(101))
    assert (c >= 0).all()
    torch.testing.assert_close(polygon.coefficients(torch.arange(5) / 5), torch.eye(5))
    torch.testing.assert_close(c[0], c[-1], atol=1e-5, rtol=0)

    family = ss.Subspace(Net, polygon).eval()
    (family(torch.randn(4, 5), 0.3).sum() + family.penalty()).backward()
    assert torch.isfinite(family.omega["weights"].grad).all()
    ss.save(family, tmp_path / "polygon.safetensors")
    loaded = ss.load(tmp_path / "polygon.safetensors", Net, shape=polygon).eval()
    x = torch.randn(4, 5)
    assert torch.equal(loaded(x, 0.7), family(x, 0.7))
