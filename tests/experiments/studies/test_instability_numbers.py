"""Every number of an instability study, in every form, against what was measured."""

import csv
import json
from pathlib import Path

import pytest
from number_cases import METRICS, Expected, cells_of, check_csv, printed
from pretended import scores
from study_cases import STANDARD, without_pictures
from subspaces.experiments.studies.network_mixtures import KINDS, WORDS
from typer.testing import CliRunner

from subspaces.cli import app
from subspaces.experiments.studies.instability import InstabilityStudy
from subspaces.experiments.studies.instability import plan as planned
from subspaces.experiments.studies.setting import Setting


@pytest.fixture(scope="module")
def unstable() -> InstabilityStudy:
    plan = planned(STANDARD, Setting(seeds=[1, 2]), [0, 7, 15], (2, 3, 5), 4)
    cells = {
        (m, k, kind): [scores(m, k, kind, at) for at in range(KINDS.index(kind) + 1)]
        for m in plan.models
        for k in plan.shared
        for kind in KINDS
    }
    return InstabilityStudy(plan, cells, [], 30)


def spreads(study: InstabilityStudy, m: int, k: int, kind: str, metric: str) -> Expected:
    count = KINDS.index(kind) + 1  # type: ignore[arg-type]
    return Expected([scores(m, k, kind, at)["test"][metric] for at in range(count)], None)


def test_instability_tables(unstable: InstabilityStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
    made = unstable.write(tmp_path)
    stored = json.loads((tmp_path / "instability.json").read_bytes())
    rows = list(csv.DictReader((tmp_path / "instability.csv").read_text().splitlines()))
    assert (stored["draws"], stored["images"], stored["models"], stored["shared"]) == (4, 30, [2, 3, 5], [0, 7, 15])
    keys = [(m, k, kind) for m in (2, 3, 5) for k in (0, 7, 15) for kind in KINDS]
    for found, row, key in zip(stored["cells"], rows, keys, strict=True):
        assert (found["models"], found["shared"], found["kind"]) == key
        assert (int(row["models"]), int(row["shared"]), row["kind"]) == key
        for metric in METRICS:
            one = spreads(unstable, *key, metric)
            one.check(found["metrics"][metric])
            check_csv(row, {f"{metric}_mean": one.mean, f"{metric}_std": one.std, "n": len(one.values)})
    head, _, *lines = cells_of((tmp_path / "instability.md").read_text())
    words = ["each branch", "weight average", "ensemble of outputs", "mixture, global", "mixture, layerwise"]
    assert head == ["models", "shared epochs", *(f"{word} %" for word in [*words, "mixture, per weight"])]
    table = []
    for m in (2, 3, 5):
        for k in (0, 7, 15):
            numbers = [spreads(unstable, m, k, kind, "accuracy").written("accuracy")[0] for kind in KINDS]
            table.append([str(m), str(k), *numbers])
    assert lines == table
    monkeypatch.setattr("subspaces.experiments.studies.instability.run", lambda plan: made)
    shown = CliRunner().invoke(app, ["study", "instability", "digits-standard"], env={"COLUMNS": "240"}).stdout
    for cells in [head, *table]:
        assert " ".join(cells) in printed(shown)


def test_instability_figure(unstable: InstabilityStudy) -> None:
    drawing = unstable.draw()
    kinds = [("branch", "average", "ensemble"), ("branch", "global", "layerwise", "per-weight")]
    (legend,) = drawing.legends
    colours = dict(zip(WORDS.values(), (h.get_color() for h in legend.legend_handles), strict=True))
    assert [text.get_text() for text in legend.texts] == list(colours)
    for axes, m, drawn in zip(drawing.axes, (2, 2, 5), (*kinds, kinds[0]), strict=True):
        assert axes.get_title(loc="left").endswith(f" of {m}")
        assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "7", "15"]
        curves = [line for line in axes.lines if line.get_linestyle() != "None"]  # not those below the panel
        for kind, curve, band in zip(drawn, curves, axes.collections, strict=True):
            found = [spreads(unstable, m, k, kind, "accuracy") for k in (0, 7, 15)]
            assert list(curve.get_ydata()) == pytest.approx([100 * one.mean for one in found])
            assert curve.get_color() == colours[WORDS[kind]]
            edge = band.get_paths()[0].vertices[:, 1]
            assert edge.max() == pytest.approx(max(100 * (one.mean + (one.std or 0)) for one in found))
            assert edge.min() == pytest.approx(min(100 * (one.mean - (one.std or 0)) for one in found))
