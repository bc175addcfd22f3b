"""The documents: their code runs as it is printed, and their commands, links and figures exist."""

import json
import re
import runpy
import shlex
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_server import serving
from torch import Tensor, nn

import subspaces as ss
from subspaces import evaluation, networks
from subspaces.cli import build
from subspaces.experiments import methods, training
from subspaces.experiments.paper import FIGURES

ROOT = Path(__file__).parent.parent
PAGES = (
    *("README.md", "RESULTS.md", "CONTRIBUTING.md", "docs/guide.md", "docs/integrations.md", "docs/performance.md"),
    *("docs/own-images.md", "docs/shift.md", "docs/choosing.md", "docs/production.md", "docs/cluster.md"),
    *("docs/scale.md", "docs/parameters.md", "docs/hub.md", "results/README.md"),
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "results").glob("*/README.md")),
)
COMMAND = build()


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(name: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(name), re.DOTALL)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.fixture(autouse=True)
def _an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def names() -> dict[str, Any]:
    """The names that the README has after its ten lines."""
    loader = [(torch.randn(16, 5), torch.randint(3, (16,))) for _ in range(4)]
    found: dict[str, Any] = {"make_net": Net, "loader": loader, "test_loader": loader, "held_out": loader}
    exec(blocks("README.md")[0], found)
    return found


def of_images() -> dict[str, Any]:
    """Return a family for small images, and loaders of them."""
    torch.manual_seed(0)
    images = torch.randint(256, (32, 1, 8, 8), dtype=torch.uint8)
    loader = [((images / 255 - 0.5) / 0.25, torch.randint(3, (32,)))]
    family = ss.Subspace(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), ss.Line())
    loaders = dict.fromkeys(("loader", "test_loader", "elsewhere", "other_loader", "few_labelled"), loader)
    return {"ss": ss, "family": family, "images": images, **loaders}


# Code


def test_the_ten_lines_of_the_readme_and_the_block_after_them(names: dict[str, Any], tmp_path: Path) -> None:
    assert isinstance(names["net"], Net)
    assert (tmp_path / "family.safetensors").is_file()
    names["family"].train()
    exec(blocks("README.md")[1], names)
    names["loss"].backward()
    assert names["features"].shape == (16, 8)


def test_the_page_on_parameters(names: dict[str, Any]) -> None:
    (code,) = blocks("docs/parameters.md")
    exec(code, names)
    groups = names["optimizer"].param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0, 0]
    assert [sum(each.shape[1] for each in group["params"]) for group in groups] == [40, 24, 27]
    assert [group["lr"] for group in groups] == [1e-3, 1e-3, 0.01]


def test_the_guide(names: dict[str, Any], tmp_path: Path) -> None:
    code, evaluated = blocks("docs/guide.md")
    before = names.pop("loss")
    exec(code, names)
    exec(evaluated, names)
    assert (names["again"], (tmp_path / "both.html").stat().st_size > 10**6) == (names["evaluation"], True)
    assert names["loss"].requires_grad
    assert names["loss"] is not before


def test_the_page_on_shifts(capsys: pytest.CaptureFixture[str]) -> None:
    names = of_images()
    for code in blocks("docs/shift.md"):
        exec(code, names)
    assert len(names["every"]) == 19
    assert "elsewhere" in set(names["evaluation"].frame["data"])
    assert "mean over 6 sets of 2 kinds" in capsys.readouterr().out


def test_the_page_on_choosing(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ss.Subspace, "select", partialmethod(ss.Subspace.select, steps=2, folds=2))
    names |= {name: names["family"].midpoint() for name in ("first", "second", "third", "pretrained")}
    chosen, mixed, _ = blocks("docs/choosing.md")
    exec(chosen, names)
    assert (names["selection"].examples, type(names["network"])) == (64, Net)
    exec(mixed, names)
    assert 0 <= names["alpha"] <= 1
    assert isinstance(names["mixed"], Net)


