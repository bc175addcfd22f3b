"""Ensembles against averages taken by hand."""

import dataclasses
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from helpers import Wrapped
from torch import Tensor, nn
from torch.nn import functional as F

import subspaces as ss
from subspaces import Bezier, Ensemble, Line, Simplex, Subspace


class Net(nn.Module):
    """A small network with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


def softmax(logits: Tensor, dim: int) -> Tensor:
    """Return the probabilities in float64, by the formula."""
    exponential = logits.double().exp()
    return exponential / exponential.sum(dim, keepdim=True)


def trio() -> list[nn.Module]:
    """Return three networks in eval mode with different batch-norm statistics."""
    nets = [Net().eval() for _ in range(3)]
    for index, net in enumerate(nets):
        net.norm.running_mean.fill_(index)
        net.norm.running_var.fill_(1 + index)
    return nets


def named(y: Tensor) -> dict[str, Tensor]:
    return {"logits": y, "norm": y.norm()}


def logits(output: dict[str, Tensor]) -> Tensor:
    return output["logits"]


# The average


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("average", ["probabilities", "logits", "outputs", "sigmoid"])
def test_averages_are_taken_in_float32_at_least(average, dtype):
    nets, x = [nn.Linear(3, 4).to(dtype) for _ in range(3)], torch.randn(50, 3, dtype=dtype)
    found = Ensemble(nets, average)(x)
    outputs = [net(x).double() for net in nets]
    if average == "probabilities":
        outputs = [softmax(output, 1) for output in outputs]
    elif average == "sigmoid":  # the second of two classes
        outputs = [softmax(torch.stack([torch.zeros_like(z), z]), 0)[1] for z in outputs]
    expected = sum(outputs) / 3
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("dim", "same"), [(0, -3), (1, -2), (2, -1)])
def test_dim_is_that_of_a_members_output(dim, same):
    nets = [nn.Conv1d(2, 4, 1), nn.Conv1d(2, 4, 1)]
    x = torch.randn(3, 2, 5)
    expected = sum(softmax(net(x), dim) for net in nets) / 2
    torch.testing.assert_close(Ensemble(nets, dim=dim)(x).double(), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(Ensemble(nets, dim=same)(x).double(), expected, atol=1e-6, rtol=1e-6)
    probabilities = np.stack([softmax(net(x), dim).detach().numpy() for net in nets])
    for each in (dim, same):
        found = Ensemble(nets, dim=each).predict(x)
        total = scipy.stats.entropy(probabilities.mean(0), axis=dim)
        np.testing.assert_allclose(found.entropy.detach(), total, atol=1e-6)
        within = scipy.stats.entropy(probabilities, axis=dim + 1).mean(0)
        np.testing.assert_allclose(found.disagreement.detach(), total - within, atol=1e-6)


# Outputs of every kind


FORMS: dict[str, Any] = {
    "tuple": lambda mean, variance: (mean, variance),
    "dict": lambda mean, variance: {"variance": variance, "mean": mean, "more": None},
    "distribution": lambda mean, variance: torch.distributions.Normal(mean, variance.sqrt()),
    "flat": lambda mean, variance: (mean, variance.flatten()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_mixture_has_the_moments_of_all_that_is_drawn_from_its_members(form, dtype):
    members = [(torch.randn(6, 1, dtype=dtype), torch.rand(6, 1, dtype=dtype) + 0.1) for _ in range(3)]
    nets = [Wrapped(lambda _, member=member: FORMS[form](*member)) for member in members]
    means, variances = (torch.stack(parts).double() for parts in zip(*members, strict=True))
    found = Ensemble(nets, "mixture")(torch.zeros(1))
    exact = {torch.bfloat16: 1e-6, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    if form == "distribution":  # which gives back the square of a root
        exact = {torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    expected = (variances + means**2).mean(0) - means.mean(0) ** 2
    torch.testing.assert_close(found.mean.double(), means.mean(0), atol=exact, rtol=exact)
    torch.testing.assert_close(found.variance.double(), expected, atol=exact, rtol=exact)
    assert found.mean.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_logits_are_found_by_their_name():
    @dataclasses.dataclass
    class Output:
        logits: Tensor
        cache: object

    nets, x = trio(), torch.randn(6, 3)
    expected = Ensemble(nets)(x)
    wraps: list[Any] = [
        named,
        lambda y: Output(y, object()),
        lambda y: OrderedDict(loss=y.mean(), logits=y, past=object()),
        lambda y: torch.distributions.Categorical(logits=y),
    ]
    for wrap in wraps:
        found = Ensemble([nn.Sequential(net, Wrapped(wrap)) for net in nets])(x)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("average", ["probabilities", "sigmoid", "logits", "outputs"])
def test_of_several_tensors_one_has_to_be_taken(average):
    """Such as the states of an LSTM, the latents of an autoencoder, or the value of an agent."""
    nets, x = trio(), torch.randn(6, 3)
    for wrap in (lambda y: (y, 2 * y), lambda y: {"action": y, "value": y[:, 0]}, lambda y: (y, (y, y))):
        members = [nn.Sequential(net, Wrapped(wrap)) for net in nets]
        for ask in (Ensemble(members, average), Ensemble(members, average).predict):
            with pytest.raises(ss.UserError, match=r"return a (tuple|dict): expected one tensor.*select="):
                ask(x)
    pairs = [nn.Sequential(net, Wrapped(lambda y: (y, 2 * y))) for net in nets]
    assert torch.equal(Ensemble(pairs, average, select=lambda y: y[0])(x), Ensemble(nets, average)(x))


# What the members return


CLASSES = {
    "logits": lambda y: y,
    "probabilities": lambda y: y.softmax(1),
    "log-probabilities": lambda y: y.log_softmax(1),
}
SINGLE = {"logits": lambda y: y, "probabilities": torch.sigmoid, "log-probabilities": F.logsigmoid}


def ending_in(nets: list[nn.Module], function: Any) -> list[nn.Module]:
    return [nn.Sequential(net, Wrapped(function)) for net in nets]


@pytest.mark.parametrize("outputs", CLASSES)
@pytest.mark.parametrize("average", ["probabilities", "sigmoid"])
def test_members_may_return_probabilities_and_their_logarithms(average, outputs):
    nets, x = trio(), torch.randn(6, 3)
    ends = (CLASSES if average == "probabilities" else SINGLE)[outputs]
    ensemble, plain = Ensemble(ending_in(nets, ends), average, outputs=outputs), Ensemble(nets, average)
    torch.testing.assert_close(ensemble(x), plain(x))
    torch.testing.assert_close(ensemble.predict(x).entropy, plain.predict(x).entropy, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ensemble.predict(x).disagreement, plain.predict(x).disagreement, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("average", "end"), [("probabilities", CLASSES), ("sigmoid", SINGLE)])
def test_what_looks_like_probabilities_is_not_taken_for_logits_without_a_word(average, end):
    nets, x = trio(), torch.randn(6, 3)
    members = ending_in(nets, end["probabilities"])
    for ask in (Ensemble(members, average), Ensemble(members, average).predict):
        with pytest.raises(ss.UserError, match=r"look like probabilities.*outputs='probabilities'.*outputs='logits'"):
            ask(x)
    assert Ensemble(members, average, outputs="logits")(x).shape == (6, 4)
    assert Ensemble([net.double() for net in members], average, outputs="probabilities")(x.double()).shape == (6, 4)
    with pytest.raises(ss.UserError, match="look like probabilities"):  # also in half precision
        Ensemble([nn.Sequential(net, Wrapped(torch.Tensor.bfloat16)) for net in members], average)(x.double())


# How sure it is


def test_entropy_and_disagreement_of_classes_are_those_of_scipy():
    nets, x = trio(), torch.randn(6, 3)
    found = Ensemble(nets).predict(x)
    assert torch.equal(found.output, Ensemble(nets)(x))
    assert torch.equal(found.members, Ensemble(nets).outputs(x))
    probabilities = np.stack([softmax(net(x), 1).detach().numpy() for net in nets])
    middle = probabilities.mean(0)
    np.testing.assert_allclose(found.entropy.detach(), scipy.stats.entropy(middle, axis=1), atol=1e-6)
    divergence = scipy.special.rel_entr(probabilities, middle).sum(2).mean(0)  # mutual information, as a divergence
    np.testing.assert_allclose(found.disagreement.detach(), divergence, atol=1e-6)
    single = Ensemble(
        [nn.Sequential(net, Wrapped(lambda y: y[:, :1])) for net in nets], "sigmoid", outputs="logits"
    ).predict(x)
    pair = [nn.Sequential(net, Wrapped(lambda y: torch.cat([torch.zeros_like(y[:, :1]), y[:, :1]], 1))) for net in nets]
    expected = Ensemble(pair).predict(x)
    torch.testing.assert_close(single.entropy[:, 0], expected.entropy)
    torch.testing.assert_close(single.disagreement[:, 0], expected.disagreement)
    of_logits = Ensemble(nets, "logits").predict(x)
    assert torch.equal(of_logits.output, Ensemble(nets, "logits")(x))
    torch.testing.assert_close(of_logits[2:], found[2:])


def test_the_disagreement_of_numbers_is_the_variance_of_the_means():
    nets, x = [nn.Linear(3, 2) for _ in range(3)], torch.randn(6, 3)
    plain = Ensemble(nets, "outputs").predict(x)
    variance = torch.stack([net(x) for net in nets]).var(0, correction=0)
    torch.testing.assert_close(plain.disagreement, variance)
    assert plain.entropy is None
    mixed = Ensemble([nn.Sequential(net, Wrapped(lambda y: (y, y.exp()))) for net in nets], "mixture").predict(x)
    torch.testing.assert_close(mixed.disagreement, variance)
    torch.testing.assert_close(mixed.entropy, torch.distributions.Normal(0.0, mixed.output.variance.sqrt()).entropy())
    torch.testing.assert_close(mixed.members.mean, torch.stack([net(x) for net in nets]))


# Members


@pytest.mark.parametrize(
    ("shape", "alphas"),
    [
        (Line(), torch.tensor([0.1, 0.9])),
        (Bezier(2), [0.2, 0.8]),
        (Simplex(3), torch.eye(3)),
        (Line(), [0.9, [0.1, 0.2, 0.3]]),
    ],
    ids=["tensor", "curve", "matrix", "forms"],
)
@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_the_ensemble_of_a_family_has_its_points_as_members(shape, alphas, average):
    family, x = Subspace(Net, shape).eval(), torch.randn(6, 3)
    ensemble = family.ensemble(alphas, average)
    outputs = [family(x, alpha=alpha).double() for alpha in alphas]
    values = outputs if average == "logits" else [softmax(output, 1) for output in outputs]
    torch.testing.assert_close(ensemble(x).double(), sum(values) / len(values), atol=1e-6, rtol=1e-6)
    for member, alpha in zip(ensemble.members, alphas, strict=True):
        assert torch.equal(member(x), family.at(alpha)(x))


# One module


def test_it_compiles_without_a_break():
    x, ends = torch.randn(6, 3), {"mixture": lambda y: (y[:, :2], y[:, 2:].exp()), "probabilities": named}
    mixture, classes = (Ensemble(ending_in(trio(), end), average) for average, end in ends.items())
    compiled = torch.compile(mixture, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), mixture(x))
    predict = torch.compile(classes.predict, backend="eager", fullgraph=True)
    torch.testing.assert_close(predict(x), classes.predict(x))


# Bad input


def constant(output: Any) -> list[nn.Module]:
    return [Wrapped(lambda _: output)]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Ensemble([]), ValueError, "got nothing: expected a list of one network or more"),
        (lambda: Subspace(Net, Line()).ensemble([]), ValueError, "got nothing: expected a list of one network or more"),
        (lambda: Subspace(Net, Line()).ensemble([-0.05, 1.05]), ValueError, r"-0\.05.*outside=True"),
        (lambda: Ensemble([Net(), lambda x: x]), TypeError, "expected a list of one network or more"),
        (lambda: Ensemble(trio(), "votes"), ValueError, "average='votes': expected one of 'probabilities', 'logits'"),
        (lambda: Ensemble(trio(), "output"), ValueError, r"average='output': did you mean 'outputs'\?"),
        (lambda: Ensemble(constant(1.0)), TypeError, "return a float: expected one"),
        (lambda: Ensemble(trio(), select=lambda output: 1.0), TypeError, "returns a float: expected one"),
        (lambda: Ensemble(constant(torch.tensor([1, 2])), "outputs"), TypeError, "return a tensor of torch.int64"),
        (lambda: Ensemble([Wrapped(torch.zeros_like), Net()]), ValueError, "expected the same from"),
        (lambda: Ensemble([Wrapped(lambda x: x[:, 0])]), ValueError, "for a batch of 6: expected .batch, classes"),
        (lambda: Ensemble(trio(), dim=2), ValueError, r"dim=2: expected a dimension.*\(6, 4\)"),
        (lambda: Ensemble(trio(), outputs="probability"), ValueError, "did you mean 'probabilities'"),
        (lambda: Ensemble(trio(), "outputs", outputs="logits"), ValueError, "expected it with an average of classes"),
        (lambda: Ensemble(trio(), dim="last"), TypeError, "dim='last': expected an integer"),
        (lambda: Ensemble(trio(), dim=-3), ValueError, r"dim=-3: expected a dimension.*\(6, 4\)"),
    ],
)
def test_what_cannot_be_averaged_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()(torch.randn(6, 3))


@pytest.mark.parametrize("shape", [(6, 1), (6, 5, 1), (1,), ()])
def test_the_softmax_of_one_number_is_refused(shape):
    net = Wrapped(lambda x: x.new_zeros(shape))
    words = r"softmax over dim=-1, of size 1, is 1 for every input: pass average='outputs'.*'mixture'.*'sigmoid'"
    for average, call in (("probabilities", Ensemble.forward), ("logits", Ensemble.predict)):
        with pytest.raises(ValueError, match=words):
            call(Ensemble([net], average), torch.zeros(1))
    assert Ensemble([net], "outputs")(torch.zeros(1)).shape == shape
    assert Ensemble([net], "sigmoid", outputs="logits").predict(torch.zeros(1)).entropy.shape == shape


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        (torch.zeros(2, 2), TypeError, "return a Tensor: expected a mean and a variance.*average='outputs'"),
        ((torch.zeros(2),) * 3, TypeError, "return a tuple: expected a mean and a variance"),
        ({"mean": torch.zeros(2)}, TypeError, "return a dict: expected a mean and a variance"),
        ((torch.zeros(6, 2), torch.ones(6, 1)), ValueError, r"mean of shape \(6, 2\) and a variance of shape \(6, 1\)"),
    ],
)
def test_a_mixture_needs_a_variance_for_every_mean(output, error, words):
    with pytest.raises(error, match=f"average='mixture': the members return.*{words.partition('return ')[2] or words}"):
        Ensemble([Wrapped(lambda _: output)], "mixture")(torch.zeros(1))
