"""Networks of any inputs and outputs, to all three formats, as their cards say."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from production_cases import card, run_card, softmaxed
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.core import functional
from subspaces.errors import UserError
from subspaces.export import ExportError, ModelError

Case = tuple[Callable[[], nn.Module], Any, dict[str, Any]]


class Recurrent(nn.Module):
    """A language model: the next token of each place, and the state after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(20, 8), nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 20)

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


class Two(nn.Module):
    """Two inputs, a mean and a variance."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.second(context).exp()


def decoder() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 18), nn.Sigmoid(), nn.Unflatten(1, (2, 3, 3)))


def segmenting() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1))


def vectors(end: nn.Module | None = None, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs), *([] if end is None else [end]))


def normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2))


TOKENS = torch.randint(0, 20, (3, 5))
STATE = (torch.rand(1, 3, 6), torch.rand(1, 3, 6))
WORDS = {"input_ids": TOKENS, "attention_mask": torch.ones(3, 5, dtype=torch.long), "token_type_ids": 0 * TOKENS}
VECTORS = torch.rand(6, 4)
CASES: dict[str, Case] = {
    "language model": (Recurrent, (TOKENS, STATE), {"task": "outputs"}),
    "dict": (Classifier, WORDS, {}),
    "two inputs": (Two, [torch.rand(6, 3), VECTORS], {"task": "regression"}),
    "decoder": (decoder, VECTORS, {"task": "outputs"}),
    "segmentation": (segmenting, torch.rand(2, 2, 5, 5), {"task": "pixels"}),
    "double": (lambda: vectors().double(), VECTORS.double(), {"outputs": "logits"}),
    "half": (lambda: vectors().half(), VECTORS, {}),
    "weight norm": (normed, VECTORS, {"task": "outputs"}),
}


def called(network: nn.Module, example: Any) -> Any:
    """Return what a network says in eval mode to an example as a user gives it."""
    args = () if isinstance(example, dict) else example if isinstance(example, (tuple, list)) else (example,)
    with torch.no_grad():
        return network.eval()(*args, **(example if isinstance(example, dict) else {}))


def first(value: Any, count: int, dim: int = 0) -> Any:
    return value.narrow(dim, 0, count).contiguous()


@pytest.mark.parametrize("name", CASES)
def test_weights_need_no_example(name: str, tmp_path: Path) -> None:
    make, example, settings = CASES[name]
    network = make().train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    for how in ({}, {"example": example, **settings}, {"example": example}):
        path = ss.export(network, tmp_path / "net.safetensors", **how, progress=False)
        assert network.training
        again = make()
        again.load_state_dict(load_file(path), strict=True)
        found = load_file(path)
        assert sorted(found) == sorted(before)
        assert all(torch.equal(found[key], value) and found[key].dtype == value.dtype for key, value in before.items())
    pair = ss.Ensemble([make(), make()], "outputs")
    for given in (None, example):
        found = load_file(ss.export(pair, tmp_path / "pair.safetensors", example=given, progress=False))
        assert all(torch.equal(found[key], value) for key, value in pair.state_dict().items())
    family = ss.Subspace(make, ss.Line())
    path = ss.export(family, tmp_path / "family.safetensors", point="family", progress=False)
    loaded = ss.load(path, make)
    assert all(torch.equal(loaded.omega[key], value) for key, value in family.omega.items())


def test_weights_of_every_type(tmp_path: Path) -> None:
    network = nn.Module()
    kinds = (torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int8, torch.uint16, torch.bool)
    for index, kind in enumerate(kinds):
        network.register_buffer(f"b{index}", torch.ones(3).to(kind))
    found = load_file(ss.export(network, tmp_path / "net.safetensors", progress=False))
    assert [found[f"b{index}"].dtype for index in range(len(kinds))] == list(kinds)
    network.register_buffer("wide", torch.ones(3, dtype=torch.complex128))
    with pytest.raises(UserError, match=r"wide has dtype torch.complex128, which safetensors cannot hold"):
        ss.export(network, tmp_path / "other.safetensors", progress=False)


def test_a_language_model_takes_and_returns_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, example, settings = CASES["language model"]
    network = make()
    for suffix in ("pt2", "onnx"):
        path = ss.export(network, tmp_path / f"net.{suffix}", example=example, **settings, progress=False)
        for count in (3, 2):
            tokens, state = first(TOKENS, count), tuple(first(each, count, 1) for each in STATE)
            names = {"tokens": tokens, "state_0": state[0], "state_1": state[1]}
            found = run_card(path, names, monkeypatch)
            logits, (h, c) = called(network, (tokens, state))
            for key, wanted in (("output_0", logits), ("output_1_0", h), ("output_1_1", c)):
                assert_close(found[key], wanted, atol=1e-5, rtol=0)
        assert "`tokens` is int64 [n, 5].\n`state_0` is float32 [1, n, 6]." in card(path)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    assert [each.shape for each in session.get_inputs()] == [["n", 5], [1, "n", 6], [1, "n", 6]]
    assert session.get_outputs()[0].shape == ["n", 5, 20]
    np.save(tmp_path / "images.npy", np.zeros((1, 8, 8), np.uint8))
    for suffix in ("pt2", "onnx"):
        with pytest.raises(ModelError, match=r"takes tokens int64 \[n, 5\], .*expected a classifier of images"):
            ss.predict(tmp_path / f"net.{suffix}", tmp_path / "images.npy", trust=True, progress=False)


def test_an_ambiguous_batch_is_that_of_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many layers as examples leave open which dimension of the state is the batch."""
    network = Recurrent()
    network.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True)
    state = (torch.rand(2, 2, 6), torch.rand(2, 2, 6))
    path = ss.export(network, tmp_path / "net.pt2", example=(TOKENS[:2], state), task="tokens", progress=False)
    names = {"tokens": TOKENS[:2], "state_0": state[0], "state_1": state[1]}
    found = run_card(path, names, monkeypatch)["probabilities"]
    assert_close(found, called(network, (TOKENS[:2], state))[0].softmax(-1), atol=1e-5, rtol=0)
    assert "It takes 2 examples at a time" in card(path)


