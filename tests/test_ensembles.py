"""Ensembles against averages taken by hand."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subspaces import Bezier, Ensemble, Line, Simplex, Subspace, recalibrate


class Net(nn.Module):
    """A small network with batch norm; `wrap` makes its output, for example a dict."""

    def __init__(self, wrap: Any = None) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 4)
        self.wrap = wrap

    def forward(self, x: Tensor, shift: float = 0.0) -> Any:
        y = self.last(self.norm(self.first(x)).relu()) + shift
        return y if self.wrap is None else self.wrap(y)


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


@pytest.mark.parametrize("count", [1, 2, 3])
def test_probabilities_are_averaged_by_default(count):
    nets, x = trio()[:count], torch.randn(6, 3)
    expected = sum(softmax(net(x), 1) for net in nets) / count
    found = Ensemble(nets)(x)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.sum(1), torch.ones(6))


def test_logits_are_averaged_on_request():
    nets, x = trio(), torch.randn(6, 3)
    found = Ensemble(nets, "logits")(x)
    torch.testing.assert_close(found.double(), sum(net(x).double() for net in nets) / 3, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(found.softmax(1), Ensemble(nets)(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_averages_are_taken_in_float32_at_least(average, dtype):
    nets, x = [nn.Linear(3, 4).to(dtype) for _ in range(3)], torch.randn(50, 3, dtype=dtype)
    found = Ensemble(nets, average)(x)
    outputs = [net(x).double() for net in nets]
    expected = sum(outputs if average == "logits" else [softmax(output, 1) for output in outputs]) / 3
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("dim", "same"), [(0, -3), (1, -2), (2, -1)])
def test_dim_is_that_of_a_members_output(dim, same):
    nets = [nn.Conv1d(2, 4, 1), nn.Conv1d(2, 4, 1)]
    x = torch.randn(3, 2, 5)
    expected = sum(softmax(net(x), dim) for net in nets) / 2
    torch.testing.assert_close(Ensemble(nets, dim=dim)(x).double(), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(Ensemble(nets, dim=same)(x).double(), expected, atol=1e-6, rtol=1e-6)


def test_outputs_are_those_of_every_member():
    nets, x = trio(), torch.randn(6, 3)
    assert torch.equal(Ensemble(nets).outputs(x), torch.stack([net(x) for net in nets]))


def test_all_arguments_reach_the_members():
    nets, x = trio(), torch.randn(6, 3)
    for result in (Ensemble(nets, "logits")(x, 2.0), Ensemble(nets, "logits")(x, shift=2.0)):
        torch.testing.assert_close(result, Ensemble(nets, "logits")(x) + 2)


def test_select_takes_the_logits_out_of_an_output():
    nets, x = [Net(named).eval(), Net(named).eval()], torch.randn(6, 3)
    expected = sum(softmax(net(x)["logits"], 1) for net in nets) / 2
    torch.testing.assert_close(Ensemble(nets, select=logits)(x).double(), expected, atol=1e-6, rtol=1e-6)


def test_the_gradient_reaches_every_member():
    nets, x = trio(), torch.randn(6, 3)
    Ensemble(nets)(x)[:, 0].log().sum().backward()
    assert all(net.last.bias.grad.abs().sum() > 0 for net in nets)


# Members


def test_members_are_not_copied_and_keep_their_own_statistics():
    nets, x = trio(), torch.randn(6, 3)
    ensemble = Ensemble(net for net in nets)
    assert all(member is net for member, net in zip(ensemble.members, nets, strict=True))
    assert [member.norm.running_mean[0].item() for member in ensemble.members] == [0, 1, 2]
    before = [net.norm.running_mean.clone() for net in nets]
    ensemble.train()(x)
    for net, old in zip(nets, before, strict=True):
        expected = 0.9 * old + 0.1 * net.first(x).mean(0)
        torch.testing.assert_close(net.norm.running_mean, expected.detach())


@pytest.mark.parametrize(
    ("shape", "alphas"),
    [
        (Line(), [0.0, 0.25, 1.0]),
        (Line(), torch.tensor([0.1, 0.9])),
        (Bezier(2), [0.2, 0.8]),
        (Simplex(3), [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]]),
        (Simplex(3), torch.eye(3)),
        (Line(), [{"last": 0.9}, [0.1, 0.2, 0.3]]),
    ],
    ids=["floats", "tensor", "curve", "simplex", "matrix", "forms"],
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


def test_points_outside_on_request():
    family, x = Subspace(Net, Line()).eval(), torch.randn(6, 3)
    ensemble = family.ensemble([-0.05, 1.05], outside=True)
    assert torch.equal(ensemble.members[1](x), family.at(1.05, outside=True)(x))
    with pytest.raises(ValueError, match=r"-0\.05.*outside=True"):
        family.ensemble([-0.05, 1.05])


def test_options_of_the_ensemble_go_through_the_family():
    family, x = Subspace(lambda: Net(named), Line()).eval(), torch.randn(6, 3)
    ensemble = family.ensemble([0.0, 1.0], "logits", select=logits)
    expected = (family(x, alpha=0.0)["logits"] + family(x, alpha=1.0)["logits"]) / 2
    torch.testing.assert_close(ensemble(x), expected)


def test_the_ensemble_is_independent_of_the_family():
    family, x = Subspace(Net, Line()).eval(), torch.randn(6, 3)
    before = family(x)
    ensemble = family.ensemble([0.0, 1.0])
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.zero_()
    recalibrate(ensemble, [x])
    assert torch.equal(family(x), before)


# One module


@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_it_compiles_without_a_break(average):
    ensemble, x = Ensemble(trio(), average), torch.randn(6, 3)
    compiled = torch.compile(ensemble, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), ensemble(x))


def test_the_state_of_one_is_the_state_of_another():
    family, x = Subspace(Net, Simplex(3)).eval(), torch.randn(6, 3)
    trained = recalibrate(family.ensemble(torch.eye(3)), [torch.randn(8, 3), x])
    fresh = Ensemble([Net() for _ in range(3)]).eval()
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert torch.equal(fresh(x), trained(x))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda ensemble: pickle.loads(pickle.dumps(ensemble))])
def test_copies_are_equal_and_independent(duplicate):
    ensemble = Ensemble([Net(named).eval(), Net(named).eval()], "logits", dim=1, select=logits)
    x = torch.randn(6, 3)
    before = ensemble(x)
    other = duplicate(ensemble)
    assert torch.equal(other(x), before)
    other.members[0].last.weight.data.zero_()
    assert torch.equal(ensemble(x), before)
    assert not torch.equal(other(x), before)


def test_it_says_what_it_averages():
    assert "average='logits'" in repr(Ensemble(trio(), "logits"))


# Bad input


def test_an_empty_ensemble_is_refused():
    with pytest.raises(ValueError, match="at least one member"):
        Ensemble([])
    with pytest.raises(ValueError, match="at least one member"):
        Subspace(Net, Line()).ensemble([])


def test_an_unknown_average_is_refused():
    with pytest.raises(ValueError, match="average='votes': expected 'probabilities' or 'logits'"):
        Ensemble(trio(), "votes")


@pytest.mark.parametrize("wrap", [named, lambda y: (y, y)], ids=["dict", "tuple"])
def test_other_outputs_need_select(wrap):
    with pytest.raises(TypeError, match=r"return a (dict|tuple): pass select="):
        Ensemble([Net(wrap)])(torch.randn(6, 3))


def test_select_must_give_a_tensor():
    with pytest.raises(TypeError, match="select= returns a float: pass select="):
        Ensemble([Net(named)], select=lambda output: 1.0)(torch.randn(6, 3))


def test_members_must_be_modules():
    with pytest.raises(TypeError, match="expected a list of networks"):
        Ensemble([Net(), lambda x: x])
