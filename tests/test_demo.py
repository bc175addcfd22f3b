"""The demo's parts, the demo in small, and the worked examples."""

import dataclasses
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import CliRunner

import subspaces as ss
from subspaces.cli import main as app
from subspaces.evaluation.comparing import GroupAnswer
from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments import demo


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, demo.Result]:
    out = tmp_path_factory.mktemp("here") / "demo"
    return out, demo.run(demo.Setting(seeds=2, epochs=3), out, "quiet")


def percent(answer: GroupAnswer, metric: str) -> list[float]:
    """A metric of each seed, in the order of the seeds."""
    return [100 * value for _, value in sorted(answer.by_seeds(metric).items())]


def test_answers_are_what_was_measured(done: tuple[Path, demo.Result]) -> None:
    _, result = done
    answers = list(result.answers.values())
    assert [one.runs for one in answers] == [1, 1, 1, 2, 1]
    assert [one.networks for one in answers] == [1, 1, 1, 2, 2]
    assert all(one.seeds == [0, 1] for one in answers)
    for seed, run in enumerate(result.lines):
        assert run.recipe.seed == seed
        points = {row.alphas[0]: row for row in Evaluation.load(run.folder).rows if row.kind == "point"}
        assert percent(answers[2], "accuracy")[seed] == pytest.approx(100 * points[0.5].metrics["accuracy"])
        ends = (points[0.0].metrics["ece"] + points[1.0].metrics["ece"]) / 2
        assert percent(answers[1], "ece")[seed] == pytest.approx(100 * ends)


def test_nothing_is_trained_twice_and_the_report_needs_plotly(
    done: tuple[Path, demo.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, result = done
    assert result.report == out / "report.html"
    assert "ensemble of 2 runs" in result.report.read_text()
    assert len(Evaluation.load(result.lines[0].folder).planes) == 1
    monkeypatch.setattr("subspaces.experiments.training.scheduling.train_group", lambda *_: pytest.fail("again"))
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    again = demo.run(demo.Setting(seeds=2, epochs=3), out, "quiet")
    assert again.report is None
    for name, one in again.answers.items():
        assert one.frame.equals(result.answers[name].frame)


def test_the_command_prints_a_table_saves_lines_and_writes_a_report(
    done: tuple[Path, demo.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder of the user's that the demo makes its own in."""
    out, _ = done
    (out / "report.html").unlink()
    (line,) = out.glob("digits-line-seed1-*")
    shutil.rmtree(line)
    monkeypatch.chdir(out.parent)
    shown = CliRunner().invoke(app, ["demo", "--seeds", "2", "--epochs", "3"], env={"COLUMNS": "240"})
    assert shown.exit_code == 0, shown.output
    for words in ("midpoint", "accuracy %", "ECE %", "trained", "better in", str(out / "report.html")):
        assert words in shown.stdout
    table = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    for name, one in done[1].answers.items():
        spreads = [np.array(percent(one, metric)) for metric in ("accuracy", "ece")]
        numbers = " ".join(f"{each.mean():.1f} ± {each.std(ddof=1):.1f}" for each in spreads)
        assert f"{name} {numbers} {one.runs} {one.networks}" in table
    assert ss.load(line / "family.safetensors", ss.networks.MLP).shape == ss.Line()
    assert (out / "report.html").is_file()


def test_findings_count_the_seeds_in_which_it_is_better(done: tuple[Path, demo.Result]) -> None:
    first = done[1].answers["a network"]

    def planted(accuracy: list[float], ece: list[float]) -> GroupAnswer:
        numbers = {"accuracy": [a / 100 for a in accuracy], "ece": [e / 100 for e in ece]}
        return dataclasses.replace(first, frame=pd.DataFrame({"seeds": [(0,), (1,), (2,)], **numbers}))

    low, high = planted([50.0, 60.0, 70.0], [5.0, 5.0, 5.0]), planted([60.0, 60.0, 60.0], [4.0, 6.0, 3.0])
    found = demo.findings({"network": low, "ends": low, "midpoint": high, "two networks": high, "pair": high})
    assert "accuracy +0.0 points, better in 1 of 3 seeds; ECE -0.7 points, better in 2 of 3 seeds" in found[0]
    pairs = ["midpoint against network", "midpoint against ends", "pair against network", "pair against two networks"]
    assert [sentence.partition(":")[0] for sentence in found] == pairs


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


def test_fine_tuning_in_several_ways(runs: Runs) -> None:
    printed = runs("fine_tuning", "2", "60")
    found = re.findall(r"^(.+?) +turned ([\d.]+) ± [\d.]+% +upright ([\d.]+) ± [\d.]+%$", printed, re.MULTILINE)
    turned = {name: float(new) for name, new, _ in found}
    upright = {name: float(old) for name, _, old in found}
    assert len(found) == 8
    assert turned["before"] < 40 < 75 < min(turned["fine-tuned on 100"], turned["line on 100, midpoint"])
    assert upright["fine-tuned on 60"] < upright["half-way back"] < upright["before"]
