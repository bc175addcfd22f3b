"""Where the batches come from: images that fit live on the device, others pass through worker processes."""

import dataclasses

import pytest
import torch
from training_cases import CPU, DIGITS, made_dataset

from subspaces.experiments.data import ResidentLoader
from subspaces.experiments.training import Run, train
from subspaces.experiments.training.batches import (
    Stream,
    evaluation_batches,
    fits_memory,
    statistics_batches,
    training_batches,
)

DATA = made_dataset(train=60, test=20, channels=3, side=8)
RECIPE = dataclasses.replace(DIGITS, batch=16, pad=2, flip=True)


def test_half_of_the_memory_is_the_limit(monkeypatch):
    pages = {"SC_PAGE_SIZE": 1}
    monkeypatch.setattr("os.sysconf", lambda name: pages.get(name, 2 * 60 * 3 * 12 * 12))
    split = DATA.train
    assert fits_memory(split, 2, CPU)
    assert not fits_memory(split, 3, CPU)
    assert isinstance(training_batches(RECIPE, DATA, CPU), ResidentLoader)
    large = dataclasses.replace(RECIPE, pad=3)
    assert isinstance(training_batches(large, DATA, CPU), Stream)
    assert isinstance(statistics_batches(large, DATA, CPU), Stream)
    assert isinstance(evaluation_batches(DATA.test, large, DATA, CPU), ResidentLoader)  # not padded, and fewer


@pytest.mark.parametrize("resident", [True, False])
def test_what_is_asked_for_is_done(resident):
    loader = training_batches(RECIPE, DATA, dataclasses.replace(CPU, resident=resident, workers=0))
    assert isinstance(loader, ResidentLoader) is resident
    batches = list(loader)
    assert [len(y) for _, y in batches] == [16, 16, 16, 12]
    assert all(x.shape[1:] == (3, 8, 8) for x, _ in batches)
    labels = torch.cat([y for _, y in batches])
    assert torch.equal(labels.sort().values, DATA.train.labels.sort().values)


def test_both_ways_see_the_same_test_images():
    ways = [dataclasses.replace(CPU, resident=resident, workers=0) for resident in (True, False)]
    resident, streamed = (list(evaluation_batches(DATA.test, RECIPE, DATA, way)) for way in ways)
    for (x, y), (also_x, also_y) in zip(resident, streamed, strict=True):
        torch.testing.assert_close(x, also_x)
        assert torch.equal(y, also_y)
    seen = torch.cat([x for x, _ in resident])  # as they are and in their order, but for the constants of the data
    torch.testing.assert_close(seen, (DATA.test.images / 255 - 0.4) / 0.2)


def test_a_run_on_streamed_arrays(tmp_path):
    (run,) = train(DIGITS, out=tmp_path, show="quiet", device="cpu", resident=False, workers=0, tensorboard=False)
    assert isinstance(run, Run)
    assert run.result["test_accuracy"] > 0.8
