"""The documents: their code runs as it is printed, their commands and links exist, and the README stays short."""

import inspect
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

import subspaces as ss
from subspaces import evaluation, networks
from subspaces.cli import app
from subspaces.experiments import methods, training
from subspaces.experiments.studies.catalogue import EXHIBITS

ROOT = Path(__file__).parent.parent
PAGES = (
    *("README.md", "RESULTS.md", "CONTRIBUTING.md", "docs/guide.md", "docs/integrations.md", "docs/performance.md"),
    *("docs/own-images.md", "docs/shift.md", "docs/choosing.md", "docs/production.md", "docs/cluster.md"),
    *("docs/scale.md", "docs/parameters.md", "results/README.md"),
)
COMMAND = typer.main.get_command(app)
HEADINGS = [
    *("Install", "Ten lines", "What it gives", "What is in the subspace, and what is not", "What it costs"),
    *("Evaluate what you trained", "A new domain, and production", "The commands", "More"),
]


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(name: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(name), re.DOTALL)


def headings(name: str) -> list[str]:
    return re.findall(r"^##+ (.+)$", re.sub(r"```.*?```", "", text_of(name), flags=re.DOTALL), re.MULTILINE)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def trained() -> dict[str, Any]:
    """Return the names that the README has after its ten lines."""
    loader = [(torch.randn(16, 5), torch.randint(3, (16,))) for _ in range(4)]
    names: dict[str, Any] = {"make_net": Net, "loader": loader, "test_loader": loader, "held_out": loader}
    exec(blocks("README.md")[0], names)
    return names


def test_the_memory_of_the_guide_was_measured() -> None:
    found = json.loads((ROOT / "results" / "speed" / "memory-cpu.json").read_text())
    told = f"{found['examples']:,} examples of {found['classes']:,} classes at {found['points']} points took"
    assert f"{told} {found['peak_gb']:.2f} GB" in text_of("docs/guide.md")


def test_the_gains_of_the_page_were_measured() -> None:
    found = json.loads((ROOT / "results" / "selection" / "levels.json").read_text())
    page = text_of("docs/choosing.md")
    assert f"would gain {found['best']:.3f}." in page
    for name, level in (("the rule (`level", 0.05), ("the rule with", 0.3), ("the best point on", 1.0)):
        rows = [row for row in found["rows"] if row["level"] == level]
        numbers = " | ".join(f"{row['gain']:.3f} | {row['worst']:.3f}".replace("-", "−") for row in rows)
        assert re.search(rf"^\| {re.escape(name)}.*\| {re.escape(numbers)} \|$", page, re.MULTILINE), name


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = trained()
    assert isinstance(names["net"], Net)
    assert (tmp_path / "family.safetensors").is_file()
    assert names["loss"].requires_grad


def test_the_block_of_the_readme_and_the_page_on_parameters_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = trained()
    names["family"].train()
    exec(blocks("README.md")[1], names)
    names["loss"].backward()
    assert names["features"].shape == (16, 8)
    (code,) = blocks("docs/parameters.md")
    exec(code, names)
    decay, rest, head = names["optimizer"].param_groups
    assert [group["weight_decay"] for group in (decay, rest, head)] == [0.1, 0, 0]
    assert [sum(each.shape[1] for each in group["params"]) for group in (decay, rest, head)] == [40, 24, 27]
    assert [group["lr"] for group in (decay, rest, head)] == [1e-3, 1e-3, 0.01]


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = trained()
    code, evaluated = blocks("docs/guide.md")
    before = names.pop("loss")
    exec(code, names)
    exec(evaluated, names)
    assert (names["again"], (tmp_path / "both.html").stat().st_size > 10**6) == (names["evaluation"], True)
    assert names["loss"].requires_grad
    assert names["loss"] is not before


def test_the_code_of_the_page_on_shifts_runs(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    images = torch.randint(256, (32, 1, 8, 8), dtype=torch.uint8)
    loader = [((images / 255 - 0.5) / 0.25, torch.randint(3, (32,)))]
    family = ss.Subspace(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), ss.Line())
    names: dict[str, Any] = {"ss": ss, "family": family, "images": images, "elsewhere": loader}
    names |= {"loader": loader, "test_loader": loader}
    for code in blocks("docs/shift.md"):
        exec(code, names)
    assert len(names["every"]) == 19
    assert names["evaluation"].outliers[0].name == "elsewhere"
    assert "mean over 6 sets of 2 kinds" in capsys.readouterr().out


