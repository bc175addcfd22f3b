"""The demo's parts, the demo in small, and the worked examples."""

import dataclasses
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import numpy as np
import pandas as pd
import pytest
from commands import CliRunner

import subspaces as ss
from subspaces.cli import main as app
from subspaces.evaluation.comparing import GroupAnswer
from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments import demo

VERTEX = ("point", "vertex")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, demo.Result]:
    """The demo as a user runs it, once for all tests."""
    out = tmp_path_factory.mktemp("here") / "demo"
    return out, demo.run(demo.Setting(), out, "quiet")


def percent(answer: GroupAnswer, metric: str) -> list[float]:
    """A metric of each seed, in the order of the seeds."""
    return [100 * value for _, value in sorted(answer.by_seeds(metric).items())]


def test_the_claims_hold_for_each_seed(done: tuple[Path, demo.Result]) -> None:
    _, result = done
    accuracy = {name: np.array(percent(one, "accuracy")) for name, one in result.answers.items()}
    midpoint = accuracy[demo.MIDPOINT]
    assert len(midpoint) == 5
    assert (midpoint > accuracy[demo.NETWORK] + 8).all()
    assert (midpoint > accuracy[demo.VERTICES] + 8).all()
    assert (midpoint > accuracy[demo.PAIR] + 3).all()
    assert (accuracy[demo.POINTS] > accuracy[demo.NETWORK] + 5).all()
    assert (accuracy[demo.STOPPED] > midpoint).all()  # which the demo says
    for seed, run in enumerate(result.simplexes):
        vertices = [row.accuracy for row in Evaluation.load(run.folder).rows if (row.kind, row.role) == VERTEX]
        assert len(vertices) == 3
        assert 100 * max(vertices) < midpoint[seed]
    assert "in 5 of 5 seeds" in demo.headline(result.answers)
    accurate, calibrated = demo.better(result.answers).split(". ")
    assert demo.STOPPED in accurate
    assert demo.NETWORK not in accurate.replace(demo.STOPPED, "")
    assert "by clean held-out images" in accurate
    assert demo.PAIR in calibrated


def test_answers_are_what_was_measured(done: tuple[Path, demo.Result]) -> None:
    _, result = done
    answers = result.answers
    assert [one.runs for one in answers.values()] == [1, 1, 1, 2, 1, 1]
    assert [one.networks for one in answers.values()] == [1, 1, 1, 2, 6, 1]
    assert all(one.seeds == [0, 1, 2, 3, 4] for one in answers.values())
    middles = []
    for seed, run in enumerate(result.simplexes):
        assert run.recipe.seed == seed
        rows = [row for row in Evaluation.load(run.folder).rows if row.kind == "point"]
        (middle,) = (row.accuracy for row in rows if row.role == "midpoint")
        assert percent(answers[demo.MIDPOINT], "accuracy")[seed] == pytest.approx(100 * middle)
        vertices = mean(row.ece for row in rows if row.role == "vertex")
        assert percent(answers[demo.VERTICES], "ece")[seed] == pytest.approx(100 * vertices)
        middles.append(100 * middle)
    assert len(result.triangle) == 28
    assert result.triangle[2, 2, 2] == pytest.approx(mean(middles))


