"""Wrong values for every argument of the public functions: the answer is a sentence, not Python's own words."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import subspaces as ss
from subspaces.core import checks
from subspaces.experiments.studies import study_instability, study_integral, study_noise
from subspaces.experiments.training import RunError

NEVER = {"validation": 10**6, "show": "quiet", "tensorboard": False, "device": "cpu"}  # refused before any training
WRONG: list[Any] = [
    *(None, 5, -1, 2.5, float("nan"), True, 10**30, 10**5000, "x", "", "\0", "y" * 5000, b"x"),
    *([], [None], ["x"], [-1], [2.5], {}, {"a": 1}, object(), torch.ones(2), torch.tensor(1.0)),
]
RAW = re.compile(
    r"object is not|object has no|object of type|unhashable|not supported|must be|embedded null|Exceeds the limit"
)


def make() -> nn.Module:
    return nn.Linear(3, 2)


def by_keyword(call: Callable[..., Any], *names: str) -> dict[str, Callable[[Any], Any]]:
    """Return a call for each of the arguments."""
    return {name: (lambda value, name=name: call(**{name: value})) for name in names}


family = ss.Subspace(make, ss.Line())
norm = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
x = torch.ones(2, 3)
trained = partial(ss.train, "digits-line", **NEVER)
evaluated = partial(ss.evaluate, "nowhere")
compared = partial(ss.compare, ["digits-line"], **NEVER)
paths = ("out", "to", "data")
CALLS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "train": {
        "train": lambda value: ss.train(value, **NEVER),
        **by_keyword(
            lambda **given: ss.train("digits-line", **NEVER | given), "seeds", "out", "data", "show", "device"
        ),
        **by_keyword(trained, "seeds", "out", "data", "show", "device", "epochs", "workers", "batch", "method", "seed"),
        **by_keyword(trained, "precision", "compile", "beta"),
    },
    "evaluate": {
        "evaluate": ss.evaluate,
        **by_keyword(evaluated, "data", "device", "grid", "random", "triangle", "split", "statistics_batches"),
        **by_keyword(evaluated, "through", "cells", "check_statistics", "workers", "progress"),
    },
    "compare": {
        "recipe": lambda value: ss.compare(value, **NEVER),
        **by_keyword(compared, *paths, "seeds", "ensembles", "reference", "dropout_passes"),
    },
    "noise": by_keyword(partial(study_noise, "digits-standard", **NEVER), "levels", "lists", "by", *paths),
    "instability": {
        "recipe": lambda value: study_instability(value, **NEVER),
        **by_keyword(partial(study_instability, "digits-standard", **NEVER), "shared", "models", "draws"),
    },
    "integral": by_keyword(partial(study_integral, **NEVER), "levels", "out", "to"),
    "Subspace": {
        "Subspace": lambda value: ss.Subspace(value, ss.Line()),
        "shape": lambda value: ss.Subspace(make, value),
        **by_keyword(lambda **given: ss.Subspace(make, ss.Line(), **given), "init", "penalised", "groups", "seed"),
    },
    "family": {
        "ensemble": family.ensemble,
        "vertex": family.vertex,
        "penalty": family.penalty,
        "per": family.sample,
        "alpha": family.at,
        "feature_similarity": family.feature_similarity,
        "parameter_groups": lambda value: family.parameter_groups(weights=value),
        **by_keyword(lambda **given: family(x, **given), "samples", "features"),
    },
    "files": {
        "save": lambda value: ss.save(value, "family.safetensors"),
        "save to": lambda value: ss.save(family, value) if not isinstance(value, str) else ss.save(value, "x"),
        "load": lambda value: ss.load(value, make),
        "check": lambda value: ss.check(value) and None,
    },
    "others": {
        "Bezier": ss.Bezier,
        "Simplex": ss.Simplex,
        "Ensemble": ss.Ensemble,
        **by_keyword(lambda **given: ss.Ensemble([make()], **given), "average", "dim", "select"),
        "recalibrate": lambda value: ss.recalibrate(value, [x]),
        **by_keyword(lambda **given: ss.recalibrate(norm, [x], **given), "batches", "forward"),
    },
}
CASES = [(where, name, call) for where, calls in CALLS.items() for name, call in calls.items()]


def answer_to(call: Callable[[Any], Any], value: Any) -> str | None:
    """Return what a call is refused with, if it is; an error of any other kind is a failure of the test."""
    try:
        call(value)
    except (ValueError, TypeError, LookupError, OSError, RunError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize(("where", "name", "call"), CASES, ids=lambda part: part if isinstance(part, str) else "")
def test_an_answer_to_a_wrong_value_is_a_sentence(where: str, name: str, call: Any, tmp_path: Any, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    answers = [answer for value in WRONG if (answer := answer_to(call, value)) is not None]
    assert len(answers) >= 12
    assert [answer for answer in answers if RAW.search(answer) and "expected" not in answer] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ss.train(None), "train got None: expected a Recipe, the name of one, or several of either"),
        (lambda: ss.train(5), "train got 5: expected a Recipe"),
        (lambda: ss.train([]), "train got nothing: expected a Recipe"),
        (lambda: ss.compare(None), "recipe got None: expected a Recipe"),
        (lambda: ss.evaluate(5), "evaluate got 5: expected a run, its folder, or several of them"),
        (lambda: ss.evaluate(None), "evaluate got None"),
        (lambda: ss.evaluate([]), "evaluate got nothing"),
        (lambda: ss.train("digits-line", seeds="x"), "seeds='x': expected one or more of them, such as [0, 1]"),
        (lambda: ss.train("digits-line", seeds=5.5), "seeds=5.5: expected one or more"),
        (lambda: ss.train("digits-line", seeds=[None]), "seed=None: expected an integer"),
        (lambda: ss.train("digits-line", epochs="3"), "epochs='3': expected an integer"),
        (lambda: ss.train("digits-line", data=5), "data=5: expected a path"),
        (lambda: ss.train("digits-line", out=5), "out=5: expected a path"),
        (lambda: ss.train("digits-line", show="loud"), "show='loud': expected one of 'bar', 'quiet', 'json'"),
        (lambda: ss.train("digits-line", device=None), "device=None: expected text"),
        (lambda: ss.train("digits-line", workers=-1), "workers=-1: expected at least 0"),
        (lambda: ss.Subspace(5, ss.Line()), "Subspace got a int: expected an nn.Module"),
        (lambda: ss.Subspace(make, "line"), "shape='line': expected Line()"),
        (lambda: ss.Subspace(make, ss.Line(), seed="x"), "seed='x': expected an integer of at least"),
        (lambda: ss.Subspace(make, ss.Line(), seed=1.5), "seed=1.5: expected an integer of at least"),
        (lambda: ss.Subspace(make, ss.Line(), seed=True), "seed=True: expected an integer of at least"),
        (lambda: ss.Subspace(make, ss.Line(), seed=2**63), "seed=9223372036854775808: expected at least"),
        (lambda: ss.recalibrate(5, [x]), "recalibrate got 5: expected a network"),
        (lambda: ss.recalibrate(norm, 5), "loader=5: expected something that yields batches"),
    ],
)
def test_what_is_said(call: Callable[[], Any], words: str):
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert str(caught.value).startswith(words)


def test_a_seed_at_the_ends_of_its_range_is_taken():
    states = [ss.Subspace(make, ss.Line(), seed=seed).rng[0].item() for seed in (-(2**63), -1, 0, 2**63 - 1)]
    assert len(set(states)) == 4


def test_a_number_may_be_of_any_library():
    assert checks.whole("n", torch.tensor(3).numpy()[()], 1) == 3
    assert checks.number("n", torch.tensor(0.5)) == 0.5
    assert checks.several("n", torch.arange(3), "several") == [0, 1, 2]
    assert checks.several("n", (number for number in range(2)), "several") == [0, 1]
