"""Networks of any inputs and outputs, to all three formats, as their cards say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from production_cases import card, run_card
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map

import subspaces as ss
from subspaces.core import functional
from subspaces.errors import UserError
from subspaces.export import ModelError

Answers = dict[str, Tensor]
Case = tuple[Callable[[], Any], Any, dict[str, Any], str, Callable[[Any, Any], Answers]]


class Recurrent(nn.Module):
    """A language model: the next token of each place, and the state after the last."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(6, 20)
        self.lstm = nn.LSTM(8, 6, layers, batch_first=True)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        found, state = self.lstm(self.embedding(tokens), state)
        return self.head(found), state


class Classifier(nn.Module):
    """Takes a dict, as tokenizers make it, and returns one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Any = None, labels: Any = None) -> Any:
        mask = attention_mask[..., None].float()
        mean = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        return {"loss": None, "logits": self.head(mean), "hidden": mean}


class Named(nn.Module):
    """Two inputs and two outputs, one of which has the name of an input."""

    def forward(self, x: Tensor, context: Tensor) -> dict[str, Tensor]:
        return {"x": 2 * x, "of x": context + 1}


def decoder() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 18), nn.Sigmoid(), nn.Unflatten(1, (2, 3, 3)))


def segmenting() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1))


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))


def vectors(end: nn.Module | None = None, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs), *([] if end is None else [end]))


def pair(average: Any = "probabilities", end: nn.Module | None = None, count: int = 3, outputs: Any = None) -> Any:
    return ss.Ensemble([vectors(end, count), vectors(end, count)], average, outputs=outputs)


# What programs answer, from the networks themselves


def called(network: nn.Module, example: Any) -> Any:
    """Return what a network says in eval mode to an example as a user gives it."""
    args = () if isinstance(example, dict) else example if isinstance(example, (tuple, list)) else (example,)
    with torch.no_grad():
        return network.eval()(*args, **(example if isinstance(example, dict) else {}))


def classes(network: Any, example: Any) -> Answers:
    found = called(network, example)
    found = found["logits"] if isinstance(found, dict) else found[0] if isinstance(found, tuple) else found
    return {"probabilities": found.softmax(1 if found.ndim == 4 else -1)}


def in_float(network: Any, example: Any) -> Answers:
    return classes(network.float(), example)


def as_it_is(network: Any, example: Any) -> Answers:
    return {"output": called(network, example)}


def stateful(network: Any, example: Any) -> Answers:
    logits, (h, c) = called(network, example)
    return {"output_0": logits, "output_1_0": h, "output_1_1": c}


def both(network: Any, example: Any) -> Answers:
    with torch.no_grad():
        found = network.eval().predict(example.to(next(network.parameters()).dtype))
    answers = found.output.softmax(-1) if network.average == "logits" else found.output, found.disagreement
    return {name: each.float() for name, each in zip(("probabilities", "disagreement"), answers, strict=True)}


PAIR = [0.1, 0.9]


def averaged(family: Any, example: Any) -> Answers:
    return as_it_is(family.ensemble(PAIR, average="outputs"), example)


MEAN, STD = [0.5, 0.25], [2.0, 4.0]


def scaled(network: Any, example: Any) -> Answers:
    mean, std = (torch.tensor(each)[:, None, None] for each in (MEAN, STD))
    return classes(network, (example - mean) / std)


TOKENS, VECTORS, IMAGES = torch.randint(0, 20, (3, 5)), torch.rand(6, 4), torch.rand(5, 2, 4, 4)
STATE = (torch.rand(1, 3, 6), torch.rand(1, 3, 6))
WORDS = {"input_ids": TOKENS, "attention_mask": torch.ones(3, 5, dtype=torch.long), "token_type_ids": 0 * TOKENS}
BOTH = [VECTORS, torch.rand(6, 3)]
TASK: dict[str, Any] = {"task": "outputs"}
SAID: dict[str, Any] = {"outputs": "probabilities"}
CASES: dict[str, Case] = {
    "language model": (Recurrent, (TOKENS, STATE), TASK, "tokens state_0 state_1", stateful),
    "tokens": (Recurrent, TOKENS, {"task": "tokens"}, "tokens", classes),
    "dict": (Classifier, WORDS, {"classes": list("abc")}, " ".join(WORDS), classes),
    "segmentation": (segmenting, torch.rand(2, 2, 5, 5), {"task": "pixels"}, "images", classes),
    "double": (lambda: vectors().double(), VECTORS.double(), {"outputs": "logits"}, "input", classes),
    "half": (lambda: vectors().half(), VECTORS, {}, "input", in_float),
    "names": (Named, BOTH, TASK, "x context", lambda _, xs: {"x_1": 2 * xs[0], "of_x": xs[1] + 1}),
    "normalised": (small, IMAGES, {"mean": MEAN, "std": STD}, "images", scaled),
    "logits": (lambda: pair("logits"), VECTORS, {}, "input", both),
    "softmax": (lambda: pair(end=nn.Softmax(1), **SAID), VECTORS, SAID, "input", both),
    "points": (lambda: ss.Subspace(decoder, ss.Line()), VECTORS, {**TASK, "point": PAIR}, "input", averaged),
}
WEIGHTS = ["language model", "double", "half"]


def cut(example: Any) -> Any:
    """Return the first of several examples, along whichever dimension they lie."""
    count = len(tree_leaves(example)[0])
    return tree_map(lambda each: each.narrow(each.shape.index(count), 0, 1).contiguous(), example)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        *((name, "pt2") for name in CASES),
        *((name, "onnx") for name in ("language model", "dict", "half", "names")),
    ],
)
def test_programs_compute_what_networks_do(name: str, suffix: str, tmp_path: Path, monkeypatch: Any) -> None:
    make, example, settings, names, wanted = CASES[name]
    network = make().train()
    path = ss.export(network, tmp_path / f"net.{suffix}", example=example, **settings, progress=False)
    assert network.training
    for inputs in (example, cut(example)):
        found = run_card(path, dict(zip(names.split(), tree_leaves(inputs), strict=True)), monkeypatch)
        expected = wanted(network, inputs)
        assert set(found) == {*names.split(), *expected}
        for key, value in expected.items():
            assert_close(found[key], value, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_need_no_example(name: str, tmp_path: Path) -> None:
    make, example, settings, *_ = CASES[name]
    network = make().train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    for how in ({}, {"example": example, **settings}):
        path = ss.export(network, tmp_path / "net.safetensors", **how, progress=False)
        found = load_file(path)
        assert network.training
        assert sorted(found) == sorted(before)
        assert all(torch.equal(found[key], value) and found[key].dtype == value.dtype for key, value in before.items())
    several = ss.Ensemble([make(), make()], "outputs")
    found = load_file(ss.export(several, tmp_path / "pair.safetensors", progress=False))
    assert all(torch.equal(found[key], value) for key, value in several.state_dict().items())
    family = ss.Subspace(make, ss.Line())
    loaded = ss.load(ss.export(family, tmp_path / "family.safetensors", point="family", progress=False), make)
    assert all(torch.equal(loaded.omega[key], value) for key, value in family.omega.items())


def test_what_is_no_classifier_of_images_says_what_it_takes(tmp_path: Path) -> None:
    make, example, settings, *_ = CASES["language model"]
    np.save(tmp_path / "images.npy", np.zeros((1, 8, 8), np.uint8))
    path = ss.export(make(), tmp_path / "net.onnx", example=example, **settings, progress=False)
    assert "`tokens` is int64 [n, 5].\n`state_0` is float32 [1, n, 6]." in card(path)
    with pytest.raises(ModelError, match=r"takes tokens int64 \[n, 5\], .*expected a classifier of images"):
        ss.predict(path, tmp_path / "images.npy", progress=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [each.shape for each in session.get_inputs()] == [["n", 5], [1, "n", 6], [1, "n", 6]]
    assert session.get_outputs()[0].shape == ["n", 5, 20]


def test_families_of_any_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, images, alpha = tmp_path / "net.pt2", torch.rand(4, 2, 5, 5), torch.tensor(0.3)
    how: dict[str, Any] = {"point": "family", "progress": False}
    family = ss.Subspace(Recurrent, ss.Line()).train()
    ss.export(family, path, example=TOKENS, task="tokens", **how)
    found = run_card(path, {"tokens": TOKENS, "alpha": alpha}, monkeypatch)["probabilities"]
    assert_close(found, classes(family.at(0.3), TOKENS)["probabilities"], atol=1e-5, rtol=0)
    assert "`probabilities` are [n, 5, 20]" in card(path)
    family = ss.Subspace(segmenting, ss.Line())
    ss.export(family, path, example=images, task="pixels", statistics=[images], **how)
    found = run_card(path, {"images": images, "alpha": alpha}, monkeypatch)["probabilities"]
    assert_close(found, called(ss.recalibrate(family.at(0.3), [images]), images).softmax(1))
    assert "measured at 11 points" in card(path)


class Fixed(nn.Module):
    """Takes as many examples as it was made for."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(6, 2, 2).sum(1)


