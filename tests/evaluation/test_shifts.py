"""Shifted data: the same numbers as a plain loop, each network prepared once."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_cases import LOADERS, TEST, TRAINING, Batches, Independent, Runs, about, evaluate, family, softmax
from helpers import Wrapped
from PIL import Image
from sklearn.metrics import log_loss
from torch import Tensor, nn

import subspaces as ss
from subspaces.evaluation import Row, measuring
from subspaces.evaluation.corruptions import CORRUPTIONS, corrupt
from subspaces.experiments import data
from subspaces.experiments.data import Files, StreamingLoader
from subspaces.experiments.evaluating.run_subject import run_subjects
from subspaces.experiments.training import Execution, Run

DARK: Batches = [(x - 0.5, y) for x, y in TEST]
HEADLINES = ["accuracy", "nll", "brier", "ece"]
LINE: dict[str, Any] = {"grid": (0.0, 0.5, 1.0)}


def shifted(found: ss.Evaluation) -> list[Row]:
    return [row for row in found.rows if row.group not in ("", "outliers")]


@pytest.mark.parametrize("shape", [ss.Line(), ss.Simplex(3), ss.Point()], ids=str)
def test_a_shift_that_changes_nothing_has_the_numbers_of_the_test_examples(shape: ss.Shape) -> None:
    found = ss.evaluate(family(shape), **LOADERS, corruptions={"none": TEST}, random=2, triangle=2)
    plain = {about(row): row for row in found.rows if row.data == "test"}
    for row in shifted(found):
        same = plain[about(row)]
        assert (row.data, row.severity, row.group, row.source, row.count) == ("none", 0, "given", "given", 300)
        assert row.metrics == pytest.approx({name: same.metrics[name] for name in HEADLINES}, rel=1e-9)
        assert (row.coefficients, row.reliability) == (same.coefficients, None)
    for answered in found.answers:
        expected = {name: found[answered.name].metrics[name] for name in HEADLINES}
        assert found.row(answered.name, "none").metrics == pytest.approx(expected, rel=1e-9)


def test_batches_that_are_joined_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    line, found = family(ss.Line()), []
    for numbers in (1, 9 * 64 * 10, measuring.NUMBERS):  # of outputs that wait: no batch, some of them, all
        monkeypatch.setattr(measuring, "NUMBERS", numbers)
        found.append(ss.evaluate(line, **LOADERS, **LINE, corruptions={"dark": DARK}))
    for each in found[1:]:
        for row, other in zip(shifted(found[0]), shifted(each), strict=True):
            assert (about(row), row.count) == (about(other), other.count)
            assert row.metrics == pytest.approx(other.metrics, rel=1e-12)


class Counted(list[Any]):
    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


def test_statistics_are_made_once_for_each_point_and_points_are_thinned() -> None:
    statistics = Counted(TRAINING)
    sets = {"dark": {severity: Counted(DARK) for severity in (1, 2)}}
    settings = {**LOADERS, "statistics": statistics, "corruptions": sets, "outliers": DARK}
    found = ss.evaluate(family(ss.Bezier()), **settings)
    rows = [row for row in shifted(found) if row.severity == 1]
    points = [row.alphas[0] for row in rows if row.kind == "point"]
    assert points == pytest.approx([step / 10 for step in range(11)])
    assert sum(row.kind == "ensemble" for row in rows) == 6
    assert statistics.walks == 21  # one for each point of the walk
    assert [each.walks for each in sets["dark"].values()] == [1, 1]


def test_other_tasks_and_plain_networks_are_measured_too() -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(3)]
    moved = {"moved": [(x, y + 1) for x, y in batches]}
    line = ss.Subspace(lambda: nn.Linear(3, 1), ss.Line())
    numbers = ss.evaluate(line, test=batches, task="regression", corruptions=moved, progress=False)
    assert set(numbers.row("pair", "moved").metrics) == {"rmse", "mae"}
    both = ss.evaluate([nn.Linear(12, 10), nn.Linear(12, 10)], test=TEST, corruptions={"dark": DARK}, progress=False)
    assert both.row("vertices", "dark").networks == 2


# Images


def pictures() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (20, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return images, torch.randint(4, (20,), generator=generator)


def sees() -> nn.Module:
    """Return a network that takes bytes as well as numbers."""
    numbers = Wrapped(lambda x: (x / 255 if x.dtype == torch.uint8 else x).flatten(1))
    return nn.Sequential(numbers, nn.Linear(3 * 64, 4))


def loader(images: Tensor, labels: Tensor, batch: int, scale: Any) -> Batches:
    return list(zip(scale(images).split(batch), labels.split(batch), strict=True))


MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
SCALES: dict[str, tuple[Any, dict[str, Any]]] = {
    "bytes": (lambda images: images, {}),
    "unit": (lambda images: images.float() / 255, {}),
    "normalised": (
        lambda images: (images / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None],
        {"mean": MEAN, "std": STD},
    ),
    "one for all": (lambda images: images / 127.5 - 1, {"mean": 0.5, "std": 0.5}),
}


@pytest.mark.parametrize("name", SCALES)
def test_images_of_any_loader_are_corrupted_as_bytes(name: str) -> None:
    scale, constants = SCALES[name]
    images, labels = pictures()
    torch.manual_seed(1)
    line = ss.Subspace(sees, ss.Line())
    wanted = ss.Corruptions(["fog", "gaussian_noise"], [1, 5], seed=3, **constants)
    settings: dict[str, Any] = {"progress": False, **LINE}
    made = ss.evaluate(line, test=loader(images, labels, 7, scale), corruptions=wanted, **settings)
    given = {
        each: {hard: loader(corrupt(images, each, hard, seed=3), labels, 20, scale) for hard in (1, 5)}
        for each in ("gaussian_noise", "fog")
    }
    expected = ss.evaluate(line, test=loader(images, labels, 20, scale), corruptions=given, **settings)
    sets = {"gaussian_noise": "noise", "fog": "weather"}
    there = dict.fromkeys((row.data, row.severity, row.group, row.source) for row in shifted(made))
    assert list(there) == [(name, hard, group, "made, seed 3") for name, group in sets.items() for hard in (1, 5)]
    others = {(row.data, row.severity, about(row)): row.metrics for row in shifted(expected)}
    for row in shifted(made):
        assert row.metrics == pytest.approx(others[row.data, row.severity, about(row)], abs=1e-5)


def test_a_run_on_files_corrupts_the_views_that_it_is_tested_on(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.randint(256, (3, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for number, image in enumerate(images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    files = Files(tmp_path, np.array([b"0.png", b"1.png", b"2.png"]), torch.tensor([2, 0, 1]))
    subject = run_subjects(None, Execution(device="cpu", workers=0))(Run.open(runs("standard")[0]))
    dataset = data.Dataset("imagenet", files, None, files, ("a", "b", "c"), MEAN, STD)
    monkeypatch.setitem(vars(subject), "images_of", dataset)
    (pictures,) = subject.pictures()
    ((expected, labels),) = StreamingLoader(files, batch=3, mean=MEAN, std=STD, shuffle=False, workers=0)
    x, y = pictures.rebuild(pictures.images)
    torch.testing.assert_close(x, expected)
    assert torch.equal(y, labels)


def test_a_run_is_measured_on_its_own_test_images(runs: Runs) -> None:
    (folder,) = runs("line")
    (found,) = evaluate(folder, corruptions=ss.Corruptions(["fog", "pixelate"], [2]), **LINE)
    there = dict.fromkeys((row.data, row.severity, row.source) for row in shifted(found))
    assert list(there) == [("fog", 2, "made"), ("pixelate", 2, "made")]
    truth = Independent(folder)
    test = truth.dataset.test
    spoilt = corrupt(test.images, "fog", 2)  # type: ignore[union-attr]
    object.__setattr__(truth.dataset, "test", dataclasses.replace(test, images=spoilt))
    for row in (row for row in shifted(found) if row.data == "fog"):
        p = np.mean([softmax(truth.predict(alpha, "test")) for alpha in row.alphas], 0)
        assert row.accuracy == pytest.approx((p.argmax(1) == truth.labels("test")).mean())
        assert row.nll == pytest.approx(log_loss(truth.labels("test"), p, labels=range(10)), abs=2e-5)
    (other,) = evaluate(folder, corruptions=ss.Corruptions(["fog"], [2], seed=1), **LINE)
    assert {row.source for row in shifted(other) if row.data == "fog"} == {"made, seed 1"}  # in place of the others


# In hand


def test_tables_show_means_and_rows_are_found_by_name() -> None:
    found = ss.evaluate(family(ss.Line()), **LOADERS, **LINE, corruptions={"dark": {1: TEST, 2: DARK}})
    table = found.table("shifted")
    assert "family: mean over 2 sets of 1 kind\n" in table
    assert found.row("pair", "dark", 2).alphas == [0.0, 1.0]  # of a coarse walk, the nearest
    before = found["midpoint"].accuracy
    mean = (before + found.row("midpoint", "dark", 2).accuracy) / 2
    assert f"{100 * mean:.2f} ({100 * (mean - before) / before:+.1f} %)" in table
    for wrong, said in (
        (("midpoint", "darc"), "'darc' was not measured: did you mean 'dark'"),
        (("midpoint", "dark", 3), "severity 3 of 'dark': expected one of 1, 2"),
        (("midpoint", "dark"), "severity None"),
        (("middle", "dark", 1), "'middle' was not measured on 'dark'"),
    ):
        with pytest.raises(KeyError, match=said):
            found.row(*wrong)


WRONG: list[tuple[Any, str]] = [
    (3, "corruptions=3: expected names such as"),
    ("fogg", "corruptions='fogg': did you mean 'fog'"),
    (["fog", 3], "corruptions=3"),
    ([], "names=.*expected at least one"),
    ({}, "corruptions={}: expected names such as"),
    ({"dark": 3}, "expected something that yields batches"),
    ({"dark": iter(DARK)}, "walked over again"),
    ({"dark": {-1: DARK}}, "severity=-1: expected at least 0"),
    ({"dark": []}, "the dark loader has no examples"),
    ("all", "a batch is 'tuple' without images"),
]


@pytest.mark.parametrize(("value", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_cannot_be_measured_is_refused(value: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        ss.evaluate(family(ss.Line()), **LOADERS, **LINE, corruptions=value)


def test_corruptions_are_named_in_the_order_of_the_catalogue_and_wrong_ones_refused() -> None:
    assert len(ss.Corruptions().names) == 15
    assert ss.Corruptions("extra").names == tuple(CORRUPTIONS)
    assert ss.Corruptions(["snow", "shot_noise"], [3, 1, 3]) == ss.Corruptions(["shot_noise", "snow"], [1, 3])
    for wrong, said in (
        ({"severities": [0]}, "severities=0: expected at least 1 and at most 5"),
        ({"severities": 3}, "severities=3: expected a list"),
        ({"mean": (0.5,)}, "expected both"),
        ({"mean": (0.5,), "std": (0.0,)}, "std above 0"),
        ({"seed": -1}, "seed=-1"),
        ({"names": ["snowy"]}, "did you mean 'snow'"),
    ):
        with pytest.raises((ValueError, TypeError), match=said):
            ss.Corruptions(**wrong)  # type: ignore[arg-type]


def test_normalised_images_need_their_constants_and_runs_bring_theirs(runs: Runs) -> None:
    batches, line = loader(*pictures(), 20, SCALES["normalised"][0]), ss.Subspace(sees, ss.Line())
    with pytest.raises(ValueError, match=r"values from -\d.* to 4.*pass ss.Corruptions\(mean=…, std=…\)"):
        ss.evaluate(line, test=batches, corruptions="fog", progress=False)
    wrong = ss.Corruptions("fog", mean=(0.5, 0.5), std=(0.2, 0.2))
    with pytest.raises(ValueError, match=r"mean=\(0.5, 0.5\), .* have 3 channels; expected 3 numbers in each"):
        ss.evaluate(line, test=batches, corruptions=wrong, progress=False)
    with pytest.raises(ValueError, match="is a run, which knows its own"):
        evaluate(*runs("standard"), corruptions=ss.Corruptions("fog", mean=(0.5,), std=(0.5,)))