def test_a_dict_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Classifier()
    for suffix in ("pt2", "onnx"):
        path = ss.export(network, tmp_path / f"net.{suffix}", example=WORDS, classes=list("abc"), progress=False)
        found = run_card(path, {name: first(each, 2) for name, each in WORDS.items()}, monkeypatch)
        wanted = called(network, WORDS)["logits"].softmax(-1)
        assert_close(found["probabilities"], wanted[:2], atol=1e-5, rtol=0)


def test_families_of_any_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, images, alpha = tmp_path / "net.pt2", torch.rand(4, 2, 5, 5), torch.tensor(0.3)
    how: dict[str, Any] = {"point": "family", "progress": False}
    family = ss.Subspace(Recurrent, ss.Line()).train()
    ss.export(family, path, example=TOKENS, task="tokens", **how)
    found = run_card(path, {"tokens": TOKENS, "alpha": alpha}, monkeypatch)["probabilities"]
    assert_close(found, called(family.at(0.3), TOKENS)[0].softmax(-1), atol=1e-5, rtol=0)
    assert "`probabilities` are [n, 5, 20]" in card(path)
    family = ss.Subspace(segmenting, ss.Line())
    ss.export(family, path, example=images, task="pixels", statistics=[images], **how)
    found = run_card(path, {"images": images, "alpha": alpha}, monkeypatch)["probabilities"]
    assert_close(found, called(ss.recalibrate(family.at(0.3), [images]), images).softmax(1))
    assert "% of the labels are others" in card(path)


def test_ensembles_of_any_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"point": [0.1, 0.9], "progress": False}
    family = ss.Subspace(decoder, ss.Line())
    path = ss.export(family, tmp_path / "net.pt2", example=VECTORS, task="outputs", **how)
    assert "`input` is float32 [n, 4]" in card(path)
    wanted = called(family.ensemble([0.1, 0.9], average="outputs"), VECTORS)
    assert_close(run_card(path, {"input": VECTORS}, monkeypatch)["output"], wanted)
    family, inputs = ss.Subspace(Two, ss.Line()), [torch.rand(6, 3), VECTORS]
    path = ss.export(family, tmp_path / "net.pt2", example=inputs, task=ss.Regression(), **how)
    found = run_card(path, dict(zip(("x", "context"), inputs, strict=True)), monkeypatch)
    wanted = called(family.ensemble([0.1, 0.9], average="mixture"), inputs)
    for name in ("mean", "variance"):
        assert_close(found[name], getattr(wanted, name), atol=1e-5, rtol=0)
    ensemble = ss.Ensemble([vectors(), vectors()], "logits")
    path = ss.export(ensemble, tmp_path / "net.pt2", example=VECTORS, progress=False)
    found, expected = run_card(path, {"input": VECTORS}, monkeypatch), ensemble.predict(VECTORS)
    assert_close(found["probabilities"], expected.output.softmax(-1))
    assert_close(found["disagreement"], expected.disagreement)


