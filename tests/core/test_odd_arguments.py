"""Whatever is passed to a public call is either right or a `UserError` that says what was expected."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import CliRunner
from helpers import Wrapped
from torch import nn

import subspaces as ss
from subspaces.cli import main as app
from subspaces.core import memory
from subspaces.errors import UserError

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
DATA = [(X, Y)]
LINE = ss.Line()


POINTS = ("0", "1", "True", "0.5", "np.float32(0.5)", "np.int64(1)", "torch.tensor(0.5)", "torch.tensor(1)")
NONSENSE = ("'x'", "b'x'", "float('nan')", "float('inf')", "-1", "['a']", "[None]", "object()", "2**62", "10**400")
NONSENSE += ("lambda *some: None", "torch.tensor([0.1, 0.2, 0.3])", "None", "[]", "{}")
EVERYTHING: dict[str, Any] = {text: eval(text) for text in (*POINTS, *NONSENSE)}


def line() -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(lambda: nn.Sequential(nn.Linear(4, 3)), ss.Line(), seed=0)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def evaluate(**settings: Any) -> object:
    return ss.evaluate(line(), **{"test": DATA, "grid": [0, 1], "progress": False, **settings})


def subspace(shape: Any = LINE, *args: Any, **options: Any) -> ss.Subspace:
    return ss.Subspace(normed, shape, *args, **options)


WHOLE = {"0", "1", "np.int64(1)", "2**62"}
CALLS: dict[str, tuple[Callable[[Any], object], set[str]]] = {  # and what is right for it
    "Simplex(…)": (ss.Simplex, set()),
    "Bezier(…)": (ss.Bezier, {"1", "np.int64(1)"}),
    "Subspace(…)": (lambda odd: ss.Subspace(odd, ss.Line()), set()),
    "Subspace(net, …)": (subspace, set()),
    "Subspace(layerwise=…)": (lambda odd: subspace(ss.Line(), odd), {"True"}),
    "Subspace(seed=…)": (lambda odd: subspace(ss.Line(), seed=odd), {"None", "-1", *WHOLE}),
    "Subspace(statistics_every=…)": (lambda odd: subspace(statistics_every=odd), {"None", "1", "np.int64(1)"}),
    "Subspace(init=…)": (lambda odd: subspace(ss.Line(), init=odd), {"None"}),
    "at(…)": (lambda odd: line().at(odd), {*POINTS}),
    "at(outside=…)": (lambda odd: line().at(0.5, odd), {"True"}),
    "at(share=…)": (lambda odd: line().at(0.5, share=odd), {"True"}),
    "family(x, alpha=…)": (lambda odd: line()(X, alpha=odd), {*POINTS, "None"}),
    "coefficients(…)": (lambda odd: line().coefficients(odd), {*POINTS}),
    "ensemble(…)": (lambda odd: line().ensemble(odd), {"torch.tensor([0.1, 0.2, 0.3])"}),
    "ensemble(average=…)": (lambda odd: line().ensemble([0.1], odd), set()),
    "feature_similarity(…)": (lambda odd: line().feature_similarity(odd), set()),
    "parameter_groups(…)": (lambda odd: line().parameter_groups(weights=odd), {"{}"}),
    "recalibrate(…)": (lambda odd: ss.recalibrate(odd, [X]), set()),
    "recalibrate(net, …)": (lambda odd: ss.recalibrate(normed(), odd), set()),
    "select(…)": (lambda odd: line().select(odd), set()),
    "select(by=…)": (lambda odd: line().select(DATA, odd), set()),
    "select([(x, …)])": (lambda odd: line().select([(X, odd)]), set()),
    "save(…)": (lambda odd: ss.save(odd, "f.safetensors"), set()),
    "distribute(…)": (ss.distribute, set()),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_argument_is_right_or_named(name: str) -> None:
    call, right = CALLS[name]
    assert right <= EVERYTHING.keys()
    for kind, odd in EVERYTHING.items():
        if kind in right:
            call(odd)
            continue
        with pytest.raises((UserError, IndexError), match=r".{30}"):
            call(odd)


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
    ([(X,)], r"a batch is a tuple: expected \(inputs, target\)"),
    ([(X, X, Y)], r"does not take the inputs of a batch, \(Tensor, Tensor\): too many positional"),
    ([((X,), Y)], r"does not take the inputs of a batch, \(tuple\)"),
    (["abc"], "a batch is a str: expected|without examples"),
    ([EMPTY, EMPTY], "no examples|without examples"),
    (Short(), "no examples"),
    ([(X, Y[:3])], "labels of shape|targets of dtype"),
    ([(X, Y + 1)], "a target is 3: expected class numbers from 0 to 2, because the network returns 3 logits"),
    ([(X, Y - 1)], "a target is -1: expected class numbers from 0 to 2"),
    ([(X, ["cat"] * 8)], "targets of a batch are .* a list: expected"),
    ([(X, None)], "targets of a batch are None, a NoneType: expected"),
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


def test_empty_batches_do_not_reach_the_network() -> None:
    strict = nn.Sequential(Wrapped(lambda x: x.reshape(len(x), -1)), nn.Linear(4, 3))  # fails without any
    found = ss.evaluate(ss.Subspace(strict, ss.Line()), test=[EMPTY, *DATA], progress=False)
    assert found["midpoint"].count == 8


def test_networks_that_differ_are_named() -> None:
    with pytest.raises(UserError, match="the networks return 3 and 5 logits: expected"):
        ss.evaluate([nn.Linear(4, 3), nn.Linear(4, 5)], test=DATA, progress=False)
    mixed = [nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 3)), nn.Linear(4, 3)]
    assert ss.evaluate(mixed, test=DATA, progress=False)["vertices"].count == 8


def test_a_mistake_in_the_network_is_no_user_error() -> None:
    with pytest.raises(TypeError, match="has no len") as caught:
        ss.evaluate(nn.Sequential(nn.Linear(4, 3), Wrapped(lambda y: y + len(3))), test=DATA, progress=False)
    assert not isinstance(caught.value, UserError)


# Memory that runs out


def test_every_way_to_run_out_is_recognised():
    def huge_storage() -> None:
        torch.empty(10**10, 10**10)

    for work in (lambda: torch.empty(10**15), huge_storage, lambda: np.empty(10**15), lambda: bytearray(10**15)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            work()
        assert memory.ran_out(caught.value)
    assert memory.ran_out(torch.OutOfMemoryError("CUDA out of memory"))
    assert not memory.ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not memory.ran_out(ValueError("out of memory"))


def test_training_that_needs_too_much_is_one_line(tmp_path: Path):
    command = ["train", "digits-standard", "--epochs", "1", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*command, "--pad", "1000000"], prog_name="subspaces")
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: out of memory on cpu")
    assert "lower --batch" in result.stderr
    assert result.stderr.count("\n") == 1


# A bug is none of the user's


BUG = """
import sys
from subspaces import cli

def broken(*_, **__):
    raise ValueError("a bug inside the package")

from subspaces.cli import inspect
inspect.RECIPES = type("Broken", (), {"__getattr__": broken, "__iter__": broken})()
sys.argv = ["subspaces", "recipes"]
cli.main()
"""


def test_a_bug_is_a_traceback_that_says_where_to_report_it():
    ended = subprocess.run([sys.executable, "-c", BUG], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "Traceback (most recent call last)" in ended.stderr
    assert "ValueError: a bug inside the package" in ended.stderr
    assert "Reporting a bug" in ended.stderr


def test_a_wrong_argument_is_of_the_kinds_that_python_has_for_it():
    for kind in (UserError, ValueError, TypeError):
        with pytest.raises(kind, match="independent"):
            ss.Subspace(lambda: nn.Linear(2, 2), ss.Line(), init="nowhere")