class Branching(nn.Module):
    """Does something else for few examples, which no program can."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1) if len(x) > 4 else x.mean(1)


def test_a_card_says_how_weights_give_probabilities(tmp_path: Path, monkeypatch: Any) -> None:
    images, end = torch.rand(3, 1, 2, 2), nn.LogSoftmax(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), end)
    how: dict[str, Any] = {"example": images, "outputs": "log-probabilities", "progress": False}
    path = ss.export(network, tmp_path / "net.safetensors", **how)
    found = run_card(path, {"images": images}, monkeypatch, network=nn.Sequential(nn.Flatten(), nn.Linear(4, 3), end))
    assert_close(found["probabilities"], called(network, images).exp())


def test_statistics_are_made_for_a_copy_or_a_point(tmp_path: Path) -> None:
    network, family, loader = small(), ss.Subspace(small, ss.Line()), [(torch.randn(8, 2, 4, 4), torch.zeros(8))] * 2
    before = {name: value.clone() for name, value in network.state_dict().items()}
    for what, how, right, alpha in (
        (network, {}, functional.copied(network), ""),
        (family, {"point": 0.3}, family.at(0.3), "0.3"),
    ):
        path = ss.export(what, tmp_path / "own.safetensors", statistics=loader, **how, progress=False)
        found, expected = load_file(path), ss.recalibrate(right, loader).state_dict()
        assert sorted(found) == sorted(expected)
        assert all(torch.equal(found[name], value) for name, value in expected.items())
        assert f"| alpha | {alpha} |" in card(path) or not alpha
        assert "made anew from 16 training images" in card(path)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


VECTORS_REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (decoder, {}, r"of shape \(6, 2, 3, 3\): expected logits of shape \[n, classes\].*pass task='outputs'"),
    (Noisy, {"task": "outputs"}, "draws random numbers in eval mode"),
    (Fixed, {"task": "outputs"}, "the network fails on another number of examples"),
    (Branching, {"task": "outputs"}, "for any number of examples"),
    (vectors, {"task": "outputs", "outputs": "logits"}, "pass task='outputs' alone"),
    (vectors, {"task": "outputs", "classes": list("abc")}, "classes=.*expected it with a classification only"),
    (vectors, {"task": "output"}, "unknown task 'output'"),
    (vectors, {"task": "tokens"}, r"of shape \(6, 3\): expected logits of shape \[batch, length, classes\]"),
    (vectors, {"outputs": "probabilities"}, "the network's outputs are none"),
    (lambda: vectors(nn.Softmax(1)), {}, "look like probabilities.*pass outputs='probabilities'"),
    (lambda: vectors(nn.Sigmoid(), 1), {}, "of two classes or more; pass task='outputs'"),
    (vectors, {"example": {"y": VECTORS}}, "does not fit the inputs of Sequential"),
    (Named, {"example": (VECTORS, 3)}, "example has 3: expected tensors alone"),
    (Named, {"example": BOTH, "mean": [0.5], "std": [1.0]}, "for one input of floats"),
    (vectors, {"task": ss.Regression()}, "for a regression, or anything else, pass task='outputs' alone"),
    (lambda: ss.Ensemble([vectors()], "sigmoid"), {}, "average='sigmoid': pass task='outputs'"),
    (lambda: ss.Ensemble([vectors()], outputs="logits"), {"outputs": "probabilities"}, "the ensemble was told"),
]
IMAGES_REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (small, {"example": None}, "expected a few inputs of the network"),
    (small, {"example": torch.rand(0, 2, 4, 4)}, r"a tensor \(0, 2, 4, 4\), torch.float32"),
    (small, {"example": torch.zeros(5, 2, 4, 4).byte()}, "divide bytes by 255"),
    (small, {"example": torch.rand(5, 3, 4, 4)}, r"the network fails on images of shape \(5, 3, 4, 4\)"),
    (small, {"example": torch.full((5, 2, 4, 4), torch.nan)}, "the network returns NaN or infinity"),
    (small, {"mean": [0, "x"], "std": [1, 1]}, "mean='x': expected a finite number"),
    (small, {"mean": [0.5, 0.5], "std": [1, 0]}, "std above 0"),
    (small, {"classes": ["a", "b"]}, "classes has 2 names: expected 4"),
    (small, {"point": 0.3}, "a Sequential has no points"),
    (small, {"statistics": iter([])}, "walked over again"),
    (small, {"statistics": [torch.rand(8, 3, 4, 4)]}, "statistics= has a batch that the network fails on"),
    (small, {"statistics_batches": 3}, "it is for runs; a module takes statistics="),
    (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), {}, "lazy parameters: call it once"),
    (lambda: ss.Subspace(small, ss.Line()), {}, "pass statistics=, the training loader"),
    (lambda: ss.Subspace(small, ss.Line()), {"point": [0.1, 0.5, 0.9]}, "as many points as layers"),
    (lambda: 3, {"example": None}, "export got 3: expected a network"),
]


@pytest.mark.parametrize(
    ("example", "network", "settings", "said"),
    [*((VECTORS, *row) for row in VECTORS_REFUSED), *((IMAGES, *row) for row in IMAGES_REFUSED)],
)
def test_what_does_not_fit_is_refused(example: Any, network: Any, settings: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        ss.export(network(), tmp_path / "own.pt2", **{"example": example, "progress": False, **settings})
    assert list(tmp_path.iterdir()) == []


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def test_a_trained_family_with_batch_norm_is_exported_without_warnings(tmp_path: Path) -> None:
    """Its statistics are stale, but those of the file are made anew."""
    family, x = ss.Subspace(normed, ss.Line(), seed=0), torch.randn(64, 4)
    for _ in range(3):
        family(x).sum().backward()
    path = ss.export(family, tmp_path / "f.pt2", point="family", example=x, statistics=[x], progress=False)
    assert path.is_file()
