"""Tables, figures and pages of evaluations that are no runs: families and networks of a user's own, and their files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_shifts
import numpy as np
import pytest
import torch
from commands import CliRunner
from rich.console import Console
from torch import Tensor, nn
from visiting import data_of, reads, table

import subspaces as ss
from subspaces.cli import main as app
from subspaces.errors import UserError
from subspaces.evaluation.comparing import groups_of
from subspaces.reports import tables
from subspaces.reports.content import Page
from subspaces.reports.tables import Table, filled

COUNT = 297  # as many test examples as a made-up run has
GRID = (0.0, 0.1, 0.3)


def batches(count: int, target: Callable[[Tensor], Tensor], seed: int) -> list[tuple[Tensor, Tensor]]:
    inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return [(part, target(part)) for part in inputs.split(100)]


def classes(inputs: Tensor) -> Tensor:
    return (inputs[:, 0] + 0.7 * inputs[:, 1] > 0).long() + (inputs[:, 2] > 0.5).long()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


class Normal(nn.Linear):
    """Predicts a mean and a variance."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = super().forward(inputs).unbind(1)
        return mean, spread.exp()


TEST, HELD = batches(COUNT, classes, 0), batches(120, classes, 1)
LOADERS: dict[str, Any] = {"test": TEST, "validation": HELD, "statistics": batches(200, classes, 2), "progress": False}


def family(shape: ss.Shape, make: Callable[[], nn.Module] = mlp) -> ss.Subspace:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return ss.Subspace.from_modules([make() for _ in range(shape.vertices)], shape)


@pytest.fixture(scope="module")
def own() -> dict[str, ss.Evaluation]:
    line = ss.evaluate(family(ss.Line()), name="my line", grid=GRID, **LOADERS)
    simplex = ss.evaluate(family(ss.Simplex(3)), name="my simplex", plane=True, cells=4, random=2, **LOADERS)
    network = ss.evaluate(ss.recalibrate(mlp(), LOADERS["statistics"]), name="my network", test=TEST, progress=False)
    for one in (line, simplex, network):
        made_shifts.add(one)
    return {"line": line, "simplex": simplex, "network": network}


