"""Predictions that are NaN: wrong, warned about once, and never chosen."""

import math

import pytest
import torch
from torch import Tensor, nn

import subspaces as ss
from subspaces.errors import ArgumentError
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.metrics import of_task, tally
from subspaces.evaluation.session import PredictionWarning

X, Y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
BROKEN = torch.where(torch.arange(40)[:, None] < 10, torch.nan, X)
CLEAN = [(X, Y)]
NAN_METRICS = ("nll", "brier", "ece", "adaptive_ece")


class NaN(nn.Module):
    """A network that diverged."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x)
        return out * torch.nan


class Cliff(nn.Module):
    """A network that is NaN at one end of a line: where its weight is above a half."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.place = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x)
        return torch.where(self.place > 0.6, torch.nan, out)


def line() -> ss.Subspace:
    torch.manual_seed(0)
    family = ss.Subspace(Cliff, ss.Line())
    family.vertex(1)["place"].fill_(1)
    return family


def test_nan_is_warned_about_once_and_counts_as_wrong() -> None:
    family = ss.Subspace(lambda: nn.Linear(4, 3), ss.Line(), seed=0)
    with pytest.warns(PredictionWarning, match=r"10 of 40 .* alpha = 0\.\d+.*other measurements.*check") as caught:
        found = ss.evaluate(family, test=[(BROKEN, Y)], outliers=[BROKEN], progress=False)
    assert len(caught) == 1
    assert found["midpoint"].count == 40
    with torch.no_grad():
        right = (family.midpoint()(X).argmax(1) == Y)[10:].sum()
    assert found["midpoint"].accuracy == float(right) / 40
    assert math.isnan(found.row("midpoint", "outliers").auroc_entropy)


def test_a_point_of_nan_is_never_chosen() -> None:
    family = line()
    with pytest.warns(PredictionWarning, match=r"40 of 40 .* alpha = "):
        found = ss.evaluate(family, test=CLEAN, validation=CLEAN, progress=False)
    for by in ("nll", "accuracy", "ece"):
        assert found.best(by=by) <= 0.6  # type: ignore[operator]
    for chosen in ("nll", "accuracy", "entropy"):
        selected = family.select(CLEAN, by=chosen)  # type: ignore[arg-type]
        assert selected.alpha <= 0.6  # type: ignore[operator]
        assert float(selected.best.alpha) <= 0.6  # type: ignore[arg-type]
        assert math.isfinite(selected.value)


def test_there_is_no_best_of_nothing_but_nan() -> None:
    family = ss.Subspace(NaN, ss.Line())
    with pytest.warns(PredictionWarning):
        found = ss.evaluate(family, test=CLEAN, validation=CLEAN, progress=False)
    assert not found.choices or all(math.isfinite(each.reported["validation"][each.by]) for each in found.choices)
    with pytest.raises(ArgumentError, match="nll is NaN at every point of family on the validation examples"):
        found.best(by="nll")


def test_iou_of_pixels_that_are_nan() -> None:
    logs = torch.tensor([[0.0, -9.0], [-9.0, 0.0], [torch.nan, torch.nan]]).log_softmax(1)
    found = tally(of_task("pixels"), [(Classes(logs), torch.tensor([0, 1, 1]))])
    assert found["miou"] == (1 + 1 / 2) / 2
    assert found["accuracy"] == pytest.approx(2 / 3)
