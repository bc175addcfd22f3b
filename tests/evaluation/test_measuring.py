"""What a measurement asks of networks: on which images, how often, and in which precision."""

from pathlib import Path
from typing import Any

import pytest
import retrained
import torch
from torch import Tensor

import subspaces as ss
from subspaces.evaluation.points import plan, to_place
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.evaluating.evaluate import evaluate_together
from subspaces.experiments.evaluating.run_subject import CapturedPredictor, run_subjects
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import evaluation_batches, statistics_batches

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
    for name in ("curve", "first", "second"):
        small(name)  # trained in float32
    for call in (
        lambda: ss.evaluate(small("curve"), grid=(), plane=True, cells=2, precision=precision, **ON_CPU),
        lambda: evaluate_together([[small("first"), small("second")]], to=tmp_path, precision=precision, **ON_CPU),
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
    groups = [[small("first"), small("second")], [small("second"), small("third")]]
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
