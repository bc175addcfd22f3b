"""The best epoch: by validation images, with what test images would have chosen beside it."""

import torch
from subspaces.experiments.methods.early_stopping import EarlyStopping, Stopping
from torch import nn

import subspaces as ss

SCORES = [(0.5, 0.4), (0.8, 0.6), (0.7, 0.9), (0.8, 0.8)]


def filled(value: float) -> ss.Subspace:
    family = ss.Subspace(nn.Linear(2, 2), ss.Point())
    with torch.no_grad():
        for omega in family.omega.values():
            omega.fill_(value)
    return family


def hooks() -> Stopping:
    return Stopping(EarlyStopping(), filled(0), len(SCORES), 0)


def offered(stopping: Stopping, scores: list[tuple[float, float]], start: int = 1) -> Stopping:
    for epoch, (validation, test) in enumerate(scores, start):
        stopping.family = filled(epoch)
        stopping.after_epoch(epoch, {"validation_accuracy": validation, "test_accuracy": test})
    return stopping


def test_the_first_of_the_best_is_kept_and_the_test_set_chooses_nothing():
    stopping = offered(hooks(), SCORES)
    assert all(row.eq(2).all() for row in stopping.best.values())
    assert stopping.epoch == 2
    assert stopping.summary()["stopping"] == [
        {"chosen_on": "validation", "epoch": 2, "validation_accuracy": 0.8, "test_accuracy": 0.6},
        {"chosen_on": "test", "epoch": 3, "validation_accuracy": 0.7, "test_accuracy": 0.9},
    ]


def test_it_continues_from_its_state():
    for middle in range(len(SCORES) + 1):
        first = offered(hooks(), SCORES[:middle])
        other = hooks()
        other.load(first.kept())
        offered(other, SCORES[middle:], middle + 1)
        whole = offered(hooks(), SCORES)
        assert other.summary() == whole.summary()
        assert all(torch.equal(other.best[name], row) for name, row in whole.best.items())
