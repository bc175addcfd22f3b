"""Figures of the paper at the scale smoke: made, of the right numbers, with shared runs, and going on."""

import csv
import json
import math
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

import subspaces as ss
from subspaces.core import storage
from subspaces.errors import ArgumentError
from subspaces.evaluation import Evaluation
from subspaces.evaluation.curves import described
from subspaces.evaluation.rows import Corner, Plane
from subspaces.experiments.data import load
from subspaces.experiments.paper import FIGURES, SCALES, VERDICTS, Figure, Reproduced, Reproduction
from subspaces.experiments.paper.claims import NUMBER, UNITS
from subspaces.experiments.paper.measured import mean_of_cells
from subspaces.experiments.paper.reproduce import ReproductionPlan, plan, run
from subspaces.experiments.studies.compare import SECOND
from subspaces.experiments.studies.instability import WORDS
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Run, Stopped, TrainingError
from subspaces.experiments.training.trainer import Trainer
from subspaces.reports.figures import style

QUIET: dict[str, Any] = {"show": "quiet", "device": "cpu"}
SMOKE = SCALES["smoke"]
SETUP = SMOKE.setup("cifar10")
MADE = (  # every kind of study, picture and expression once
    *("planes", "dynamics", "along", "ensembles-along", "simplex-midpoint", "label-noise", "corrupted-along", "epochs"),
    *("six-models", "off-the-line", "integral", "endpoints", "corrupted-midpoint", "corrupted-best", "instability"),
)


def asked(place: Path, name: Any = "all", scale: str = "smoke", **more: Any) -> ReproductionPlan:
    """What is to be done for figures, with one seed, in a folder."""
    setting = {"seeds": [0], "runs": place / "runs", "out": place / "out", "data": place / "data", **QUIET, **more}
    return plan(name, scale, Setting.of(**setting))


