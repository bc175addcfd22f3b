"""The documents: their code runs as it is printed, and their commands, links and figures exist."""

import json
import re
import runpy
import shlex
from collections.abc import Iterator
from functools import partial, partialmethod
from pathlib import Path
from types import SimpleNamespace
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
WRITTEN = tuple(  # the pages of the documentation that are written by hand, but for the site's own
    str(page.relative_to(ROOT))
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if page.parent.name in ("how-to", "explanation") or page.name in ("get-started.md", "glossary.md")
)
PAGES = (
    *("README.md", "RESULTS.md", "CONTRIBUTING.md", "results/README.md", *WRITTEN),
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "results").glob("*/README.md")),
)
ELSEWHERE = ("lightning", "huggingface", "lora", "many-gpus", "own-images", "ray")  # pages whose code other tests run
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


def test_the_ten_lines_of_the_readme(names: dict[str, Any], tmp_path: Path) -> None:
    assert isinstance(names["net"], Net)
    assert (tmp_path / "family.safetensors").is_file()


def test_the_readme_fits_its_limit() -> None:
    assert sum(any(map(str.isalnum, word)) for word in text_of("README.md").split()) <= 900


def networks_for(names: dict[str, Any]) -> None:
    """Add three networks with batch norm."""
    for seed, name in enumerate(("first", "second", "third", "pretrained")):
        torch.manual_seed(seed)
        names[name] = Net()


def test_the_page_to_get_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code in blocks("docs/get-started.md"):
        exec(code, names)
    assert names["evaluation"]["midpoint"].accuracy > 0.9
    assert "my line" in capsys.readouterr().out
    assert names["again"] == names["evaluation"]
    assert (tmp_path / "both.html").stat().st_size > 10**6
    names["make_net"]().load_state_dict(torch.load("net.pt"), strict=True)


def test_the_page_on_your_own_loop(names: dict[str, Any]) -> None:
    trained, single, features, point, groups = blocks("docs/how-to/own-loop.md")
    exec(trained, names)
    assert set(names["checkpoint"]) == {"family", "optimizer"}
    exec(single, names)
    assert_close = torch.testing.assert_close
    head = names["family"].at(0.9).head.weight
    assert_close(names["net"].head.weight, head)
    assert_close(names["net"].body[0].weight, names["family"].midpoint().body[0].weight)
    names["family"].train()
    before = names.pop("loss")
    exec(features, names)
    assert names["loss"].requires_grad
    assert names["loss"] is not before
    exec(point, names)
    assert torch.isfinite(names["family"].omega["weights"].grad).all()
    exec(groups, names)
    made = names["optimizer"].param_groups
    assert [group["weight_decay"] for group in made] == [0.1, 0, 0]
    assert [sum(each.shape[1] for each in group["params"]) for group in made] == [40, 24, 27]
    assert [group["lr"] for group in made] == [1e-3, 1e-3, 0.01]


def test_the_page_on_planes(names: dict[str, Any], tmp_path: Path) -> None:
    networks_for(names)
    for code in blocks("docs/how-to/planes.md"):
        exec(code, names)
    assert names["error"].shape == (15, 15)
    assert torch.isfinite(names["error"]).all()
    assert names["barrier"] >= 0
    for file in ("plane.png", "along.png"):
        assert (tmp_path / file).stat().st_size > 0


def test_the_page_on_a_new_domain(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ss.Subspace, "select", partialmethod(ss.Subspace.select, steps=2, folds=2))
    networks_for(names)
    chosen, mixed = blocks("docs/how-to/new-domain.md")
    exec(chosen, names)
    assert (names["selection"].examples, type(names["network"])) == (64, Net)
    exec(mixed, names)
    assert 0 <= names["alpha"] <= 1
    assert isinstance(names["mixed"], Net)


def test_the_page_on_a_new_domain_measures_shifts(capsys: pytest.CaptureFixture[str]) -> None:
    names = of_images()
    for code in blocks("docs/how-to/new-domain.md", "python shift"):
        exec(code, names)
    assert list(names["shown"]) == list(names["every"])
    assert "elsewhere" in set(names["evaluation"].frame["data"])
    assert "mean over 6 sets of 2 kinds" in capsys.readouterr().out


def test_the_page_on_exports(names: dict[str, Any], tmp_path: Path) -> None:
    names["net"].eval()
    (code,) = blocks("docs/how-to/export.md")
    exec(code, names)
    with torch.no_grad():
        torch.testing.assert_close(names["probabilities"], names["net"](names["inputs"]).softmax(-1))
    assert "3: cat, dog, owl" in (tmp_path / "net.pt2.md").read_text()


def test_the_page_on_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks("docs/how-to/reproduce.md")
    quiet = {"train": QUIET, "evaluate": {"device": "cpu", "progress": False}}
    short = {name: partial(getattr(ss, name), **settings) for name, settings in quiet.items()}
    names: dict[str, Any] = {"ss": SimpleNamespace(**short)}
    exec(code, names)
    assert names["run"].finished
    assert 0 < names["evaluation"]["midpoint"].accuracy < 1


@pytest.mark.parametrize(
    "name", ["glossary", *(f"explanation/{each.stem}" for each in (ROOT / "docs" / "explanation").iterdir())]
)
def test_the_explanations(name: str, names: dict[str, Any]) -> None:
    found = blocks(f"docs/{name}.md")
    assert found
    for code in found:
        names["family"].train()
        exec(code, names)


def test_all_code_of_the_pages_is_run() -> None:
    tested = Path(__file__).read_text()
    for name in WRITTEN:
        if name.startswith("docs/how-to/") and Path(name).stem not in ELSEWHERE:
            assert f'"{name}"' in tested, name
    marks = {mark for name in WRITTEN for mark in re.findall(r"^```(python.*)$", text_of(name), re.MULTILINE)}
    assert marks == {"python", "python shift", "python torchrun", "python transformers"}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_says_what_it_is_for_and_then_shows_code(name: str) -> None:
    _, title, text = re.split(r"^# (.+)\n", text_of(name), maxsplit=1, flags=re.MULTILINE)
    assert title
    assert text.startswith("\nAfter this page you ")
    assert len(text.partition("```")[0].split()) < 150


def test_the_pages_are_short() -> None:
    assert sum(len(text_of(name).split()) for name in WRITTEN) <= 9600


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub, by itself
def test_the_page_on_the_hub(names: dict[str, Any], tmp_path: Path) -> None:
    folder, repository = blocks("docs/how-to/hub.md")
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


def test_the_numbers_of_the_pages_were_measured() -> None:
    found = json.loads(text_of("results/speed/memory-cpu.json"))
    measured = f"{found['examples']:,} examples of {found['classes']:,} classes at {found['points']} points took"
    assert f"{measured} {found['peak_gb']:.2f} GB" in text_of("docs/get-started.md")
    found, page = json.loads(text_of("results/selection/levels.json")), text_of("docs/how-to/new-domain.md")
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
