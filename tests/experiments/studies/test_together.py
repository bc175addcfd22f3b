"""Ensembles of independent runs, and MC-dropout, each computed anew without the evaluation's own code."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from study_cases import images_of, network_of
from torch import Tensor

from subspaces.core import randomness
from subspaces.evaluation import METRICS
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.evaluating.evaluate import evaluate_together
from subspaces.experiments.studies.compare import Comparison
from subspaces.experiments.training import Run

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
        (entry,) = (entry for entry in comparison.entries if entry.words == f"ensemble of {size} runs")
        assert list(entry.frame["seeds"]) == seeds
        assert entry.networks == size
        for members in seeds:
            for split, frame in (("test", entry.frame), ("validation", entry.held_out)):
                x, y = images_of(runs[0].folder, split)
                each = [network_of(runs[seed].folder)(x).softmax(1) for seed in members]
                expect(frame.set_index("seeds").loc[[members]].iloc[0], torch.stack(each).mean(0), y)


def test_what_is_there_is_not_measured_again(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = runs_of(comparison, "digits-standard")[:3]
    (made,) = evaluate_together([[first, second]], to=tmp_path, **CPU)
    measure, seen = Predictor.outputs, [0]

    def counting(self: Predictor, points: Any, data: Any, **how: Any) -> object:
        seen[0] += data == "test"
        return measure(self, points, data, **how)

    monkeypatch.setattr(Predictor, "outputs", counting)
    again = evaluate_together([[second.folder, first.folder], [first, second, third]], to=tmp_path, trust=True, **CPU)
    assert again[0] == made
    assert seen == [3]
    assert len(json.loads((tmp_path / "ensembles.json").read_text())["measured"]) == 2
    (tmp_path / "ensembles.json").unlink()
    (anew,) = evaluate_together([[first, second]], to=tmp_path, **CPU)
    assert anew.metrics == made.metrics
    assert seen == [5]


@torch.no_grad()
def test_mc_dropout_is_the_mean_over_passes_with_the_same_random_numbers(comparison: Comparison) -> None:
    runs = runs_of(comparison, "digits-dropout")
    (entry,) = (entry for entry in comparison.entries if entry.words == "MC-dropout, 4 passes")
    assert entry.networks == 4
    for run, (_, scores) in zip(runs, entry.frame.iterrows(), strict=True):
        x, y = images_of(run.folder, "test")
        network = network_of(run.folder)
        plain = network(x).softmax(1)
        norm = {name: value.clone() for name, value in network.body.state_dict().items()}
        network.dropout.train()
        parts = []
        for number, part in enumerate(x.split(250)):
            torch.manual_seed(randomness.number(run.recipe.seed, "dropout", number))
            parts.append(torch.stack([network(part).softmax(1) for _ in range(4)]))
        passes = torch.cat(parts, 1)  # [passes, n, classes]
        expect(scores, passes.mean(0), y)
        assert not torch.allclose(passes[0], passes[1])
        assert not torch.allclose(passes[0], plain)
        assert all(torch.equal(norm[name], value) for name, value in network.body.state_dict().items())
