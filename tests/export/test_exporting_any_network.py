"""Networks of any inputs and outputs, to all three formats, as their cards say."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import production_cases
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.testing import assert_close
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.errors import UserError
from subspaces.export.errors import ModelError

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


def run(path: Path, names: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch, **more: Any) -> dict[str, Any]:
    """Run the lines of a card, in which the inputs have the names that it says."""
    monkeypatch.chdir(path.parent)
    (code,) = re.findall(r"```python\n(.*?)```", card(path), re.DOTALL)
    onnx = path.suffix == ".onnx"
    known: dict[str, Any] = {name: each.numpy() if onnx else each for name, each in names.items()}
    known |= {"torch": torch, **more}
    exec(code, known)
    return {name: torch.as_tensor(each) for name, each in known.items() if isinstance(each, (Tensor, np.ndarray))}


def card(path: Path) -> str:
    return path.with_name(f"{path.name}.md").read_text()


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
            found = run(path, names, monkeypatch)
            logits, (h, c) = called(network, (tokens, state))
            for key, wanted in (("output_0", logits), ("output_1_0", h), ("output_1_1", c)):
                assert_close(found[key], wanted, atol=1e-5, rtol=0)
        assert "`tokens` is int64 [n, 5]. `state_0` is float32 [1, n, 6]." in card(path)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    assert [each.shape for each in session.get_inputs()] == [["n", 5], [1, "n", 6], [1, "n", 6]]
    assert session.get_outputs()[0].shape == ["n", 5, 20]
    np.save(tmp_path / "images.npy", np.zeros((1, 8, 8), np.uint8))
    for suffix in ("pt2", "onnx"):
        with pytest.raises(ModelError, match=r"takes tokens int64 \[n, 5\], .*expected a classifier of images"):
            ss.predict(tmp_path / f"net.{suffix}", tmp_path / "images.npy", trust=True, progress=False)


def test_the_batch_lies_elsewhere_in_the_states_of_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many layers as examples, and one example, leave open which dimension is the batch."""
    network = Recurrent()
    network.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True)
    state = (torch.rand(2, 3, 6), torch.rand(2, 3, 6))
    for count in (1, 2):
        example = TOKENS[:count], tuple(first(each, count, 1) for each in state)
        path = ss.export(network, tmp_path / "net.pt2", example=example, task="tokens", progress=False)
        names = {"tokens": TOKENS, "state_0": state[0], "state_1": state[1]}
        found = run(path, names, monkeypatch)["probabilities"]
        assert_close(found, called(network, (TOKENS, state))[0].softmax(-1), atol=1e-5, rtol=0)


def test_a_family_of_language_models_takes_alpha_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family, path = ss.Subspace(Recurrent, ss.Line()).train(), tmp_path / "net.pt2"
    ss.export(family, path, point="family", example=TOKENS, task="tokens", progress=False)
    found = run(path, {"tokens": TOKENS, "alpha": torch.tensor(0.3)}, monkeypatch)
    wanted = called(family.at(0.3), TOKENS)[0].softmax(-1)
    assert_close(found["probabilities"], wanted, atol=1e-5, rtol=0)
    assert "`probabilities` are [n, 5, 20]" in card(path)


def test_a_dict_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Classifier()
    for suffix in ("pt2", "onnx"):
        path = ss.export(network, tmp_path / f"net.{suffix}", example=WORDS, classes=list("abc"), progress=False)
        found = run(path, {name: first(each, 2) for name, each in WORDS.items()}, monkeypatch)
        wanted = called(network, WORDS)["logits"].softmax(-1)
        assert_close(found["probabilities"], wanted[:2], atol=1e-5, rtol=0)


def test_several_decoders_answer_with_the_mean_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family, path = ss.Subspace(decoder, ss.Line()), tmp_path / "net.pt2"
    ss.export(family, path, point=[0.1, 0.9], example=VECTORS, task="outputs", progress=False)
    assert "`input` is float32 [n, 4]" in card(path)
    wanted = called(family.ensemble([0.1, 0.9], average="outputs"), VECTORS)
    assert_close(run(path, {"input": VECTORS}, monkeypatch)["output"], wanted)


