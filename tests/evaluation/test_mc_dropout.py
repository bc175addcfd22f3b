"""MC-dropout as an answer: against passes made by hand, with the masks that the seed of the run gives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import retrained
import torch
from evaluation_cases import CPU, expected_metrics, softmax
from family_cases import LOADERS, TEST, family, normless
from torch import nn

import subspaces as ss
from subspaces.core import randomness
from subspaces.experiments import data
from subspaces.experiments.training import Run
from subspaces.experiments.training.batches import evaluation_batches, statistics_batches, statistics_seed
from subspaces.networks.registry import dropping

PASSES = 3


def by_hand(folder: Path) -> tuple[list[Any], Any]:
    """Return the logits of each pass on the test images, and the labels."""
    recipe = Run.open(folder).recipe
    dataset = data.load("digits", validation=recipe.validation, seed=recipe.data_seed)
    family = ss.load(folder / "family.safetensors", lambda: retrained.network(10, (1, 8, 8), recipe.dropout))
    network = family.midpoint()
    torch.manual_seed(statistics_seed(recipe))
    ss.recalibrate(network, statistics_batches(recipe, dataset, CPU)).eval()
    network.dropout.train()  # type: ignore[operator, union-attr]
    found: list[list[Any]] = [[] for _ in range(PASSES)]
    with torch.no_grad():
        for number, (x, _) in enumerate(evaluation_batches(dataset.test, recipe, dataset, CPU)):
            torch.manual_seed(randomness.number(recipe.seed, "dropout", number))
            for each in found:
                each.append(network(x).double().numpy())
    return [np.concatenate(each) for each in found], dataset.test.labels.numpy()


def test_the_answer_is_the_mean_of_passes_with_other_masks(small: Any, tmp_path: Path) -> None:
    folder = retrained.unmeasured(small("dropout"), tmp_path)
    settings: dict[str, Any] = {"device": "cpu", "trust": True, "progress": False}
    record = ss.evaluate(folder, dropout_passes=PASSES, **settings)
    assert record.answers[-1].words == f"MC-dropout, {PASSES} passes"
    outputs, labels = by_hand(folder)
    members = [softmax(each) for each in outputs]
    rows = {row.average: row for row in record.rows if (row.role, row.data) == ("dropout", "test")}
    tv = np.mean([np.abs(members[a] - members[b]).sum(1).mean() / 2 for a, b in ((0, 1), (0, 2), (1, 2))])
    assert tv > 0.01
    for average, p in (("probabilities", np.mean(members, 0)), ("logits", softmax(np.mean(outputs, 0)))):
        row, expected = rows[average], expected_metrics(p, labels)
        assert (row.kind, row.networks, row.count, row.alphas) == ("ensemble", PASSES, len(labels), [0.0])
        for name in ("accuracy", "nll", "brier", "aurc"):
            assert row.metrics[name] == pytest.approx(expected[name], abs=2e-5)
    assert rows["probabilities"].diversity["tv"] == pytest.approx(tv, abs=1e-5)  # type: ignore[index]
    assert record["dropout"] == rows["probabilities"]
    more = ss.evaluate(folder, dropout_passes=PASSES + 1, **settings)
    assert (more["dropout"].networks, more.answers[-1].networks) == (PASSES + 1, PASSES + 1)
    assert rows["probabilities"] in more.rows  # which stays


def test_a_family_of_the_users_own_is_asked_so_if_that_is_wanted() -> None:
    found = ss.evaluate(family(ss.Line()), answers=["midpoint", "dropout"], dropout_passes=4, grid=(), **LOADERS)
    assert (found["dropout"].networks, [each.name for each in found.answers]) == (4, ["midpoint", "dropout"])
    assert found["dropout"].nll != found["midpoint"].nll
    with pytest.raises(ValueError, match="Sequential has no dropout"):
        ss.evaluate(normless(), test=TEST, answers=["dropout"], progress=False)


def test_only_what_drops_is_in_train_mode() -> None:
    network = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.0), nn.AlphaDropout(0.1)))
    with dropping(network):
        assert [part.training for part in network.modules()] == [False, False, True, False, False, True]
    assert not any(part.training for part in network.modules())