def test_nothing_is_trained_twice_and_the_report_needs_plotly(
    done: tuple[Path, demo.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, result = done
    assert result.report == out / "report.html"
    assert "ensemble of 2 runs" in result.report.read_text()
    assert len(Evaluation.load(result.simplexes[0].folder).planes) == 1
    monkeypatch.setattr("subspaces.experiments.training.scheduling.train_group", lambda *_: pytest.fail("again"))
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    again = demo.run(demo.Setting(), out, "quiet")
    assert again.report is None
    for name, one in again.answers.items():
        assert one.frame.equals(result.answers[name].frame)


def test_the_command_prints_a_sentence_a_table_a_picture_and_the_path_of_the_page(
    done: tuple[Path, demo.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder of the user's that the demo makes its own in."""
    out, result = done
    (out / "report.html").unlink()
    (simplex,) = out.glob("digits-simplex-layerwise-seed1-*")
    shutil.rmtree(simplex)
    monkeypatch.chdir(out.parent)
    shown = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines[:-1])
    assert "\x1b" not in shown.stdout
    assert " ".join(lines[:2]) == demo.headline(result.answers)
    assert lines[-1] == f"The report: {out / 'report.html'}"
    assert [line[2:44].rstrip() for line in lines[-8:-1]] == demo.picture(result.triangle)
    assert len(lines) < 24
    table = [" ".join(line.split()) for line in lines]
    for name, one in result.answers.items():
        spreads = [np.array(percent(one, metric)) for metric in ("accuracy", "ece")]
        numbers = " ".join(f"{each.mean():.1f} ± {each.std(ddof=1):.1f}" for each in spreads)
        assert f"{name} {numbers} {one.runs} {one.networks}" in table
    assert ss.load(simplex / "family.safetensors", ss.networks.MLP).shape == ss.Simplex(3)
    assert (out / "report.html").is_file()


def test_sentences_say_what_was_measured_whichever_way_it_points(done: tuple[Path, demo.Result]) -> None:
    first = done[1].answers[demo.NETWORK]

    def planted(accuracy: list[float], ece: list[float]) -> GroupAnswer:
        numbers = {"accuracy": [a / 100 for a in accuracy], "ece": [e / 100 for e in ece]}
        return dataclasses.replace(first, frame=pd.DataFrame({"seeds": [(0,), (1,), (2,)], **numbers}))

    low, high = planted([50.0, 60.0, 70.0], [4.0, 4.0, 4.0]), planted([60.0, 65.0, 60.0], [5.0, 6.0, 7.0])
    names = (demo.NETWORK, demo.VERTICES, demo.MIDPOINT, demo.PAIR)
    answers = dict(zip(names, (low, low, high, high), strict=True))
    sentence = demo.headline(answers)
    assert "has 61.7 % of the test images right, one network 60.0 %" in sentence
    assert "above both in 2 of 3 seeds" in sentence
    calibrated = f"Better calibrated: {demo.NETWORK}, {demo.VERTICES}"
    assert demo.better(answers) == f"More accurate than the midpoint: none. {calibrated}."


def test_the_picture_is_darkest_where_the_accuracy_is_highest() -> None:
    sixths = range(demo.STEPS + 1)
    places = [(i, j, demo.STEPS - i - j) for i in sixths for j in sixths if i + j <= demo.STEPS]
    lines = demo.picture({place: 50.0 + 10 * min(place) for place in places})
    assert lines[0] == " " * 20 + "50"
    assert lines[4] == "        50  ▒▒60▒▒▓[70]▓▒▒60▒▒  50"
    assert lines[6] == "  50    50    50    50    50    50    50"
    assert "[42]" in "".join(demo.picture(dict.fromkeys(places, 42.0)))


@pytest.mark.parametrize("bad", [{"seeds": 0}, {"epochs": 0}, {"label_noise": 1.5}])
def test_bad_settings(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        demo.Setting(**bad)


# Worked examples, as they are, in an empty folder

ROOT = Path(__file__).parent.parent
Runs = Callable[..., str]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Runs:
    """Return a function that runs an example in the test's folder, and returns what it prints."""

    def run(name: str, *arguments: str) -> str:
        path = str(ROOT / "examples" / f"{name}.py")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")
        return capfd.readouterr().out

    return run


def test_a_loop_of_ones_own(runs: Runs, tmp_path: Path) -> None:
    printed = runs("own_loop")
    evaluation = ss.Evaluation.load(tmp_path / "evaluation.json")
    assert evaluation.name == "my line"
    assert evaluation["midpoint"].accuracy > 0.9
    assert f"{100 * evaluation['midpoint'].accuracy:.2f}" in printed
    assert len([row for row in evaluation.rows if row.kind == "point" and row.split == "test"]) == 21
    assert (tmp_path / "along.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert "my line" in page


def test_the_plane_through_three_networks(runs: Runs, tmp_path: Path) -> None:
    found = dict(re.findall(r"^alpha = ([\d.]+.*): accuracy ([\d.]+)%", runs("landscape"), re.MULTILINE))
    ends, middle, stale = [float(found["0.0"]), float(found["1.0"])], found["0.5"], found["0.5, not recalibrated"]
    assert min(ends) > float(middle) > float(stale) > 50
    assert (tmp_path / "plane.png").stat().st_size > 10_000


def test_fine_tuning_in_several_ways(runs: Runs) -> None:
    printed = runs("fine_tuning", "2", "60")
    found = re.findall(r"^(.+?) +turned ([\d.]+) ± [\d.]+% +upright ([\d.]+) ± [\d.]+%$", printed, re.MULTILINE)
    turned = {name: float(new) for name, new, _ in found}
    upright = {name: float(old) for name, _, old in found}
    assert len(found) == 8
    assert turned["before"] < 40 < 75 < min(turned["fine-tuned on 100"], turned["line on 100, midpoint"])
    assert upright["fine-tuned on 60"] < upright["half-way back"] < upright["before"]
