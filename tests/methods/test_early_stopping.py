"""The best epoch: by validation images, with what test images would have chosen beside it."""

import torch
from torch import nn

import subspaces as ss
from subspaces.methods.early_stopping import BestEpoch

SCORES = [(0.5, 0.4), (0.8, 0.6), (0.7, 0.9), (0.8, 0.8)]


def filled(value: float) -> ss.Subspace:
    family = ss.Subspace(nn.Linear(2, 2), ss.Point())
    with torch.no_grad():
        for omega in family.omega.values():
            omega.fill_(value)
    return family


def offered(best: BestEpoch, scores: list[tuple[float, float]], start: int = 1) -> BestEpoch:
    for epoch, (validation, test) in enumerate(scores, start):
        best.offer(filled(epoch), {"validation_accuracy": validation, "test_accuracy": test})
    return best


def test_the_first_of_the_best_is_kept_and_the_test_set_chooses_nothing():
    best = offered(BestEpoch(), SCORES)
    assert all(row.eq(2).all() for row in best.best.values())
    assert best.choices() == [
        {"chosen_on": "validation", "epoch": 2, "validation_accuracy": 0.8, "test_accuracy": 0.6},
        {"chosen_on": "test", "epoch": 3, "validation_accuracy": 0.7, "test_accuracy": 0.9},
    ]


def test_it_continues_from_its_state():
    for middle in range(len(SCORES) + 1):
        first = offered(BestEpoch(), SCORES[:middle])
        other = BestEpoch()
        other.load(first.state(), torch.device("cpu"))
        offered(other, SCORES[middle:], middle + 1)
        whole = offered(BestEpoch(), SCORES)
        assert other.choices() == whole.choices()
        assert all(torch.equal(other.best[name], row) for name, row in whole.best.items())
