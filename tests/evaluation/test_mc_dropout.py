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
from subspaces.networks.dropout import dropping

PASSES = 3


def by_hand(folder: Path, split: str) -> tuple[list[Any], Any]:
    """Return the logits of each pass, and the labels."""
    recipe = Run.open(folder).recipe
    dataset = data.load("digits", validation=recipe.validation, seed=recipe.data_seed)
    network = ss.load(
        folder / "family.safetensors", lambda: retrained.network(10, (1, 8, 8), recipe.dropout)
    ).midpoint()
    torch.manual_seed(statistics_seed(recipe))
    ss.recalibrate(network, statistics_batches(recipe, dataset, CPU)).eval()
    network.dropout.train()  # type: ignore[operator, union-attr]
    found: list[list[Any]] = [[] for _ in range(PASSES)]
    batches = evaluation_batches(getattr(dataset, split), recipe, dataset, CPU)
    with torch.no_grad():
        for number, (x, _) in enumerate(batches):
            torch.manual_seed(randomness.number(recipe.seed, "dropout", number))
            for each in found:
                each.append(network(x).double().numpy())
    return [np.concatenate(each) for each in found], getattr(dataset, split).labels.numpy()


def test_the_answer_is_the_mean_of_passes_with_other_masks(small: Any, tmp_path: Path) -> None:
    folder = retrained.unmeasured(small("dropout"), tmp_path)
    record = ss.evaluate(folder, device="cpu", trust=True, dropout_passes=PASSES, progress=False)
    assert [(each.name, each.words, each.networks) for each in record.answers if each.name == "dropout"] == [
        ("dropout", f"MC-dropout, {PASSES} passes", PASSES)
    ]
    for split in ("test", "validation"):
        outputs, labels = by_hand(folder, split)
        members = [softmax(each) for each in outputs]
        rows = {row.average: row for row in record.rows if (row.role, row.split) == ("dropout", split)}
        assert rows.keys() == {"probabilities", "logits"}
        for average, p in (("probabilities", np.mean(members, 0)), ("logits", softmax(np.mean(outputs, 0)))):
            row = rows[average]
            assert (row.kind, row.networks, row.count, row.alphas) == ("ensemble", PASSES, len(labels), [0.0])
            expected = expected_metrics(p, labels)
            for name in ("accuracy", "nll", "brier", "aurc"):
                assert row.metrics[name] == pytest.approx(expected[name], abs=2e-5)
            tv = np.mean([np.abs(members[a] - members[b]).sum(1).mean() / 2 for a, b in ((0, 1), (0, 2), (1, 2))])
            assert row.diversity is not None
            assert row.diversity["tv"] == pytest.approx(tv, abs=1e-5)
            assert tv > 0.01
    assert record["dropout"] == the_row(record, PASSES)
    again = ss.evaluate(folder, device="cpu", trust=True, dropout_passes=PASSES, progress=False)
    assert again == record
    more = ss.evaluate(folder, device="cpu", trust=True, dropout_passes=PASSES + 1, progress=False)
    assert (more["dropout"].networks, more.answers[-1].networks) == (PASSES + 1, PASSES + 1)
    assert more["dropout"].metrics != record["dropout"].metrics
    assert the_row(more, PASSES) == record["dropout"]  # which stays


def the_row(record: ss.Evaluation, passes: int) -> Any:
    about = ("dropout", "test", "probabilities", passes)
    found = [row for row in record.rows if (row.role, row.split, row.average, row.networks) == about]
    assert len(found) == 1
    return found[0]


def test_a_family_of_the_users_own_is_asked_so_if_that_is_wanted() -> None:
    found = ss.evaluate(family(ss.Line()), answers=["midpoint", "dropout"], dropout_passes=4, grid=(), **LOADERS)
    assert found["dropout"].networks == 4
    assert found["dropout"].nll != found["midpoint"].nll
    assert [each.name for each in found.answers] == ["midpoint", "dropout"]
    with pytest.raises(ValueError, match="Sequential has no dropout"):
        ss.evaluate(normless(), test=TEST, answers=["dropout"], progress=False)


def test_only_what_drops_is_in_train_mode() -> None:
    network = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.0), nn.AlphaDropout(0.1)))
    with dropping(network):
        assert [part.training for part in network.modules()] == [False, False, True, False, False, True]
    assert not any(part.training for part in network.modules())
