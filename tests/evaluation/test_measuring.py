"""What a measurement asks of networks: on which images, how often, in which precision, and with dropout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import retrained
import torch
from evaluation_cases import CPU, LOADERS, TEST, expected_metrics, family, normless, softmax
from torch import Tensor

import subspaces as ss
from subspaces.core import randomness
from subspaces.evaluation.points import plan, to_place
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments import data
from subspaces.experiments.evaluating.evaluate import evaluate_together
from subspaces.experiments.evaluating.run_subject import CapturedPredictor, run_subjects
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import evaluation_batches, statistics_batches, statistics_seed

ON_CPU: dict[str, Any] = {"device": "cpu", "progress": False, "trust": True}


def test_the_seed_of_the_run_draws_its_random_points_and_that_of_the_data_its_images(small: Any) -> None:
    record = ss.evaluate(small("simplex"), triangle=0, random=3, **ON_CPU)
    (found,) = (
        {to_place(alpha) for alpha in row.alphas}
        for row in record.rows
        if (row.kind, row.role, row.average, row.split) == ("ensemble", "random", "probabilities", "test")
    )
    wanted = [set(plan(ss.Simplex(3), random=3, seed=seed)[-1].places) for seed in (5, 0)]
    assert found == wanted[0] != wanted[1]
    result = Run.open(small("simplex")).result  # of training, on the images that it held out
    for row in record.rows:
        if row.role == "midpoint":
            assert row.metrics["accuracy"] == pytest.approx(result[f"{row.split}_accuracy"], abs=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_network_is_asked_in_the_precision_that_was_asked_for(
    precision: Any, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    forward = retrained.Small.forward

    def watched(self: retrained.Small, x: Tensor) -> Tensor:
        if len(x) > 10:  # a network that is built is tried with one or two
            seen.append(torch.is_autocast_enabled("cpu"))
        return forward(self, x)

    monkeypatch.setattr(retrained.Small, "forward", watched)
    for name in ("curve", "first", "second", "dropout"):
        small(name)  # trained in float32
    for call in (
        lambda: ss.evaluate(small("curve"), grid=(), plane=True, cells=2, precision=precision, **ON_CPU),
        lambda: evaluate_together([[small("first"), small("second")]], to=tmp_path, precision=precision, **ON_CPU),
        lambda: ss.evaluate(small("dropout"), dropout_passes=2, precision=precision, **ON_CPU),
    ):
        seen.clear()
        call()
        assert set(seen) == {precision == "bfloat16"}


def test_a_run_in_two_ensembles_is_asked_once(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, seen = Predictor.outputs, [0]

    def counting(self: Predictor, points: Any, data: Any, **how: Any) -> Any:
        seen[0] += data == "test"
        return measure(self, points, data, **how)

    monkeypatch.setattr(Predictor, "outputs", counting)
    groups = [[small("first"), small("second")], [small("second"), small("dropout")]]
    assert len(evaluate_together(groups, to=tmp_path, **ON_CPU)) == 2
    assert seen == [3]


class Replayed:
    """Stands for a CUDA graph: runs again what was captured."""

    def __init__(self, work: Any, device: Any) -> None:
        self.replay = work

    def __getitem__(self, index: int) -> Any:
        return (self, self.replay())[index]


def test_the_graph_makes_the_statistics_of_each_point_from_its_own_weights(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subspaces.experiments.evaluating.run_subject.captured", Replayed)
    one = run_subjects(None, Execution(device="cpu"), trust=True)(Run.open(small("curve")))
    about = (one.recipe, one.images_of, one.execution)
    found = []
    for kind in (Predictor, CapturedPredictor):
        splits = {"test": evaluation_batches(one.images_of.test, *about)}
        how: dict[str, Any] = {"weights": one.weights, "batches": 2, "seed": 1}
        predictor = kind(one.family.midpoint(), one.task, splits, statistics_batches(*about), **how)
        found.append([dict(network.named_buffers()) for network in predictor.prepare([0.0, 0.5, 1.0])])
    for plain, captured in zip(*found, strict=True):
        for name, value in plain.items():
            if name.endswith(("mean", "var")):
                torch.testing.assert_close(captured[name], value, rtol=1e-4, atol=1e-5)


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
