"""An evaluation in hand: the best point, files, numbers that are none, and errors that name what was passed."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from evaluation_cases import CLASSES, INPUTS, LOADERS, TEST, family, network, normless
from torch import Tensor, nn

import subspaces as ss


class Keyworded(nn.Module):
    """A network as those of Hugging Face: an argument by name, and an output with .logits."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(INPUTS, CLASSES)

    def forward(self, *, inputs: Tensor) -> Any:
        return SimpleNamespace(loss=None, logits=self.head(inputs))


def test_batches_that_are_dicts_and_networks_with_keywords() -> None:
    net = Keyworded()
    batches = [{"inputs": x, "labels": y} for x, y in TEST]
    assert ss.evaluate(net, test=batches, progress=False).rows == ss.evaluate(net.head, test=TEST, progress=False).rows


# Errors


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: ss.evaluate(network()), TypeError, "a network without test=: expected the loader"),
        (lambda: ss.evaluate(network(), test=3), TypeError, "test=3: expected something that yields batches"),
        (lambda: ss.evaluate(network(), test=TEST, statistics=3), TypeError, "statistics=3: expected something"),
        (lambda: ss.evaluate(network(), test=iter(TEST)), TypeError, "test=.*walked over again"),
        (lambda: ss.evaluate(normless(), test=[]), ValueError, "the test loader has no examples"),
        (lambda: ss.evaluate(family(ss.Line()), test=TEST), ValueError, r"batch norm \(1\).*pass statistics="),
        (lambda: ss.evaluate(normless(), test=[TEST[0][0]]), TypeError, r"is a Tensor: expected \(inputs, target\)"),
        (lambda: ss.evaluate(normless(), test=TEST, task="clasification"), ValueError, "'clasification': did you mean"),
        (lambda: ss.evaluate(normless(), test=TEST, grids=[1]), TypeError, "no such setting; did you mean 'grid'"),
        (lambda: ss.evaluate(normless(), test=TEST, metrics={"f1": 3}), TypeError, "3}: expected a list of Metric"),
        (
            lambda: ss.evaluate(normless(), test=TEST, through=["a"]),
            TypeError,
            "a network is no run; expected networks",
        ),
        (lambda: ss.evaluate(normless(), test=TEST, answers=["pairs"]), ValueError, "did you mean 'pair'"),
        (
            lambda: ss.evaluate(normless(), test=TEST, answers=["pair", "random"]),
            ValueError,
            "answers=pair and random: network has none of these; expected some such as 'midpoint'",
        ),
        (lambda: ss.evaluate("runs/x", test=TEST), TypeError, "(?s)test=.*a run brings its own"),
        (lambda: ss.evaluate(normless(), test=[(TEST[0][0], TEST[0][1] + 0.5)]), TypeError, r"task=Regression\(\)"),
        (lambda: ss.evaluate([], test=TEST), TypeError, "test="),
        (lambda: ss.evaluate([normless()] * 3, test=TEST, plane=True), ValueError, "plane=…: ensemble is no family"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_what_was_not_measured_is_named() -> None:
    found = ss.evaluate(normless(), test=TEST, progress=False)
    with pytest.raises(KeyError, match="'pair' was not measured on 'test': expected one of 'midpoint'"):
        found["pair"]
    with pytest.raises(ValueError, match=r"on='validation'.*pass validation="):
        found.best()
    with pytest.raises(ValueError, match=re.escape("metric='nlll': did you mean 'nll'?")):
        found.best(by="nlll", on="test")
    with pytest.raises(ValueError, match="network has one point: there is nothing to choose from"):
        found.best(on="test")
    with pytest.raises(AttributeError, match="a row has no 'acuracy': did you mean 'accuracy'"):
        _ = found["midpoint"].acuracy


@pytest.mark.parametrize("given", [{"device": "cpu"}, {"workers": 2}, {"data": "there"}, {"trust": True}])
def test_what_is_for_runs_is_refused_with_a_network(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(given))}=.*: it is for runs; a network is measured where it is"):
        ss.evaluate(family(ss.Line()), **LOADERS, **given)