def test_the_page_on_production(names: dict[str, Any], tmp_path: Path) -> None:
    names["net"].eval()
    (code,) = blocks("docs/production.md")
    exec(code, names)
    with torch.no_grad():
        torch.testing.assert_close(names["probabilities"], names["net"](names["inputs"]).softmax(-1))
    assert "3: cat, dog, owl" in (tmp_path / "net.pt2.md").read_text()


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub, by itself
def test_the_page_on_the_hub(names: dict[str, Any], tmp_path: Path) -> None:
    folder, repository = blocks("docs/hub.md")
    exec(folder, names)
    assert "| accuracy | 0.93 |" in (tmp_path / "family" / "README.md").read_text()
    pushed = names["family"]
    with serving(tmp_path) as server:
        exec(repository, names)
    assert server.private == {"user/family": True}
    assert names["family"] is not pushed
    assert torch.equal(names["family"].omega["weights"], pushed.omega["weights"])


def test_the_readme_evaluates(names: dict[str, Any], tmp_path: Path) -> None:
    *_, code, _ = blocks("README.md")
    exec(code, names)
    assert 0 <= names["evaluation"]["midpoint"].accuracy <= 1
    assert 0 <= float(names["alpha"]) <= 1
    for file in ("along.png", "report.html", "evaluation.json"):
        assert (tmp_path / file).stat().st_size > 0


def test_the_readme_goes_to_a_new_domain(tmp_path: Path) -> None:
    names = of_images()
    names["images"] = names["images"] / 255
    names["loader"][0] = (names["images"], names["loader"][0][1])  # which is every loader
    *_, code = blocks("README.md")
    exec(code.replace('"all"', '"fog"').replace("net.onnx", "net.safetensors"), names)  # the slow ones have their tests
    frame = names["evaluation"].frame
    assert sorted(set(frame[frame["data"] == "fog"]["severity"])) == [1, 2, 3, 4, 5]
    assert names["selection"].examples == 32
    assert (tmp_path / "net.safetensors").is_file()


# Commands, links and figures