@pytest.fixture(scope="module", autouse=True)
def _pictures_that_are_drawn_and_not_printed() -> Iterator[None]:
    """Spare the figures' pixels and fonts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", lambda figure, path: storage.write(path, str(len(figure.axes)).encode()))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="module")
def made(place: Path) -> Reproduction:
    return run(asked(place, MADE))


@pytest.fixture(scope="module")
def by_name(made: Reproduction) -> dict[str, Reproduced]:
    return {one.plan.figure.name: one for one in made.figures}


def claimed(one: Reproduced, beginning: str) -> dict[str, Any]:
    """The claim that begins with these words, as its file has it."""
    found = json.loads((one.plan.study.setting.out / "reproduction.json").read_text())["claims"]
    (claim,) = (each for each in found if each["claim"].startswith(beginning))
    return dict(claim)


def record(place: Path, name: str) -> Evaluation:
    """The record of the run of a method, read from its folder."""
    return Evaluation.load(Run.under(place / "runs", SETUP.recipe(name)).folder)


def middle(found: Evaluation) -> float:
    return next(row.accuracy for row in found.rows if row.role == "midpoint" and row.split == "test")


# The figures


def test_every_figure_of_the_paper_but_the_sketch_is_there() -> None:
    numbers = [int(re.findall(r"Figure (\d+)", each.where)[0]) for each in FIGURES.values()]
    assert sorted(set(numbers)) == list(range(2, 22))
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", FIGURES)
def test_the_claims_of_a_figure_are_about_what_it_trains(name: str, scale: str) -> None:
    figure, tried = FIGURES[name], {each.replace("_", " ") for each in SCALES[scale].lists}
    for setup in map(SCALES[scale].setup, figure.on):
        claims = list(figure.claims_on(setup))
        assert len({each.sentence for each in claims}) == len(claims) > 1
        for above, _, below, _, metric in (each.parts for each in claims):
            assert metric in UNITS or described(metric)
            known = {*figure.recipes_on(setup), *WORDS.values(), *tried, "two networks"}
            assert {side.rpartition(": ")[0] or side for side in (above, below) if not NUMBER.fullmatch(side)} <= known


@pytest.mark.parametrize("name", MADE)
def test_a_figure_is_made_with_its_table_picture_and_claims(name: str, by_name: dict[str, Reproduced]) -> None:
    one = by_name[name]
    folder = one.plan.study.setting.out
    assert folder.parts[-2:] == (name, "digits")
    assert one.left_out == []
    assert int((folder / "reproduction.png").read_text()) >= 1  # axes
    with (folder / "reproduction.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["claim"] for row in rows] == [each.claim.sentence for each in one.judged]
    assert not any("{" in row["claim"] for row in rows)
    text = (folder / "reproduction.md").read_text()
    assert text.startswith(f"# {one.plan.figure.where}: {one.plan.figure.shows}")
    assert "not the paper's setting" in text
    for each in one.judged:
        assert each.verdict == "too noisy to say"  # one seed
        assert all(value >= -1.01 for side in (each.above, each.below) for value in side.values)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"{lin} is good": "line > standard"}, r"{lin} in the figure mine: did you mean 'line'\?"),
        ({"it is good": "lime > standard"}, r"no method 'lime' in this figure: did you mean 'line'\?"),
        ({"it is good": "line: midpiont > standard"}, r"line has no answer 'midpiont': did you mean 'midpoint'\?"),
        ({"it is good": "line: at 0.3 > standard"}, "'line: at 0.3': expected points that were measured, 0.0, 0.1, "),
    ],
)
def test_a_figure_of_ones_own_says_what_is_wrong_with_it(
    claims: dict[str, str], words: str, made: Reproduction, place: Path, tmp_path: Path
) -> None:
    methods: Any = {"standard": {}, "line": {"method": "line"}}
    FIGURES.add(Figure("mine", "Figure 22", "one of mine", ["cifar10"], methods, claims))
    try:
        with pytest.raises(ArgumentError, match=words):
            run(asked(place, "mine", out=tmp_path))
    finally:
        FIGURES.remove("mine")


# The numbers


def test_accuracies_along_a_line_are_those_of_its_record(by_name: dict[str, Reproduced], place: Path) -> None:
    line, standard = record(place, "line"), middle(record(place, "standard"))
    found = claimed(by_name["along"], "the midpoint of the line is above")
    assert (found["above"]["mean"], found["below"]["mean"]) == (middle(line), standard)
    found = claimed(by_name["along"], "the line at α = 0.75 matches")
    (row,) = (row for row in line.rows if row.alphas == [0.75])
    assert found["above"]["mean"] == row.accuracy
    assert found["difference"]["mean"] == pytest.approx(row.accuracy - standard + 0.002)


def test_two_networks_are_those_of_a_seed_and_of_a_second_one(by_name: dict[str, Reproduced], place: Path) -> None:
    first = SETUP.recipe()
    said = []
    data = load("digits", label_noise=0.4)
    for recipe in (first, replace(first, seed=SECOND)):
        folder = Run.under(place / "runs", recipe).folder
        family = ss.load(folder / "family.safetensors", ss.networks.build("mlp", classes=10, image_shape=(1, 8, 8)))
        network = ss.recalibrate(family.midpoint(), [normalised(data.train, data)]).eval()
        with torch.no_grad():
            said.append(network(normalised(data.test, data)[0]).softmax(1))
    right = ((said[0] + said[1]).argmax(1) == data.test.labels).float().mean()
    found = claimed(by_name["ensembles-along"], "two points of the line approach")
    assert found["below"]["mean"] == pytest.approx(float(right), abs=0.01)  # statistics of other batches
    apart = by_name["endpoints"].found.two_networks["tv"][0]
    assert apart == pytest.approx(float(0.5 * (said[0] - said[1]).abs().sum(1).mean()), abs=0.01)


def normalised(split: Any, data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """All images of a split as a network gets them."""
    mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (data.mean, data.std))
    return (split.images / 255 - mean) / std, split.labels


def test_distances_are_those_of_the_log(by_name: dict[str, Reproduced], place: Path) -> None:
    runs = [Run.under(place / "runs", SETUP.recipe("line", beta=beta)) for beta in (0.0, 1.0)]
    free, apart = (run.log()[-1] for run in runs)
    found = claimed(by_name["dynamics"], "the ends of a line with β = 0 are less than a third")
    assert found["difference"]["mean"] == pytest.approx(apart["l2"] - 3 * free["l2"])
    assert claimed(by_name["dynamics"], "with β = 1 the ends are nearly orthogonal")["below"]["mean"] == apart["cos2"]
    found = claimed(by_name["dynamics"], "with β = 1 the ends stay at least half as far apart")
    assert found["below"]["values"] == [runs[1].log()[0]["l2"]]


def test_changes_are_over_the_corruptions_of_the_figure(by_name: dict[str, Reproduced], place: Path) -> None:
    """Also where the same runs were measured on others; claim and picture choose by the relative change."""
    frame = record(place, "line").frame
    points = frame[(frame["kind"] == "point") & frame["alpha"].notna()]
    wanted = points[points["data"].isin(SMOKE.corruptions) & (points["severity"] == 3)]
    assert len(points[points["severity"] > 0]) > len(wanted)
    clean = points[points["data"] == "test"].set_index("alpha")["accuracy"]
    shifted = wanted.pivot(index="alpha", columns="data", values="accuracy")
    assert (set(shifted.index), len(shifted.columns)) == ({0.0, 0.1, 0.5, 0.9, 1.0}, len(SMOKE.corruptions))
    changes = shifted.div(clean[shifted.index], axis=0) - 1
    at_middle = claimed(by_name["corrupted-midpoint"], "the midpoint of the line loses less than standard")
    assert at_middle["above"]["mean"] == pytest.approx(changes.loc[0.5].mean())
    best = claimed(by_name["corrupted-best"], "the best network of the line")
    assert best["above"]["mean"] == pytest.approx(changes.max().mean())
    assert best["below"] == at_middle["below"]
    one = by_name["corrupted-best"]
    stars = one.draw().axes[0].lines[0].get_ydata()
    assert len(stars) == len(SMOKE.corruptions) + 1
    assert stars[-1] == pytest.approx(100 * (best["above"]["mean"] - best["below"]["mean"]))
    assert stars[-1] == pytest.approx(np.mean(stars[:-1]))


def test_mixtures_are_averaged_over_their_draws(by_name: dict[str, Reproduced]) -> None:
    study: Any = by_name["instability"].found.result
    found = claimed(by_name["instability"], "with 6 of 12 epochs shared, the mixture, layerwise")
    assert found["above"]["mean"] == pytest.approx(study.accuracy(2, 6, "layerwise").mean)
    assert len(study.cells[2, 6, "layerwise"]) == SMOKE.draws


def test_cells_inside_the_triangle_are_told_from_those_outside(by_name: dict[str, Reproduced]) -> None:
    corners = [Corner("a", 0.0, 0.0), Corner("b", 2.0, 0.0), Corner("c", 0.0, 2.0)]
    values = {"accuracy": [[1.0, 0.9, 0.5], [0.8, 0.7, 0.0], [0.6, 0.1, 0.2]]}
    plane = Plane("abc", corners, [0.0, 1.0, 2.0], [0.0, 1.0, 2.0], values, "test", 1, 1)  # type: ignore[arg-type]
    assert mean_of_cells(plane, True) == pytest.approx(fmean([1.0, 0.9, 0.5, 0.8, 0.7, 0.6]))
    assert mean_of_cells(plane, False) == pytest.approx(fmean([0.0, 0.1, 0.2]))
    (one, *_) = by_name["planes"].found.group("simplex").evaluations
    assert [len(each.xs) for each in by_name["planes"].found.planes(one)] == [SMOKE.cells]


# Sharing, going on


def test_a_second_time_nothing_is_trained_and_the_files_are_the_same(
    place: Path, made: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subspaces.experiments.training.scheduling.train_group", lambda *_: pytest.fail("again"))
    folder = place / "out" / "dynamics" / "digits"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    line = Run.under(place / "runs", SETUP.recipe("line"))
    ss.evaluate(line, grid=[0.37], progress=False, device="cpu")  # of no figure
    names = ["along", "dynamics"]
    again = run(asked(place, names, out=place / "again"))
    assert [one.plan.figure.name for one in again.figures] == ["dynamics", "along"]
    assert {file.name: file.read_bytes() for file in (place / "again" / "dynamics" / "digits").iterdir()} == before
    for ending in ("csv", "png"):
        name = f"along/digits/reproduction.{ending}"
        assert (place / "again" / name).read_bytes() == (place / "out" / name).read_bytes()


def test_all_claims_are_in_one_table(made: Reproduction, place: Path) -> None:
    summary = json.loads((place / "out" / "claims.json").read_text())
    assert [each["figure"] for each in summary["figures"]] == list(MADE)
    claims = [claim for each in summary["figures"] for claim in each["claims"]]
    assert sum(summary["counts"].values()) == len(claims) > 60
    assert (summary["scale"], summary["seeds"]) == ("smoke", [0])
    assert set(summary["counts"]) == set(VERDICTS)
    text = (place / "out" / "claims.md").read_text()
    assert text.count("| too noisy to say |") == len(claims)
    assert not (place / "out" / "claims.png").exists()


def test_what_was_stopped_goes_on_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by a signal in the middle of training, and after it between two figures."""
    names, lines, append = ["dynamics", "point-init"], [0], Run.append_log
    whole = run(asked(tmp_path / "whole", names))

    def stopping(self: Run, row: Any) -> None:
        append(self, row)
        lines[0] += 1
        if lines[0] == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    def stop(made: Reproduced) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "append_log", stopping)
    with pytest.raises(Stopped, match="SIGTERM"):
        run(asked(tmp_path, names))
    assert not (tmp_path / "out").exists()
    with pytest.raises(KeyboardInterrupt):
        run(asked(tmp_path, names), stop)
    assert (tmp_path / "out" / "dynamics" / "digits" / "reproduction.json").is_file()
    assert not (tmp_path / "out" / "claims.json").exists()
    again = run(asked(tmp_path, names))
    for one, other in zip(again.figures, whole.figures, strict=True):
        assert [each.summary() for each in one.judged] == [each.summary() for each in other.judged]