@pytest.mark.parametrize("log", [False, True])
def test_a_regression_returns_mean_and_variance(log: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs = Two(), [torch.rand(6, 3), VECTORS]
    task = ss.Regression(log_variance=log)
    path = ss.export(network, tmp_path / "net.pt2", example=inputs, task=task, progress=False)
    found = run_card(path, dict(zip(("x", "context"), inputs, strict=True)), monkeypatch)
    mean, variance = called(network, inputs)
    assert_close(found["mean"], mean)
    assert_close(found["variance"], variance.exp() if log else variance)
    path = ss.export(vectors(), tmp_path / "net.pt2", example=VECTORS, task="regression", progress=False)
    assert set(run_card(path, {"input": VECTORS}, monkeypatch)) == {"input", "mean"}


@pytest.mark.parametrize(
    ("name", "suffix"), [("segmentation", "onnx"), ("decoder", "onnx"), ("double", "onnx"), ("weight norm", "pt2")]
)
def test_programs_compute_what_networks_do(name: str, suffix: str, tmp_path: Path, monkeypatch: Any) -> None:
    make, example, settings = CASES[name]
    network, task = make().train(), settings.get("task", "")
    wanted = called(network, example)
    wanted = {"pixels": wanted.softmax(1), "outputs": wanted}.get(task, wanted.softmax(-1))
    path = ss.export(network, tmp_path / f"net.{suffix}", example=example, **settings, progress=False)
    found = run_card(path, {"images" if example.ndim == 4 else "input": first(example, 1)}, monkeypatch)
    assert_close(found["output" if task == "outputs" else "probabilities"], wanted[:1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("outputs", ["probabilities", "log-probabilities"])
def test_what_a_network_ends_in(outputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = nn.Softmax(1) if outputs == "probabilities" else nn.LogSoftmax(1)
    networks = [vectors(end), vectors(end)]
    if outputs == "probabilities":
        with pytest.raises(UserError, match=r"look like probabilities.*pass outputs='probabilities'"):
            ss.export(networks[0], tmp_path / "net.pt2", example=VECTORS, progress=False)
    pair = ss.Ensemble(networks, outputs=outputs)
    path = ss.export(pair, tmp_path / "pair.pt2", example=VECTORS, outputs=outputs, progress=False)
    found = run_card(path, {"input": VECTORS}, monkeypatch)
    wanted = pair.predict(VECTORS)
    assert_close(found["probabilities"], wanted.output)
    assert_close(found["disagreement"], wanted.disagreement)


def test_one_logit_is_that_of_the_second_of_two_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, path = vectors(nn.Sigmoid(), 1), tmp_path / "net.pt2"
    for how, said in (({}, "or outputs='logits'"), ({"task": "classification"}, "sigmoid")):
        with pytest.raises(UserError, match=said):
            ss.export(network, path, example=torch.rand(8, 4), **how, progress=False)
    ss.export(network, path, example=VECTORS, outputs="probabilities", progress=False)
    second = called(network, VECTORS)
    assert_close(run_card(path, {"input": VECTORS}, monkeypatch)["probabilities"], torch.cat([1 - second, second], 1))
    pair = ss.Ensemble([vectors(outputs=1), vectors(outputs=1)], "sigmoid", outputs="logits")
    ss.export(pair, path, example=VECTORS, progress=False)
    found, expected = run_card(path, {"input": VECTORS}, monkeypatch), pair.predict(VECTORS)
    assert_close(found["probabilities"], torch.cat([1 - expected.output, expected.output], 1))
    assert_close(found["disagreement"], expected.disagreement.flatten())


class Fixed(nn.Module):
    """Takes as many examples as it was made for."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(6, 2, 2).sum(1)


class Branching(nn.Module):
    """Does something else for few examples, which no program can."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1) if len(x) > 4 else x.mean(1)


@pytest.mark.parametrize("make", [Fixed, Branching])
def test_a_batch_that_cannot_vary_is_said_to(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ss.export(make(), tmp_path / "net.pt2", example=VECTORS, task="outputs", progress=False)
    assert_close(run_card(path, {"x": VECTORS}, monkeypatch)["output"], make()(VECTORS))
    assert "It takes 6 examples at a time, as the example has, and no other number" in card(path)
    assert "`x` is float32 [6, 4]." in card(path)


def test_the_weights_of_a_network_that_ends_in_a_softmax_predict(tmp_path: Path, monkeypatch: Any) -> None:
    images, network = torch.rand(3, 1, 2, 2), softmaxed(3, (1, 2, 2))
    np.save(tmp_path / "images.npy", images.numpy())
    how: dict[str, Any] = {"example": images, "network": "production_cases:softmaxed", "progress": False}
    path = ss.export(network, tmp_path / "net.safetensors", outputs="probabilities", **how)
    found = ss.predict(path, tmp_path / "images.npy", trust=True, progress=False).predictions
    wanted = called(network, images)
    assert [each.probability for each in found] == pytest.approx(wanted.max(1).values.tolist())
    again = run_card(path, {"images": images}, monkeypatch, network=softmaxed(3, (1, 2, 2)))
    assert_close(again["probabilities"], wanted)
    for settings in ({"outputs": None}, {"outputs": None, "example": None}):  # which says nothing of probabilities
        path = ss.export(network, path, **{**how, **settings})
        with pytest.raises(ModelError, match="expected a classifier of images"):
            ss.predict(path, tmp_path / "images.npy", trust=True, progress=False)


def test_an_output_may_have_the_name_of_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"x": 2 * x, "of x": x + 1}

    path = ss.export(Double(), tmp_path / "net.onnx", example=VECTORS, task="outputs", progress=False)
    found = run_card(path, {"x": VECTORS}, monkeypatch)
    assert_close(found["x_1"], 2 * VECTORS)
    assert_close(found["of_x"], VECTORS + 1)


# Networks of images


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))


IMAGES: dict[str, Any] = {"example": torch.rand(5, 2, 4, 4), "progress": False}


def test_a_network_as_it_is(tmp_path: Path) -> None:
    network = small().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    mean, std = [0.5, 0.25], [2.0, 4.0]
    path = ss.export(network, tmp_path / "own.pt2", classes=list("abcd"), mean=mean, std=std, **IMAGES)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    x = torch.rand(3, 2, 4, 4)
    scaled = (x - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    with torch.no_grad():
        assert_close(torch.export.load(path).module()(x), network.eval()(scaled).softmax(-1))
    assert "4: a, b, c, d" in card(path)


def test_an_ensemble_of_ones_own(tmp_path: Path) -> None:
    ensemble = ss.Ensemble([small().double(), small().double()]).eval()
    path = ss.export(ensemble, tmp_path / "own.pt2", **IMAGES)
    x = torch.rand(3, 2, 4, 4)
    found = torch.export.load(path).module()(x)
    with torch.no_grad():
        expected = ensemble.predict(x.double())
    assert_close(found[0].double(), expected.output, atol=1e-6, rtol=0)
    assert_close(found[1].double(), expected.disagreement, atol=1e-6, rtol=0)


def test_statistics_are_made_for_a_copy_or_a_point(tmp_path: Path) -> None:
    network, family, loader = small(), ss.Subspace(small, ss.Line()), [(torch.randn(8, 2, 4, 4), torch.zeros(8))] * 2
    before = {name: value.clone() for name, value in network.state_dict().items()}
    layers = {"0": 0.2, "4": 0.9}
    for what, how, right, alpha in (
        (network, {}, functional.copied(network), ""),
        (family, {"point": 0.3}, family.at(0.3), "0.3"),
        (family, {"point": layers}, family.at(layers), "(0: 0.2, 4: 0.9)"),
    ):
        path = ss.export(what, tmp_path / "own.safetensors", statistics=loader, **how, **IMAGES)
        found, expected = load_file(path), ss.recalibrate(right, loader).state_dict()
        assert sorted(found) == sorted(expected)
        assert all(torch.equal(found[name], value) for name, value in expected.items())
        assert f"| alpha | {alpha} |" in card(path) or not alpha
        assert "made anew from 16 training images" in card(path)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_network_that_cannot_be_traced_is_named(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :, 0, 0] if float(x.sum()) > 0 else x[:, :, 1, 1]

    with pytest.raises(ExportError, match=r"torch\.export cannot trace the network"):
        ss.export(Odd(), tmp_path / "own.pt2", **IMAGES)
    assert list(tmp_path.iterdir()) == []


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


@pytest.mark.parametrize(
    ("network", "settings", "said"),
    [
        (decoder, {}, r"of shape \(6, 2, 3, 3\): expected logits of shape \[n, classes\].*pass task='outputs'"),
        (Noisy, {"task": "outputs"}, "draws random numbers in eval mode"),
        (vectors, {"task": "outputs", "outputs": "logits"}, "expected it with a classification only"),
        (vectors, {"task": "outputs", "classes": list("abc")}, "classes=.*expected it with a classification only"),
        (vectors, {"task": "output"}, "unknown task 'output'"),
        (vectors, {"task": "tokens"}, r"of shape \(6, 3\): expected logits of shape \[batch, length, classes\]"),
        (vectors, {"outputs": "probabilities"}, "the network's outputs are none"),
        (vectors, {"example": {"y": VECTORS}}, "does not fit the inputs of Sequential"),
        (vectors, {"example": (VECTORS, VECTORS)}, "does not fit the inputs of Sequential"),
        (vectors, {"example": ()}, r"example=\(\): expected a few inputs"),
        (Two, {"example": [torch.rand(6, 3), VECTORS], "mean": [0.5], "std": [1.0]}, "expected it for one input"),
        (lambda: ss.Ensemble([vectors()], "mixture"), {}, "or task='regression' for numbers"),
        (lambda: ss.Ensemble([vectors()]), {"task": "regression"}, "the ensemble has average='probabilities'"),
        (lambda: ss.Ensemble([vectors()], "sigmoid"), {}, "expected one logit for each example"),
        (lambda: ss.Ensemble([vectors()], outputs="logits"), {"outputs": "probabilities"}, "the ensemble was told"),
    ],
)
def test_what_does_not_fit_is_refused(network: Any, settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        ss.export(network(), tmp_path / "own.pt2", **{"example": VECTORS, "progress": False, **settings})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("network", "settings", "said"),
    [
        (small, {"example": None}, "expected a few inputs of the network"),
        (small, {"example": "x"}, "example='x': expected a few inputs"),
        (
            small,
            {"example": torch.rand(0, 2, 4, 4)},
            "a tensor of shape (0, 2, 4, 4) and torch.float32",
        ),
        (small, {"example": torch.zeros(5, 2, 4, 4).byte()}, "divide bytes by 255"),
        (small, {"example": torch.rand(5, 3, 4, 4)}, "the network fails on images of shape (5, 3, 4, 4)"),
        (small, {"example": torch.full((5, 2, 4, 4), torch.nan)}, "with NaN or infinity"),
        (small, {"mean": 3}, "mean=3: expected a list with one number for each channel"),
        (small, {"mean": [0, "x"], "std": [1, 1]}, "mean='x': expected a finite number"),
        (small, {"classes": 3}, "classes=3: expected a list of names"),
        (small, {"network": "mpl"}, "unknown network 'mpl' (did you mean 'mlp'?)"),
        (small, {"name": 3}, "name=3: expected text"),
        (small, {"point": []}, "a network has no points"),
        (small, {"statistics": 3}, "statistics=3: expected something that yields batches"),
        (small, {"statistics": [torch.rand(8, 3, 4, 4)]}, "statistics= has a batch that the network fails on"),
        (small, {"statistics": [[]]}, "statistics= has a batch that the network fails on"),
        (small, {"statistics_batches": 3}, "it is for runs; a module takes statistics="),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), {}, "lazy parameters: call it once"),
        (lambda: 3, {}, "export got 3: expected a network"),
        (small, {"classes": ["a", "b"]}, "classes has 2 names: expected 4"),
        (small, {"mean": [0.5]}, "expected one of each for the 2 channels"),
        (small, {"mean": [0.5, 0.5], "std": [1, 0]}, "std above 0"),
        (small, {"point": 0.3}, "a network has no points"),
        (small, {"statistics": iter([])}, "walked over again"),
        (lambda: ss.Subspace(small, ss.Line()), {}, "pass statistics=, the training loader"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 1)), {}, "of two classes or more"),
        (lambda: nn.Conv2d(2, 3, 3), {}, "expected logits of shape [n, classes]"),
        (lambda: ss.Ensemble([small()], "outputs"), {}, "the ensemble has average='outputs'"),
    ],
)
def test_what_cannot_be_exported_of_images(network: Any, settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        ss.export(network(), tmp_path / "own.pt2", **{**IMAGES, **settings})
    assert list(tmp_path.iterdir()) == []
