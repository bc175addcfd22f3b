"""What a network returns: logits, probabilities, log-probabilities or NaN; and how it is run on a batch."""

import math

import pytest
import torch
from helpers import Wrapped
from torch import Tensor, nn
from torch.nn import functional as F

import subspaces as ss
from subspaces.errors import ArgumentError
from subspaces.evaluation.session import PredictionWarning


def data(classes: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 4, generator=generator)
    return [(x[:25], (x[:25, 0] > 0).long() % classes), (x[25:], (x[25:, 0] > 0).long() % classes)]


def Ending(function, classes: int = 3) -> nn.Module:
    """Return a linear classifier that ends in a function."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, classes), Wrapped(function))


SEVERAL = {
    "logits": lambda y: y,
    "probabilities": lambda y: y.softmax(1),
    "log-probabilities": lambda y: y.log_softmax(1),
}
SINGLE = {
    "logits": lambda y: y[:, 0],
    "probabilities": lambda y: y[:, 0].sigmoid(),
    "log-probabilities": lambda y: F.logsigmoid(y[:, :1]),
}


def measured(what, **options):
    return ss.evaluate(what, test=data(), progress=False, **options).rows[0].metrics


@pytest.mark.parametrize("outputs", SEVERAL)
@pytest.mark.parametrize("ends", [SEVERAL, SINGLE], ids=["several", "single"])
def test_what_the_network_returns_does_not_change_what_is_measured(ends, outputs):
    expected = measured(Ending(ends["logits"]), outputs="logits")
    found = measured(Ending(ends[outputs]), outputs=outputs.replace("-", "_"))
    assert found == pytest.approx(expected, abs=1e-6)
    assert measured(Ending(ends[outputs]), task=ss.Classification(outputs=outputs)) == pytest.approx(found)


@pytest.mark.parametrize(("ends", "name"), [(SEVERAL, "softmax"), (SINGLE, "sigmoid")])
def test_probabilities_are_not_taken_for_logits_without_a_word(ends, name):
    with pytest.raises(ss.UserError, match=f"look like probabilities.*outputs='probabilities'.*ends in a {name}"):
        measured(Ending(ends["probabilities"]))
    family = ss.Subspace(lambda: Ending(ends["probabilities"]), ss.Line())
    with pytest.raises(ss.UserError, match="look like probabilities"):
        measured(family)
    assert measured(family, outputs="probabilities", grid=[0.5])["accuracy"] >= 0
    double = measured(Ending(ends["probabilities"]), outputs="logits")  # on one's own word
    assert double["nll"] != pytest.approx(measured(Ending(ends["logits"]), outputs="logits")["nll"])


def test_an_ensemble_knows_what_its_members_return():
    members = [Ending(SEVERAL["probabilities"]), Ending(SEVERAL["probabilities"])]
    ensemble = ss.Ensemble(members, outputs="probabilities")
    found = ss.evaluate(ensemble, test=data(), progress=False)["vertices"].nll
    plain = ss.Ensemble([Ending(SEVERAL["logits"]), Ending(SEVERAL["logits"])])
    assert found == pytest.approx(ss.evaluate(plain, test=data(), progress=False)["vertices"].nll, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outputs": "softmax"}, "outputs='softmax': expected one of 'logits'"),
        ({"outputs": "logits", "task": "regression"}, "the task is regression; expected it with a classification"),
        ({"forward": 3}, "forward=3: expected a function of"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ss.UserError, match=words):
        measured(Ending(SEVERAL["logits"]), **options)
    with pytest.raises(ss.UserError, match="outputs='logits': a run brings its own"):
        ss.evaluate("runs/none", outputs="logits")


# How it is run


class Recurrent(nn.Module):
    """An LSTM that takes its state as an input and returns it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.lstm = nn.LSTM(2, 3, batch_first=True)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor, h: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, h = self.lstm(x, h)
        return self.norm(out[:, -1]), h


def batches() -> list:
    generator = torch.Generator().manual_seed(3)
    x, h = torch.randn(10, 5, 2, generator=generator), torch.zeros(1, 10, 3)
    return [((x, (h, h)), torch.arange(10) % 3)]


def test_forward_takes_a_batch_apart():
    def forward(network, batch):
        (x, h), _ = batch
        return network(x, h)[0]

    net = Recurrent().eval()
    found = ss.evaluate(net, test=batches(), forward=forward, progress=False)["midpoint"]
    (x, h), y = batches()[0]
    assert found.nll == pytest.approx(float(F.cross_entropy(net(x, h)[0].detach(), y)), abs=1e-6)
    family = ss.Subspace(Recurrent, ss.Line())
    measured = ss.evaluate(family, test=batches(), statistics=batches(), forward=forward, grid=[0.5], progress=False)
    alone = ss.recalibrate(family.midpoint(), batches(), forward=forward).eval()
    expected = float(F.cross_entropy(alone(x, h)[0].detach(), y))
    assert measured["midpoint"].nll == pytest.approx(expected, abs=1e-6)


# Batches that say too little alone


def test_another_form_of_batch_names_forward():
    with pytest.raises(ss.UserError, match="take forward=, a function of"):
        ss.evaluate(Recurrent().eval(), test=batches(), progress=False)


X, Y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
BROKEN = torch.where(torch.arange(40)[:, None] < 10, torch.nan, X)
CLEAN = [(X, Y)]


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
    family = ss.Subspace(lambda: nn.Sequential(nn.Linear(4, 3), Wrapped(lambda y: y * torch.nan)), ss.Line())
    with pytest.warns(PredictionWarning):
        found = ss.evaluate(family, test=CLEAN, validation=CLEAN, progress=False)
    assert not found.choices or all(math.isfinite(each.reported["validation"][each.by]) for each in found.choices)
    with pytest.raises(ArgumentError, match="nll is NaN at every point of family on the validation examples"):
        found.best(by="nll")