def test_a_run_that_fails_stops_no_figure_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Trainer._check_loss

    def failing(self: Trainer, loss: float, epoch: int) -> None:
        check(self, math.nan if self.run.recipe.init == "point" else loss, epoch)

    monkeypatch.setattr(Trainer, "_check_loss", failing)
    with pytest.raises(TrainingError, match="is nan in epoch 1"):
        run(asked(tmp_path, ["dynamics", "point-init"]))
    assert (tmp_path / "out" / "dynamics" / "digits" / "reproduction.json").is_file()
    summary = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert [each["figure"] for each in summary["figures"]] == ["dynamics"]
    with pytest.raises(TrainingError, match="is nan in epoch 1"):
        run(asked(tmp_path, "point-init", out=tmp_path / "alone"))
    assert not (tmp_path / "alone").exists()


# What is asked for


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "beta"}, r"no figure 'beta': did you mean 'betas'\?"),
        ({"scale": "papers"}, r"unknown scale 'papers': did you mean 'paper'\?"),
        ({"epochs": 3}, "epochs=…: the scale decides what is trained"),
        ({"seeds": [1, 1 + SECOND]}, "seeds=1, 1001: the latter is that of the former's second network"),
        ({"name": "along", "scale": "paper", "on": "cifar"}, r"on='cifar': did you mean 'cifar10'\?"),
    ],
)
def test_what_cannot_be_made_says_why(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=words):
        ss.reproduce(**{"runs": tmp_path / "runs", "out": tmp_path / "out", **QUIET, **given})
    assert list(tmp_path.iterdir()) == []


