"""Whatever is passed to a public call is either right or a `UserError` that says what was expected."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import subspaces as ss
from subspaces.errors import UserError

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
DATA = [(X, Y)]


NUMBERS = ("0", "0.5", "np.float32(0.5)", "np.int64(1)", "torch.tensor(0.5)", "torch.tensor(1)")
NONSENSE = ("'x'", "b'x'", "float('nan')", "float('inf')", "-1", "['a']", "[None]", "object()", "True", "10**400")
NONSENSE += ("2**62", "lambda *some: None", "torch.tensor([0.1, 0.2, 0.3])", "torch.tensor(True)", "None", "[]", "{}")
POINTS = {*NUMBERS, "True", "torch.tensor(True)"}
EVERYTHING: dict[str, Any] = {text: eval(text) for text in (*NUMBERS, *NONSENSE)}


def line() -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(lambda: nn.Sequential(nn.Linear(4, 3)), ss.Line(), seed=0)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


@pytest.fixture(scope="module")
def evaluation() -> ss.Evaluation:
    return ss.evaluate(line(), test=DATA, validation=DATA, grid=[0, 1], progress=False)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def evaluate(**settings: Any) -> object:
    return ss.evaluate(line(), **{"test": DATA, "grid": [0, 1], "progress": False, **settings})


Call = Callable[[Any], object]
CALLS: dict[str, tuple[Call, set[str]]] = {  # and what is right for it
    "Simplex(…)": (ss.Simplex, set()),
    "Bezier(…)": (ss.Bezier, {"np.int64(1)"}),
    "Subspace(net, …)": (lambda odd: ss.Subspace(lambda: nn.Linear(1, 1), odd), set()),
    "Subspace(layerwise=…)": (lambda odd: ss.Subspace(lambda: nn.Linear(1, 1), ss.Line(), odd), {"True"}),
    "Subspace(seed=…)": (
        lambda odd: ss.Subspace(lambda: nn.Linear(1, 1), ss.Line(), seed=odd),
        {"None", "0", "np.int64(1)", "-1", "2**62"},
    ),
    "Subspace(statistics_every=…)": (
        lambda odd: ss.Subspace(normed, ss.Line(), statistics_every=odd),
        {"None", "np.int64(1)"},
    ),
    "at(…)": (lambda odd: line().at(odd), {*POINTS, "{}"}),
    "at({'0': …})": (lambda odd: line().at({"0": odd}), POINTS),
    "at(outside=…)": (lambda odd: line().at(0.5, odd), {"True"}),
    "at(share=…)": (lambda odd: line().at(0.5, share=odd), {"True"}),
    "family(x, alpha=…)": (lambda odd: line()(X, alpha=odd), {*POINTS, "{}", "None"}),
    "coefficients(…)": (lambda odd: line().coefficients(odd), {*POINTS, "{}"}),
    "sample(…)": (lambda odd: line().sample(odd), {"None"}),
    "ensemble(…)": (
        lambda odd: line().ensemble(odd),
        {"torch.tensor([0.1, 0.2, 0.3])"},
    ),
    "ensemble(average=…)": (lambda odd: line().ensemble([0.1], odd), set()),
    "penalty(…)": (
        lambda odd: line().penalty(odd),
        {*NUMBERS, "2**62", "True", "torch.tensor(True)", "torch.tensor([0.1, 0.2, 0.3])"}
        - {"np.float32(0.5)", "np.int64(1)"},
    ),
    "recalibrate(…)": (lambda odd: ss.recalibrate(odd, [X]), set()),
    "recalibrate(net, …)": (lambda odd: ss.recalibrate(normed(), odd), set()),
    "recalibrate(batches=…)": (
        lambda odd: ss.recalibrate(normed(), [X], batches=odd),
        {"None", "np.int64(1)", "2**62"},
    ),
    "recalibrate(finite=…)": (lambda odd: ss.recalibrate(normed(), [X], finite=odd), {"True"}),
    "select(…)": (lambda odd: line().select(odd), set()),
    "select(by=…)": (lambda odd: line().select(DATA, odd), set()),
    "select(per=…)": (lambda odd: line().select(DATA, per=odd), set()),
    "select(search=…)": (lambda odd: line().select(DATA, search=odd, points=2, folds=0), {"None"}),
    "select(seed=…)": (lambda odd: line().select(DATA, seed=odd, points=2, folds=2), {"0", "np.int64(1)"}),
    "select(level=…)": (
        lambda odd: line().select(DATA, level=odd, points=2, folds=0),
        {"0.5", "np.float32(0.5)", "torch.tensor(0.5)"},
    ),
    "select([(x, …)])": (lambda odd: line().select([(X, odd)]), set()),
    "evaluate(…)": (lambda odd: ss.evaluate(odd, test=DATA, progress=False), set()),
    "evaluate(test=…)": (lambda odd: evaluate(test=odd), set()),
    "evaluate(test=[…])": (lambda odd: evaluate(test=[odd]), set()),
    "evaluate(test=[(x, …)])": (lambda odd: evaluate(test=[(X, odd)]), set()),
    "evaluate(task='regression')": (lambda odd: evaluate(test=[(X, odd)], task="regression"), set()),
    "evaluate(outliers=…)": (lambda odd: evaluate(outliers=odd), {"None", "[]", "{}"}),
    "evaluate(corruptions=…)": (lambda odd: evaluate(corruptions=odd), {"None"}),
    "evaluate(metrics=…)": (lambda odd: evaluate(metrics=odd), {"None", "[]", "{}"}),
    "evaluate(name=…)": (lambda odd: evaluate(name=odd), {"None", "'x'"}),
    "evaluate(trust=…)": (lambda odd: evaluate(trust=odd), set()),
    "evaluate(task=…)": (lambda odd: evaluate(task=odd), {"None"}),
    "Classification(…)": (ss.Classification, set()),
    "Classification(ignore=…)": (
        lambda odd: ss.Classification(ignore=odd),
        {"0", "np.int64(1)", "-1", "2**62"},
    ),
    "Classification(shift=…)": (lambda odd: ss.Classification(shift=odd), {"True"}),
    "Regression(…)": (ss.Regression, {"True"}),
    "report(…)": (lambda odd: ss.report(odd, "r.html"), set()),
    "plot(…)": (lambda odd: ss.plot("along", odd), set()),
    "save(…)": (lambda odd: ss.save(odd, "f.safetensors"), set()),
    "load(…)": (lambda odd: ss.load(0 if isinstance(odd, str) else odd, nn.Identity), set()),
    "distribute(…)": (ss.distribute, set()),
    "train(…)": (ss.train, set()),
    "compare(…)": (ss.compare, set()),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_argument_is_right_or_named(name: str) -> None:
    call, right = CALLS[name]
    assert right <= EVERYTHING.keys()
    for kind, odd in EVERYTHING.items():
        if kind in right:
            call(odd)
            continue
        with pytest.raises(UserError, match=r".{30}"):
            call(odd)


@pytest.mark.parametrize("kind", EVERYTHING)
def test_what_is_asked_of_an_evaluation_is_there_or_named(kind: str, evaluation: ss.Evaluation) -> None:
    odd = EVERYTHING[kind]
    calls: list[Call] = [
        evaluation.table,
        evaluation.plot,
        lambda odd: evaluation.best(by=odd),
        lambda odd: evaluation.best(on=odd),
        lambda odd: evaluation.plot("along", split=odd),
        lambda odd: evaluation.plot("along", colour=odd),
        lambda odd: evaluation.plot("along", metric=odd) if odd is not None else evaluation.table("zz"),
        lambda odd: evaluation.report(odd) if odd != "x" else evaluation.table("zz"),
    ]
    if isinstance(odd, np.ndarray):
        calls = calls[:-1]
    for call in calls:
        with pytest.raises(UserError):
            call(odd)
    with pytest.raises(KeyError, match="was not measured"):
        evaluation[odd]


def test_numbers_of_numpy_are_numbers() -> None:
    assert ss.Bezier(np.int64(2)) == ss.Bezier(2)  # type: ignore[arg-type]
    assert type(ss.Simplex(np.int64(4)).m) is int  # type: ignore[arg-type]


class Short:
    """A loader that is empty from the second time on."""

    def __init__(self) -> None:
        self.left = 1

    def __iter__(self) -> Iterator[Any]:
        self.left -= 1
        return iter(DATA if self.left >= 0 else [])


EMPTY = (X[:0], Y[:0])
BATCHES: list[tuple[Any, str]] = [
    ([{"x": X, "z": Y}], r"a batch is a dict of 'x', 'z': expected"),
    ([{"bad": X, "labels": Y}], r"does not take the inputs of a batch, \(bad=…\).*'input'"),
    ([{1: X, "labels": Y}], r"does not take the inputs of a batch, \(1=…\)"),
    ([(X,)], r"a batch is a tuple: expected \(inputs, target\)"),
    ([(X, X, Y)], r"does not take the inputs of a batch, \(Tensor, Tensor\): too many positional"),
    ([((X,), Y)], r"does not take the inputs of a batch, \(tuple\)"),
    ([("abc", Y)], r"does not take the inputs of a batch, \(str\)|without examples"),
    (["abc"], "a batch is a str: expected|without examples"),
    ([EMPTY, EMPTY], "no examples|without examples"),
    (Short(), "no examples"),
    ([(X, Y[:3])], "labels of shape|targets of dtype"),
    ([(X, Y + 1)], "a target is 3: expected class numbers from 0 to 2, because the network returns 3 logits"),
    ([(X, Y - 1)], "a target is -1: expected class numbers from 0 to 2"),
    ([(X, [10**30] * 8)], "targets of a batch are .* expected"),
    ([(X, ["cat"] * 8)], "targets of a batch are .* a list: expected"),
    ([(X, None)], "targets of a batch are None, a NoneType: expected"),
    ([(X.to("meta"), Y)], "a tensor of shape .* on the meta device"),
]


@pytest.mark.parametrize(("loader", "words"), BATCHES)
def test_odd_batches_are_named(loader: Any, words: str) -> None:
    if not isinstance(loader, Short):
        with pytest.raises(UserError, match=words):
            line().select(loader, points=2, folds=0)
    with pytest.raises(UserError, match=words):
        evaluate(test=loader)
    with pytest.raises(UserError, match=words):
        evaluate(validation=loader)


def test_batches_of_several_sizes_and_kinds_are_one_loader() -> None:
    whole = ss.evaluate(line(), test=DATA, progress=False)
    parts = [EMPTY, (X[:3], Y[:3]), {"input": X[3:4], "labels": Y[3:4]}, EMPTY, (X[4:], Y[4:].tolist())]
    again = ss.evaluate(line(), test=parts, outliers=[EMPTY, (X, Y)], progress=False)
    assert again["midpoint"].count == 8
    for name, value in whole["pair"].metrics.items():
        assert again["pair"].metrics[name] == pytest.approx(value, rel=1e-6)
    selected = [line().select(each, points=3, folds=0).value for each in (DATA, parts)]
    assert selected[0] == pytest.approx(selected[1], rel=1e-6)


class Strict(nn.Module):
    """A network that cannot run without examples."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(x.reshape(len(x), -1))


def test_empty_batches_do_not_reach_the_network() -> None:
    found = ss.evaluate(ss.Subspace(Strict, ss.Line()), test=[EMPTY, *DATA], progress=False)
    assert found["midpoint"].count == 8


def test_networks_that_differ_are_named() -> None:
    with pytest.raises(UserError, match="the networks return 3 and 5 logits: expected the same classes of all"):
        ss.evaluate([nn.Linear(4, 3), nn.Linear(4, 5)], test=DATA, progress=False)
    with pytest.raises(UserError, match="network 2 of 2, a Linear, fails on a batch that the first one takes"):
        ss.evaluate([nn.Linear(4, 3), nn.Linear(5, 3)], test=DATA, progress=False)
    mixed = [nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 3)), nn.Linear(4, 3)]
    assert ss.evaluate(mixed, test=DATA, progress=False)["vertices"].count == 8


class Faulty(nn.Module):
    """A network with a mistake of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(x) + len(3)  # type: ignore[arg-type]


def test_a_mistake_in_the_network_is_no_user_error() -> None:
    with pytest.raises(TypeError, match="has no len") as caught:
        ss.evaluate(Faulty(), test=DATA, progress=False)
    assert not isinstance(caught.value, UserError)