def test_the_code_that_chooses_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ss.Subspace, "select", partialmethod(ss.Subspace.select, steps=2, folds=2))
    names = trained()
    names |= {name: names["family"].midpoint() for name in ("first", "second", "third", "pretrained")}
    chosen, mixed, _ = blocks("docs/choosing.md")
    exec(chosen, names)
    assert (names["selection"].examples, type(names["network"])) == (64, Net)
    exec(mixed, names)
    assert 0 <= names["alpha"] <= 1
    assert isinstance(names["mixed"], Net)


def test_the_code_of_the_page_on_production_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = trained()
    names["net"].eval()
    (code,) = blocks("docs/production.md")
    exec(code, names)
    with torch.no_grad():
        torch.testing.assert_close(names["probabilities"], names["net"](names["inputs"]).softmax(-1))
    assert "3: cat, dog, owl" in (tmp_path / "net.pt2.md").read_text()


@pytest.mark.skipif(
    "test" not in inspect.signature(ss.evaluate).parameters,
    reason="ss.evaluate takes no family with loaders (test=, validation=, statistics=) and returns no Evaluation yet",
)
def test_the_code_that_evaluates_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = trained()
    *_, code, _ = blocks("README.md")
    exec(code, names)
    assert 0 <= names["evaluation"]["midpoint"].accuracy <= 1
    assert 0 <= float(names["alpha"]) <= 1
    for file in ("along.png", "report.html", "evaluation.json"):
        assert (tmp_path / file).stat().st_size > 0


def test_the_code_for_a_new_domain_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = torch.rand(24, 1, 8, 8)
    loader = [(images, torch.randint(3, (24,)))]
    family = ss.Subspace(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), ss.Line())
    names: dict[str, Any] = {"ss": ss, "family": family, "images": images}
    names |= dict.fromkeys(("loader", "test_loader", "other_loader", "few_labelled"), loader)
    *_, code = blocks("README.md")
    exec(code.replace('"all"', '"fog"').replace("net.onnx", "net.safetensors"), names)  # the slow ones have their tests
    assert len(names["evaluation"].shifts) == 5
    assert names["selection"].examples == 24
    assert (tmp_path / "net.safetensors").is_file()


def commands() -> list[str]:
    lines = [line for name in PAGES for block in blocks(name, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("subspaces ")]


@pytest.mark.parametrize("line", commands())
def test_the_commands_exist_with_these_options(line: str) -> None:
    command: Any = COMMAND
    _, *given = shlex.split(line, comments=True)
    while hasattr(command, "commands"):
        command = command.commands[given.pop(0)]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word for word in given if word.startswith("-")} <= known


def test_the_readme_is_short_and_in_order() -> None:
    assert headings("README.md") == HEADINGS
    assert len(text_of("README.md").split()) <= 1600
    (shell,) = (block for block in blocks("README.md", "sh") if block.startswith("subspaces"))
    assert len(shell.splitlines()) == 10


def test_contributing_has_a_row_for_every_place_in_the_package() -> None:
    rows = re.findall(r"^\| `([\w/.]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    entries = (ROOT / "subspaces").iterdir()
    places = {f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries if not entry.name.startswith("_")}
    assert set(rows) == places - {"py.typed", "version.py"}


@pytest.mark.parametrize("name", PAGES)
def test_no_placeholder_is_left(name: str) -> None:
    assert re.findall(r"^[A-Z]{5,}$|TODO|TBD|XXX", text_of(name), re.MULTILINE) == []


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", PAGES)
def test_links_exist(name: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text_of(name)) if not link.startswith("http")]
    assert links or name == "CONTRIBUTING.md"
    for link in links:
        file, _, part = link.partition("#")
        target = (ROOT / name).parent / file if file else ROOT / name
        assert target.exists(), link
        assert not part or part in {anchor(heading) for heading in headings(str(target.resolve().relative_to(ROOT)))}, (
            link
        )


# What CONTRIBUTING adds

CATALOGUES: list[Any] = [methods.METHODS, training.RECIPES, evaluation.METRICS, evaluation.ANSWERS, evaluation.TASKS]
CATALOGUES.append(EXHIBITS)


@pytest.fixture
def added() -> Iterator[dict[str, Any]]:
    """All names that the examples of CONTRIBUTING define, and what they add, as long as a test lasts."""
    names: dict[str, Any] = {"dataclass": dataclass, "torch": torch, "Tensor": Tensor, "F": F}
    names |= {"Any": Any, "ClassVar": ClassVar, "Sequence": Sequence, "__name__": __name__}
    before = [set(catalogue) for catalogue in CATALOGUES]
    for code in blocks("CONTRIBUTING.md"):
        exec(code, names)
    yield names
    for catalogue, known in zip(CATALOGUES, before, strict=True):
        for name in set(catalogue) - known:
            catalogue.remove(name)


