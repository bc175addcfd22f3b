"""Ensembles of independent runs, and MC-dropout, each computed anew without the evaluation's own code."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from study_cases import SMALL, images_of, network_of
from subspaces.experiments.studies.comparison import Comparison
from torch import Tensor, nn

import subspaces as ss
from subspaces.core import streams
from subspaces.evaluation import METRICS
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.run_ensembles import evaluate_together
from subspaces.experiments.training import Run, RunError
from subspaces.networks.dropout import dropping

CPU = {"device": "cpu", "progress": False}


def expect(metrics: dict[str, float], probabilities: Tensor, labels: Tensor) -> None:
    p, y = probabilities.double().numpy(), labels.numpy()
    p /= p.sum(1, keepdims=True)
    assert metrics["accuracy"] == pytest.approx(accuracy_score(y, p.argmax(1)), abs=1e-9)
    assert metrics["nll"] == pytest.approx(log_loss(y, p, labels=range(10)), abs=1e-5)
    assert metrics["brier"] == pytest.approx(brier_score_loss(y, p, labels=range(10), scale_by_half=False), abs=1e-5)
    assert metrics["ece"] == pytest.approx(METRICS["ece"](Classes(probabilities.log()), labels), abs=2 / len(y))


def runs_of(comparison: Comparison, name: str) -> list[Run]:
    return [run for run in comparison.runs if run.recipe.name == name]


@torch.no_grad()
def test_an_ensemble_is_the_mean_of_probabilities_of_its_runs(comparison: Comparison) -> None:
    runs = runs_of(comparison, "digits-standard")
    for size, seeds in ((2, [(0, 1), (2, 3)]), (3, [(0, 1, 2)])):
        (entry,) = (entry for entry in comparison.entries if entry.name == f"ensemble of {size} runs")
        assert list(entry.by_seeds) == seeds
        assert entry.networks == size
        for members in seeds:
            for split, scores in (("test", entry.by_seeds), ("validation", entry.held_out)):
                x, y = images_of(runs[0].folder, split)
                each = [network_of(runs[seed].folder)(x).softmax(1) for seed in members]
                expect(scores[members], torch.stack(each).mean(0), y)


def test_what_is_there_is_not_measured_again(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = runs_of(comparison, "digits-standard")[:3]
    (made,) = evaluate_together([[first, second]], to=tmp_path, **CPU)
    measure, seen = Predictor.__call__, [0]

    def counting(self: Predictor, weights: dict[str, Tensor]) -> object:
        seen[0] += 1
        return measure(self, weights)

    monkeypatch.setattr(Predictor, "__call__", counting)
    again = evaluate_together([[second.folder, first.folder], [first, second, third]], to=tmp_path, **CPU)
    assert again[0] == made
    assert seen == [3]
    assert len(json.loads((tmp_path / "ensembles.json").read_text())["measured"]) == 2
    (tmp_path / "ensembles.json").unlink()
    (anew,) = evaluate_together([[first, second]], to=tmp_path, **CPU)
    assert anew.metrics == made.metrics
    assert seen == [5]


def test_errors_of_ensembles(comparison: Comparison, tmp_path: Path) -> None:
    runs = runs_of(comparison, "digits-standard")
    with pytest.raises(RunError, match="expected two or more runs that differ"):
        evaluate_together([[runs[0], runs[0]]], to=tmp_path, **CPU)
    (other,) = ss.train("digits-standard", **{**SMALL, "label_noise": 0.1}, out=tmp_path / "runs")
    with pytest.raises(RunError, match=r"has label_noise 0.4 and .* 0.1: an ensemble is of runs on the same data"):
        evaluate_together([[runs[0], other]], to=tmp_path, **CPU)


@torch.no_grad()
def test_mc_dropout_is_the_mean_over_passes_with_the_same_random_numbers(comparison: Comparison) -> None:
    runs = runs_of(comparison, "digits-dropout")
    (entry,) = (entry for entry in comparison.entries if entry.name == "MC-dropout, 4 passes")
    assert entry.networks == 4
    for run, scores in zip(runs, entry.by_seeds.values(), strict=True):
        x, y = images_of(run.folder, "test")
        network = network_of(run.folder)
        plain = network(x).softmax(1)
        norm = {name: value.clone() for name, value in network.body.state_dict().items()}
        network.dropout.train()
        parts = []
        for number, part in enumerate(x.split(250)):
            torch.manual_seed(streams.number(run.recipe.seed, "dropout", number))
            parts.append(torch.stack([network(part).softmax(1) for _ in range(4)]))
        passes = torch.cat(parts, 1)  # [passes, n, classes]
        expect(scores, passes.mean(0), y)
        assert not torch.allclose(passes[0], passes[1])
        assert not torch.allclose(passes[0], plain)
        assert all(torch.equal(norm[name], value) for name, value in network.body.state_dict().items())


def test_dropout_is_on_and_batch_norm_is_not() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Dropout(0.0)).train()
    with dropping(network) as inside:
        assert [module.training for module in inside] == [False, False, True, False]
    assert not any(module.training for module in network.modules())
    with pytest.raises(ValueError, match="Linear has no dropout: train one with --dropout"), dropping(nn.Linear(2, 2)):
        pass


def test_dropout_is_measured_once_for_each_number_of_passes(comparison: Comparison, tmp_path: Path) -> None:
    source = runs_of(comparison, "digits-dropout")[0].folder
    folder = Path(shutil.copytree(source, tmp_path / source.name))
    before = (folder / "evaluation.json").read_bytes()
    ss.evaluate(folder, dropout_passes=4, **CPU)
    assert (folder / "evaluation.json").read_bytes() == before
    made = ss.evaluate(folder, dropout_passes=2, **CPU)
    rows = [row for row in made.rows if row.role == "dropout" and row.average == "probabilities"]
    found = {(row.networks, row.split): row for row in rows}
    assert {(2, "test"), (2, "validation")} <= set(found)
    assert (found[2, "test"].count, found[2, "validation"].count) == (597, 200)
    (entry,) = (one for one in comparison.entries if one.name == "MC-dropout, 4 passes")
    assert found[2, "test"].metrics["nll"] != entry.values("nll")[0]
    with pytest.raises(ValueError, match="dropout_passes=0: expected at least 1"):
        ss.evaluate(folder, dropout_passes=0, **CPU)