@pytest.fixture(scope="module")
def saved(own, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("evaluations")
    return [one.save(out / f"{name}.json") for name, one in own.items()]


@pytest.fixture(scope="module")
def reported(saved, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of these files, as the command line writes it."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    result = CliRunner().invoke(app, ["report", *map(str, saved), "-o", str(path)])
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def regression() -> ss.Evaluation:
    test = batches(COUNT, lambda x: x[:, 0] + x[:, 1] / 10, 5)
    settings: dict[str, Any] = {"task": "regression", "name": "numbers", "grid": GRID, "progress": False}
    return ss.evaluate(family(ss.Line(), lambda: Normal(6, 2)), test=test, **settings)


@pytest.fixture(scope="module")
def tokens() -> ss.Evaluation:
    words = torch.randint(0, 4, (20, 9), generator=torch.Generator().manual_seed(3))
    settings: dict[str, Any] = {"task": ss.Classification(of="tokens"), "name": "words", "progress": False}
    return ss.evaluate(family(ss.Line(), lambda: nn.Embedding(5, 4)), test=[(words, words)], grid=GRID, **settings)


@pytest.fixture(scope="module")
def networks() -> ss.Evaluation:
    """Three networks, each trained elsewhere."""
    several = [ss.recalibrate(family(ss.Simplex(3)).at(place), LOADERS["statistics"]) for place in np.eye(3).tolist()]
    return ss.evaluate(several, name="three", test=TEST, progress=False)


# Figures


def test_a_metric_along_a_line_of_ones_own(own) -> None:
    figure = own["line"].plot("along", metric="nll")
    points, pairs = figure.axes[0].lines[:2]
    rows = {row.alphas[0]: row for row in own["line"].rows if row.kind == "point" and row.split == "test"}
    assert points.get_xdata().tolist() == sorted(rows) == [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    assert np.allclose(points.get_ydata(), [rows[alpha].nll for alpha in sorted(rows)])
    assert pairs.get_ydata()[1] == pytest.approx(own["line"]["pair"].nll)
    assert figure.axes[0].get_ylabel() == "NLL"


def texts(figure: Any) -> str:
    found = [axes.get_title("left") + axes.get_xlabel() for axes in figure.axes]
    found += [text.get_text() for each in figure.legends for text in each.get_texts()]
    found += [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    return " ".join(" ".join(found).split())


@pytest.mark.parametrize("name", ["plane", "vertices", "reliability", "shift", "shift-along"])
def test_figures_name_what_they_show(own, name: str) -> None:
    figure = ss.plot(name, list(own.values()))
    assert "my simplex" in texts(figure)
    if name != "plane":
        assert "my network" in texts(figure)
    if name == "reliability":
        assert "my line: ensemble of 0.1 and 0.9" in texts(figure).replace(":my", ": my")


def test_what_there_is_none_of_is_said(own, regression, tokens) -> None:
    for evaluation, name, words in (
        (own["line"], "training", r"my line.* has no log"),
        (own["line"], "betas", "no line or curve with several β"),
        (regression, "reliability", "numbers: midpoint has no reliability: expected a classification of examples"),
    ):
        with pytest.raises(UserError, match=words):
            evaluation.plot(name)
    assert "words: midpoint" in texts(tokens.plot("reliability"))


def test_a_regression_has_figures(regression) -> None:
    axes = regression.plot("along").axes[0]
    assert axes.get_ylabel() == "RMSE"
    assert axes.lines[1].get_ydata()[1] == pytest.approx(regression["pair"].rmse)


def test_files_are_drawn_and_told_as_what_is_in_hand(own, saved, reported, tmp_path: Path) -> None:
    hand, files = (ss.plot("along", some, metric="ece") for some in (list(own.values()), saved))
    for one, other in zip(hand.axes[0].lines, files.axes[0].lines, strict=True):
        assert np.array_equal(one.get_ydata(), other.get_ydata())
    assert data_of(ss.report(list(own.values()), tmp_path / "hand.html")) == data_of(reported)


# The page


def test_the_page_of_networks_of_ones_own(own, saved, reported, visit) -> None:
    page = visit(reported)
    shown = table(page, "#facts")
    at = shown["head"].index("NLL")
    lines = [line for line in shown["body"] if len(line) > 1]  # several have an answer of one name
    for one in own.values():
        for answered in one.answers:
            words = "network" if one is own["network"] else answered.words
            found = [line[at] for line in lines if line[0] == words]
            assert any(reads(each, one[answered.name].nll, digits=3) for each in found)
    assert page.locator("h1").inner_text() == "my line, my simplex and my network"
    assert "3 evaluations · test split, 297 examples" in page.inner_text("header")
    sections = page.locator("nav a").all_inner_texts()
    assert "Planes" in sections
    assert not [title for title in sections if "raining" in title]
    assert "image" not in page.inner_text("main").replace("training images", "")
    assert page.locator("#walk-reliability .chart").count() == 1
    assert "Seed" not in table(page, "#runs-table")["head"]
    assert "seed" not in page.inner_text("#summary").lower()
    assert "seed" not in texts(ss.plot("along", saved))


def test_a_regression_leaves_out_what_it_has_not(regression, visit, tmp_path: Path) -> None:
    page = visit(regression.report(tmp_path / "report.html"))
    shown = table(page, "#facts")
    assert shown["head"][1:5] == ["RMSE", "MAE", "Gaussian NLL", "Coverage\u00a0%"]
    row = regression["midpoint"]
    (line,) = (line for line in shown["body"] if line[0] == "midpoint")
    assert reads(line[1], row.rmse, digits=3)
    assert reads(line[4], 100 * row.interval_coverage, digits=1)
    assert page.locator("#walk-reliability, #selective, #training").count() == 0


def answers_of(evaluation: ss.Evaluation) -> Table:
    return tables.answers(Page.of(groups_of([evaluation])))


def test_the_answers_of_several_networks(networks) -> None:
    shown = {line[0]: line for line in answers_of(networks).rows}
    assert list(shown) == ["networks, on average", "ensemble of 3 networks"]
    assert reads(shown["ensemble of 3 networks"][2], networks["vertices"].nll, digits=3)
    (walk,) = Page.of(groups_of([networks])).walks()
    assert [point["name"] for point in walk["points"]] == ["network 1", "network 2", "network 3"]


def test_the_nearest_to_a_goal_is_bold(regression) -> None:
    rows = [row for row in regression.rows if row.split == "test" and row.kind == "point"]
    for row, share in zip(rows, (0.86, 0.99, 0.99, 0.93, 0.99, 0.99, 0.99), strict=True):
        row.metrics["interval_coverage"] = share  # at α = 0, …, 0.5, …
    shown = answers_of(regression)
    at = shown.head.index("Coverage\u00a0%")
    away = [abs(float(row[at]) - 90) for row in shown.rows]
    assert {row for row, column in shown.best if column == at} == {k for k, a in enumerate(away) if a == min(away)}
    assert len(set(away)) > 1


# Tables


def test_a_table_says_what_was_averaged(own, regression) -> None:
    for evaluation, caption in (
        (own["line"], "test examples, mean of probabilities; *"),
        (own["network"], "test examples; *"),
        (regression, "test examples, mixture of what is predicted; *"),
    ):
        assert caption in " ".join(evaluation.table().split())


def test_a_table_has_all_its_numbers_whole_on_a_narrow_terminal(own) -> None:
    """Words fold; numbers and answers are never cut or left out."""
    console = Console(width=80, color_system=None)
    shown = ["".join(part.text for part in row) for row in console.render_lines(filled([own["line"]]))]
    assert max(map(len, shown)) <= 80
    for answered in own["line"].answers:
        row = own["line"].answer(answered.name)
        for found in (row.metrics, row.scaled):  # without and with a temperature
            told = [f"{100 * found['accuracy']:.2f}", f"{found['nll']:.4f}", f"{found['brier']:.4f}"]
            assert any(part.split()[-4:-1] == told for part in shown)


def test_predictions_that_are_nan_are_drawn_and_reported_as_nan(tmp_path: Path) -> None:
    family = ss.Subspace(lambda: nn.Linear(4, 3), ss.Line())
    nn.init.constant_(family.vertex(0)["weight"], float("nan"))
    nn.init.constant_(family.vertex(1)["weight"], float("nan"))
    test = [(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))]
    with pytest.warns(UserWarning, match="8 of 8 predictions on the test examples are NaN at alpha = 0.0"):
        evaluation = ss.evaluate(family, test=test, progress=False)
    assert "nan" in evaluation.table()
    for name in ("along", "reliability"):
        evaluation.plot(name, tmp_path / f"{name}.png")
    assert evaluation.report(tmp_path / "report.html").is_file()
    other = ss.evaluate(
        nn.Linear(4, 1), test=[(torch.randn(8, 4), torch.randn(8, 1))], task="regression", progress=False
    )
    with pytest.raises(ss.UserError, match="no metric in common"):
        ss.plot("along", [evaluation, other])