def commands() -> list[str]:
    lines = [line for name in PAGES for block in blocks(name, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("subspaces ")]


@pytest.mark.parametrize("line", commands())
def test_the_commands_exist_with_these_options(line: str) -> None:
    command: Any = COMMAND
    _, *given = shlex.split(line, comments=True)
    while command.commands:
        command = command.commands[given.pop(0)]
    known = set(command._option_string_actions)
    assert {word for word in given if word.startswith("-")} <= known


def anchors(name: str) -> set[str]:
    text = re.sub(r"```.*?```", "", text_of(name), flags=re.DOTALL)
    return {
        re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("name", PAGES)
def test_links_exist_and_nothing_is_left_to_do(name: str) -> None:
    assert re.findall(r"^[A-Z]{5,}$|TODO|TBD|XXX", text_of(name), re.MULTILINE) == []
    for link in re.findall(r"\]\(([^)]+)\)", text_of(name)):
        if not link.startswith("http"):
            file, _, part = link.partition("#")
            target = (ROOT / name).parent / file if file else ROOT / name
            assert target.exists(), link
            assert not part or part in anchors(str(target.resolve().relative_to(ROOT))), link


def test_contributing_has_a_row_for_every_place_in_the_package() -> None:
    rows = re.findall(r"^\| `([\w/.]+)` \|", text_of("CONTRIBUTING.md"), re.MULTILINE)
    entries = (ROOT / "subspaces").iterdir()
    places = {f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries if not entry.name.startswith("_")}
    assert set(rows) == places - {"py.typed", "version.py"}


def test_the_figures_of_the_guide_and_of_choosing_were_measured() -> None:
    found = json.loads(text_of("results/speed/memory-cpu.json"))
    measured = f"{found['examples']:,} examples of {found['classes']:,} classes at {found['points']} points took"
    assert f"{measured} {found['peak_gb']:.2f} GB" in text_of("docs/guide.md")
    found, page = json.loads(text_of("results/selection/levels.json")), text_of("docs/choosing.md")
    assert f"would gain {found['best']:.3f}." in page
    for name, level in (("the rule (`level", 0.05), ("the rule with", 0.3), ("the best point on", 1.0)):
        rows = [row for row in found["rows"] if row["level"] == level]
        numbers = " | ".join(f"{row['gain']:.3f} | {row['worst']:.3f}".replace("-", "−") for row in rows)
        assert re.search(rf"^\| {re.escape(name)}.*\| {re.escape(numbers)} \|$", page, re.MULTILINE), name


# What a package can add

CATALOGUES: list[Any] = [methods.METHODS, training.RECIPES, evaluation.METRICS, evaluation.ANSWERS, evaluation.TASKS]
CATALOGUES.append(FIGURES)
QUIET: dict[str, Any] = {"device": "cpu", "show": "quiet"}


@pytest.fixture
def added() -> Iterator[dict[str, Any]]:
    """All names that the example of CONTRIBUTING defines, and what it adds, as long as a test lasts."""
    before = [set(catalogue) for catalogue in CATALOGUES]
    yield runpy.run_path(str(ROOT / "tests" / "extending.py"))
    for catalogue, known in zip(CATALOGUES, before, strict=True):
        for name in set(catalogue) - known:
            catalogue.remove(name)


def test_the_added_shape_is_a_shape(added: dict[str, Any], tmp_path: Path) -> None:
    polygon = added["Polygon"](5)
    c = polygon.coefficients(torch.linspace(0, 1, 101))
    torch.testing.assert_close(c.sum(-1), torch.ones(101))
    assert (c >= 0).all()
    torch.testing.assert_close(polygon.coefficients(torch.arange(5) / 5), torch.eye(5))
    family = ss.Subspace(Net, polygon).eval()
    (family(torch.randn(4, 5), alpha=0.3).sum() + family.penalty()).backward()
    assert torch.isfinite(family.omega["weights"].grad).all()
    ss.save(family, tmp_path / "polygon.safetensors")
    loaded, x = ss.load(tmp_path / "polygon.safetensors", Net, shape=polygon).eval(), torch.randn(4, 5)
    assert torch.equal(loaded(x, alpha=0.7), family(x, alpha=0.7))


def test_what_is_added_is_trained_and_measured_by_name(added: dict[str, Any], tmp_path: Path) -> None:
    (run,) = ss.train("digits-line", method="ring", epochs=1, out=tmp_path, **QUIET)
    assert run.recipe.result_shape() == added["Polygon"](4)
    settings: dict[str, Any] = {"grid": [0, 0.5], "device": "cpu", "progress": False}
    evaluation = ss.evaluate(run, answers=["midpoint", "pair", "thirds"], **settings)
    assert evaluation["midpoint"].accuracy < evaluation["midpoint"].top2 < 1
    assert "top-2 accuracy %" in evaluation.table()
    both = [ss.train("digits-clipped", longest=each, epochs=1, out=tmp_path, **QUIET)[0] for each in (1e9, 1e-9)]
    moved = [ss.load(run.family_file, lambda: networks.MLP(64, 10)).omega["weights"] for run in both]
    assert not torch.equal(*moved)


def test_the_added_task_is_a_task(added: dict[str, Any]) -> None:
    family = ss.Subspace(lambda: nn.Linear(2, 1), ss.Line())
    x, counts = torch.randn(6, 2), torch.arange(6.0)
    with torch.no_grad():
        rates = [family.at(alpha)(x).exp().flatten() for alpha in (0.1, 0.9)]
    evaluation = ss.evaluate(family, test=[(x, counts)], task="counts", answers=["pair"], progress=False)
    assert evaluation["pair"].apart == pytest.approx(float(((rates[0] + rates[1]) / 2 - counts).abs().mean()))


def test_the_added_figure_is_made_by_name(added: dict[str, Any], tmp_path: Path) -> None:
    made = ss.reproduce("moving-average", seeds=[0, 1], runs=tmp_path / "runs", out=tmp_path / "out", **QUIET)
    ((claim,),) = (one.judged for one in made.figures)
    ece: dict[str, list[float]] = {"standard": [], "ema": []}
    for folder in sorted((tmp_path / "runs").iterdir()):
        ece["ema" if "ema" in folder.name else "standard"].append(ss.Evaluation.load(folder)["midpoint"].ece)
    assert claim.difference.values == [a - b for a, b in zip(ece["standard"], ece["ema"], strict=True)]
    assert (tmp_path / "out" / "moving-average" / "digits" / "reproduction.png").is_file()
