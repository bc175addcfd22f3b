"""The demo's parts, and the demo in small."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from subspaces.reports.answers import Answer
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.evaluation.record import Record
from subspaces.experiments import demo
from subspaces.experiments.training import Run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, demo.Result]:
    out = tmp_path_factory.mktemp("here") / "demo"
    return out, demo.run(demo.Setting(seeds=2, epochs=3), out, "quiet")


def percent(answer: Answer, metric: str) -> list[float]:
    """A metric of each seed, in the order of the seeds."""
    return [100 * answer.by_seeds[seeds][metric] for seeds in sorted(answer.by_seeds)]


def test_answers_are_what_was_measured(done: tuple[Path, demo.Result]) -> None:
    _, result = done
    assert [one.runs for one in result.answers] == [1, 1, 1, 2, 1]
    assert [one.networks for one in result.answers] == [1, 1, 1, 2, 2]
    assert all(sorted(one.by_seeds) == [(0,), (1,)] for one in result.answers)
    for seed, run in enumerate(result.lines):
        assert run.recipe.seed == seed
        points = {row.alphas[0]: row for row in Record.read(run.folder).rows if row.kind == "point"}
        assert percent(result.answers[2], "accuracy")[seed] == pytest.approx(100 * points[0.5].metrics["accuracy"])
        ends = (points[0.0].metrics["ece"] + points[1.0].metrics["ece"]) / 2
        assert percent(result.answers[1], "ece")[seed] == pytest.approx(100 * ends)


def test_a_network_and_two_networks_by_hand(done: tuple[Path, demo.Result]) -> None:
    """The first seed's networks, read from their files and run on the test images."""
    out, result = done
    dataset = ss.data.load("digits", label_noise=0.4)
    names = ("digits-standard-seed0-*", f"digits-standard-seed{demo.OTHERS}-*")
    networks = []
    for name in names:
        (folder,) = out.glob(name)
        networks.append(ss.load(Run.open(folder).family_file, ss.networks.MLP).midpoint().eval())
    images = (dataset.test.images / 255 - dataset.mean[0]) / dataset.std[0]
    with torch.no_grad():
        answers = [network(images).softmax(1) for network in networks]
    for found, answer in ((result.answers[0], answers[0]), (result.answers[3], sum(answers) / 2)):
        right = (answer.argmax(1) == dataset.test.labels).float().mean()
        assert percent(found, "accuracy")[0] == pytest.approx(100 * float(right))


def test_the_report_and_the_plane_are_there(done: tuple[Path, demo.Result]) -> None:
    out, result = done
    assert result.report == out / "report.html"
    text = result.report.read_text()
    assert "digits" in text
    assert "ensemble of 2 runs" in text
    assert len(Record.read(result.lines[0].folder).planes) == 1


def test_nothing_is_trained_twice(done: tuple[Path, demo.Result], monkeypatch: pytest.MonkeyPatch) -> None:
    out, result = done
    monkeypatch.setattr("subspaces.experiments.training.groups.train_runs", lambda *_: pytest.fail("trained again"))
    again = demo.run(demo.Setting(seeds=2, epochs=3), out, "quiet")
    assert [one.by_seeds for one in again.answers] == [one.by_seeds for one in result.answers]


def test_the_command_prints_a_table_saves_lines_and_writes_a_report(
    done: tuple[Path, demo.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder of the user's that the demo makes its own in."""
    out, _ = done
    (out / "report.html").unlink()
    (line,) = out.glob("digits-line-seed1-*")
    shutil.rmtree(line)
    monkeypatch.chdir(out.parent)
    shown = CliRunner().invoke(app, ["demo", "--seeds", "2", "--epochs", "3"])
    assert shown.exit_code == 0, shown.output
    for words in ("midpoint", "accuracy %", "ECE %", "trained", "better in", str(out / "report.html")):
        assert words in shown.stdout
    assert ss.load(line / "family.safetensors", ss.networks.MLP).shape == ss.Line()
    assert (out / "report.html").is_file()


def test_without_plotly_there_is_no_report(done: tuple[Path, demo.Result], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = done
    monkeypatch.setattr("subspaces.reports.page.find_spec", lambda name: None)
    assert demo.run(demo.Setting(seeds=2, epochs=3), out, "quiet").report is None


def answer(done: tuple[Path, demo.Result], name: str, accuracy: list[float], ece: list[float]) -> Answer:
    """An answer whose numbers are these percentages, one for each seed."""
    numbers = zip(accuracy, ece, strict=True)
    scores: dict[tuple[int, ...], dict[str, float]] = {
        (seed,): {"accuracy": a / 100, "ece": e / 100} for seed, (a, e) in enumerate(numbers)
    }
    return dataclasses.replace(done[1].answers[0], name=name, by_seeds=scores)


def test_findings_count_the_seeds_in_which_it_is_better(done: tuple[Path, demo.Result]) -> None:
    low = answer(done, "low", [50.0, 60.0, 70.0], [5.0, 5.0, 5.0])
    high = answer(done, "high", [60.0, 60.0, 60.0], [4.0, 6.0, 3.0])
    sentence = demo.findings([low, low, high, high, high])[0]
    assert "accuracy +0.0 points, better in 1 of 3 seeds; ECE -0.7 points, better in 2 of 3 seeds" in sentence


def test_findings_compare_midpoint_and_pair_with_what_they_cost_and_could_be(done: tuple[Path, demo.Result]) -> None:
    names = ["network", "ends", "midpoint", "two networks", "pair"]
    found = [answer(done, name, [1.0, 1.0], [1.0, 1.0]) for name in names]
    assert [sentence.partition(":")[0] for sentence in demo.findings(found)] == [
        "midpoint against network",
        "midpoint against ends",
        "pair against network",
        "pair against two networks",
    ]


@pytest.mark.parametrize("bad", [{"seeds": 0}, {"epochs": 0}, {"label_noise": 1.5}])
def test_bad_settings(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        demo.Setting(**bad)