def test_figures_are_made_where_the_data_and_the_libraries_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = asked(tmp_path, ["along", "integral", "epochs"], "paper")
    assert (found.plans, [each.size for each in found.every][-1]) == ([], "12 × 10")
    reasons = found.obstacles
    assert len(reasons) == 7
    assert "subspaces data get cifar10" in reasons["cifar10"]
    assert "pip install 'subspaces[torchvision]' and imagenet" in reasons["imagenet-resnet50"]
    with pytest.raises(ValueError, match="nothing of it is possible here: cifar10"):
        run(found)
    assert not (tmp_path / "out").exists()
    only = plan("along", "paper", Setting.of(data=tmp_path, **QUIET), ["cifar10"])
    assert list(only.obstacles) == ["cifar10"]


def test_a_scale_is_a_few_lines(tmp_path: Path) -> None:
    """A subset of CIFAR-10 for all but Integral, in bfloat16 unless told otherwise."""
    small = {"recipe": "cifar10-standard", "name": "cifar10-small-standard", "network": "cresnet8", "epochs": 60}
    digits = {"recipe": "mnist-standard"}
    networks = {"any": small | {"validation": 40_000, "pad": 0, "flip": False}, "mnist": digits, "mnist-mlp": digits}
    more: dict[str, Any] = {"epochs": [20, 60], "validation": 40_000, "execution": {"precision": "bfloat16"}}
    SCALES.add(replace(SCALES["paper"], name="desk", standard=networks, **more))
    try:
        found = asked(tmp_path, scale="desk")
        assert asked(tmp_path, scale="desk", precision="float32").setting.execution.precision == "float32"
    finally:
        SCALES.remove("desk")
    assert [each.figure.name for each in found.every] == list(FIGURES)
    assert {(each.setup.name, each.setup.standard.dataset) for each in found.every} == {
        *[("cifar10-small", "cifar10"), ("mnist", "mnist")]
    }
    by_name = {each.figure.name: each.recipes for each in found.every}
    assert {one.network for one in by_name["along"]} == {"cresnet8"}
    assert {(one.label_noise, one.validation) for one in by_name["label-noise"]} == {
        (level, 40_000) for level in (0.0, 0.2, 0.4, 0.6)
    }
    assert found.setting.execution.precision == found.every[0].study.setting.execution.precision == "bfloat16"