def test_there_is_an_example_for_each_kind_of_thing(added: dict[str, Any]) -> None:
    last = [list(catalogue)[-1] for catalogue in CATALOGUES]
    assert last == ["clipped", "digits-clipped", "apart", "thirds", "counts", "moving-average"]
    expected = ["A shape", "A method", "A metric", "An answer", "A task", "An exhibit", "For the command line"]
    assert headings("CONTRIBUTING.md")[4:11] == expected
    assert len([word for word in text_of("CONTRIBUTING.md").split() if word != "|"]) <= 2000


def test_the_shape_in_contributing_is_a_shape(added: dict[str, Any], tmp_path: Path) -> None:
    polygon = added["Polygon"](5)
    alpha = torch.linspace(0, 1, 101)
    c = polygon.coefficients(alpha)
    torch.testing.assert_close(c.sum(-1), torch.ones(101))
    assert (c >= 0).all()
    torch.testing.assert_close(polygon.coefficients(torch.arange(5) / 5), torch.eye(5))
    torch.testing.assert_close(c[0], c[-1], atol=1e-5, rtol=0)

    family = ss.Subspace(Net, polygon).eval()
    (family(torch.randn(4, 5), alpha=0.3).sum() + family.penalty()).backward()
    assert torch.isfinite(family.omega["weights"].grad).all()
    ss.save(family, tmp_path / "polygon.safetensors")
    loaded = ss.load(tmp_path / "polygon.safetensors", Net, shape=polygon).eval()
    x = torch.randn(4, 5)
    assert torch.equal(loaded(x, alpha=0.7), family(x, alpha=0.7))


QUIET: dict[str, Any] = {"epochs": 1, "device": "cpu", "show": "quiet", "tensorboard": False}


def test_the_shape_in_contributing_is_trained_and_measured_by_name(added: dict[str, Any], tmp_path: Path) -> None:
    (run,) = ss.train("digits-line", method="ring", out=tmp_path, **QUIET)
    assert run.recipe.result_shape() == added["Polygon"](4)
    settings: dict[str, Any] = {"grid": [0, 0.5], "device": "cpu", "progress": False}
    evaluation = ss.evaluate(run, answers=["midpoint", "pair", "thirds"], **settings)
    assert evaluation["midpoint"].accuracy < evaluation["midpoint"].top2 < 1
    assert [answer.words for answer in evaluation.answers][2] == "ensemble of thirds"
    assert "top-2 accuracy %" in evaluation.table()


def test_the_method_in_contributing_is_a_method(added: dict[str, Any], tmp_path: Path) -> None:
    trained = [ss.train("digits-clipped", longest=longest, out=tmp_path, **QUIET)[0] for longest in (1e9, 1e-9)]
    moved = [ss.load(run.family_file, lambda: networks.MLP(64, 10)).omega["weights"] for run in trained]
    assert not torch.equal(*moved)


def test_the_task_in_contributing_is_a_task(added: dict[str, Any]) -> None:
    family = ss.Subspace(lambda: nn.Linear(2, 1), ss.Line())
    x, counts = torch.randn(6, 2), torch.arange(6.0)
    with torch.no_grad():
        rates = [family.at(alpha)(x).exp().flatten() for alpha in (0.1, 0.9)]
    evaluation = ss.evaluate(family, test=[(x, counts)], task="counts", answers=["pair"], progress=False)
    assert evaluation["pair"].apart == pytest.approx(float(((rates[0] + rates[1]) / 2 - counts).abs().mean()))


def test_the_exhibit_in_contributing_is_made_by_name(added: dict[str, Any], tmp_path: Path) -> None:
    quiet = {name: value for name, value in QUIET.items() if name != "epochs"}
    made = ss.reproduce("moving-average", seeds=[0, 1], runs=tmp_path / "runs", out=tmp_path / "out", **quiet)
    ((claim,),) = (one.judged for one in made.exhibits)
    ece: dict[str, list[float]] = {"standard": [], "ema": []}
    for folder in sorted((tmp_path / "runs").iterdir()):
        record = ss.Evaluation.load(folder)
        ece["ema" if "ema" in folder.name else "standard"].append(record["midpoint"].ece)
    assert claim.difference.values == [a - b for a, b in zip(ece["standard"], ece["ema"], strict=True)]
    assert (tmp_path / "out" / "moving-average" / "digits" / "reproduction.png").is_file()