def test_two_inputs_of_an_ensemble_of_gaussians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family, inputs = ss.Subspace(Two, ss.Line()), [torch.rand(6, 3), VECTORS]
    path = ss.export(family, tmp_path / "a.pt2", point=[0.1, 0.9], example=inputs, task=ss.Regression(), progress=False)
    found = run(path, dict(zip(("x", "context"), inputs, strict=True)), monkeypatch)
    wanted = called(family.ensemble([0.1, 0.9], average="mixture"), inputs)
    for name in ("mean", "variance"):
        assert_close(found[name], getattr(wanted, name), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "suffix"), [("segmentation", "onnx"), ("decoder", "onnx"), ("double", "onnx"), ("weight norm", "pt2")]
)
def test_programs_compute_what_networks_do(
    name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, example, settings = CASES[name]
    network, task = make().train(), settings.get("task", "")
    wanted = called(network, example)
    wanted = {"pixels": wanted.softmax(1), "outputs": wanted}.get(task, wanted.softmax(-1))
    path = ss.export(network, tmp_path / f"net.{suffix}", example=example, **settings, progress=False)
    found = run(path, {"images" if example.ndim == 4 else "input": first(example, 1)}, monkeypatch)
    assert_close(found["output" if task == "outputs" else "probabilities"], wanted[:1], atol=1e-5, rtol=0)


def test_a_family_of_segmentation_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family, images = ss.Subspace(segmenting, ss.Line()), torch.rand(4, 2, 5, 5)
    path = tmp_path / "net.pt2"
    ss.export(family, path, point="family", example=images, task="pixels", statistics=[images], progress=False)
    found = run(path, {"images": images, "alpha": torch.tensor(0.3)}, monkeypatch)
    assert_close(found["probabilities"], called(ss.recalibrate(family.at(0.3), [images]), images).softmax(1))
    assert "% of the labels are others" in card(path)


@pytest.mark.parametrize("outputs", ["probabilities", "log-probabilities"])
def test_what_a_network_ends_in(outputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = nn.Softmax(1) if outputs == "probabilities" else nn.LogSoftmax(1)
    networks = [vectors(end), vectors(end)]
    if outputs == "probabilities":
        with pytest.raises(UserError, match=r"look like probabilities.*pass outputs='probabilities'"):
            ss.export(networks[0], tmp_path / "net.pt2", example=VECTORS, progress=False)
    pair = ss.Ensemble(networks, outputs=outputs)
    path = ss.export(pair, tmp_path / "pair.pt2", example=VECTORS, outputs=outputs, progress=False)
    found = run(path, {"input": VECTORS}, monkeypatch)
    wanted = pair.predict(VECTORS)
    assert_close(found["probabilities"], wanted.output)
    assert_close(found["disagreement"], wanted.disagreement)


def test_one_logit_is_that_of_the_second_of_two_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = vectors(nn.Sigmoid(), 1)
    for how, said in (
        ({}, "or outputs='logits'"),
        ({"outputs": "logits"}, ""),
        ({"task": "classification"}, "sigmoid"),
    ):
        if said:
            with pytest.raises(UserError, match=said):
                ss.export(network, tmp_path / "net.pt2", example=torch.rand(8, 4), **how, progress=False)
    path = ss.export(network, tmp_path / "net.pt2", example=VECTORS, outputs="probabilities", progress=False)
    found = run(path, {"input": VECTORS}, monkeypatch)["probabilities"]
    second = called(network, VECTORS)
    assert_close(found, torch.cat([1 - second, second], 1))


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
    assert_close(run(path, {"x": VECTORS}, monkeypatch)["output"], make()(VECTORS))
    assert "It takes 6 examples at a time, as the example has, and no other number" in card(path)
    assert "`x` is float32 [6, 4]." in card(path)


def test_the_weights_of_a_network_that_ends_in_a_softmax_predict(tmp_path: Path) -> None:
    images, network = torch.rand(3, 1, 2, 2), production_cases.softmaxed(3, (1, 2, 2))
    np.save(tmp_path / "images.npy", images.numpy())
    how: dict[str, Any] = {"example": images, "network": "production_cases:softmaxed", "progress": False}
    path = ss.export(network, tmp_path / "net.safetensors", outputs="probabilities", **how)
    found = ss.predict(path, tmp_path / "images.npy", trust=True, progress=False).predictions
    wanted = called(network, images)
    assert [each.probability for each in found] == pytest.approx(wanted.max(1).values.tolist())
    again = run(path, {"images": images}, pytest.MonkeyPatch(), network=production_cases.softmaxed(3, (1, 2, 2)))
    assert_close(again["probabilities"].detach(), wanted)
    for settings in ({"outputs": None}, {"outputs": None, "example": None}):  # which says nothing of probabilities
        path = ss.export(network, path, **{**how, **settings})
        with pytest.raises(ModelError, match="expected a classifier of images"):
            ss.predict(path, tmp_path / "images.npy", trust=True, progress=False)
    ended = CliRunner().invoke(app, ["predict", str(path), str(tmp_path / "images.npy"), "--trust", "--quiet"])
    assert ended.exit_code == 1
    assert len(ended.stderr.splitlines()) == 1


def test_an_output_may_have_the_name_of_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"x": 2 * x, "of x": x + 1}

    path = ss.export(Double(), tmp_path / "net.onnx", example=VECTORS, task="outputs", progress=False)
    found = run(path, {"x": VECTORS}, monkeypatch)
    assert_close(found["x_1"], 2 * VECTORS)
    assert_close(found["of_x"], VECTORS + 1)


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
        (lambda: ss.Ensemble([vectors()], "mixture"), {}, "for numbers task='regression'"),
        (lambda: ss.Ensemble([vectors()]), {"task": "regression"}, "has no mean of numbers"),
        (lambda: ss.Ensemble([vectors()], "sigmoid"), {}, "expected a logit, one for each example"),
        (lambda: ss.Ensemble([vectors()], outputs="logits"), {"outputs": "probabilities"}, "the ensemble was told"),
    ],
)
def test_what_does_not_fit_is_refused(network: Any, settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        ss.export(network(), tmp_path / "own.pt2", **{"example": VECTORS, "progress": False, **settings})
    assert list(tmp_path.iterdir()) == []
