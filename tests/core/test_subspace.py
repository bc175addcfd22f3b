import copy
import itertools
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from helpers import Small, Tied, architectures, gradients, images, quick, seeds, shapes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from subspaces import Bezier, Line, Point, Shape, Simplex, Subspace
from subspaces.errors import ArgumentError

TARGET = torch.tensor([0, 1, 1, 0, 1])


def loss_of(output: Tensor) -> Tensor:
    return F.cross_entropy(output, TARGET[: len(output)])


# Identities


@quick
@given(architectures(), shapes, st.booleans(), st.booleans(), seeds)
def test_network_at_alpha_is_the_family_at_alpha(make, shape, layerwise, training, seed):
    torch.manual_seed(seed)
    family = Subspace(make, shape, layerwise, seed=seed).train(training)
    alpha = family.sample()
    network = family.at(alpha)
    torch.testing.assert_close(network(images()), family(images(), alpha=alpha), rtol=1e-12, atol=1e-12)
    assert network.training == training
    for name, value in network.named_buffers():  # both have seen the batch
        torch.testing.assert_close(value, family.template.get_buffer(name))


@quick
@given(architectures(), shapes, st.booleans(), seeds)
def test_endpoints_are_exactly_vertices(make, shape, layerwise, seed):
    torch.manual_seed(seed)
    modules = [make() for _ in range(shape.vertices)]
    family = Subspace.from_modules(modules, shape, layerwise).eval()
    corners = torch.eye(shape.vertices) if shape.point else torch.tensor([0.0, 1.0])
    ends = range(shape.vertices) if shape.point else (0, shape.vertices - 1)
    for corner, index in zip(corners, ends, strict=True):
        network = family.at(corner)
        assert all(torch.equal(p, family.vertex(index)[name]) for name, p in network.named_parameters())
        torch.testing.assert_close(network(images()), modules[index].eval()(images()), rtol=1e-12, atol=1e-12)
        for_all_layers = corner.expand(len(family.layers), *shape.point)
        assert torch.equal(family(images(), alpha=for_all_layers), family(images(), alpha=corner))


@quick
@given(architectures(), shapes, st.booleans(), seeds)
def test_eval_mode_is_the_midpoint(make, shape, layerwise, seed):
    torch.manual_seed(seed)
    family = Subspace(make, shape, layerwise).eval()
    output = family(images())
    torch.testing.assert_close(output, family.midpoint()(images()), rtol=1e-12, atol=1e-12)
    assert torch.equal(output, family(images()))
    assert torch.equal(output, family(images(), alpha=shape.midpoint()))
    c = shape.coefficients(shape.midpoint())
    for name, parameter in family.midpoint().named_parameters():
        mean = sum(c[i] * family.vertex(i)[name] for i in range(shape.vertices))
        torch.testing.assert_close(parameter, mean.to(parameter.dtype))


def test_line_is_the_papers_equation():
    # d loss / d omega_1 = (1 - alpha) d loss / d theta and d loss / d omega_2 = alpha d loss / d theta,
    # with theta and its gradient from networks that know nothing of subspaces
    first, second, point = Small(), Small(), Small()
    alpha = 0.3
    weights = zip(point.parameters(), first.parameters(), second.parameters(), strict=True)
    with torch.no_grad():
        for theta, omega_1, omega_2 in weights:
            theta.copy_((1 - alpha) * omega_1 + alpha * omega_2)
    loss_of(point(images())).backward()
    family = Subspace.from_modules([first, second], Line())
    loss_of(family(images(), alpha=alpha)).backward()
    for name, theta in point.named_parameters():
        torch.testing.assert_close(gradients(family, 0)[name], (1 - alpha) * theta.grad)
        torch.testing.assert_close(gradients(family, 1)[name], alpha * theta.grad)


def test_a_point_is_ordinary_training():
    network = Small()
    family = Subspace(network, Point())
    for module in (network, family):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        for _ in range(3):
            loss = loss_of(module(images()))
            loss = loss + family.penalty() if module is family else loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for name, value in family.midpoint().state_dict().items():
        torch.testing.assert_close(value, network.state_dict()[name])


@dataclass(frozen=True)
class Patch(Shape):
    """A shape the package does not know: bilinear between four corners."""

    domain = "two numbers in [0, 1]"
    vertices = 4
    point = (2,)

    def sample(self, size=(), random=torch.rand):
        return random((*size, 2))

    def coefficients(self, alpha):
        u, v = alpha.unbind(-1)
        return torch.stack([(1 - u) * (1 - v), u * (1 - v), (1 - u) * v, u * v], dim=-1)

    def midpoint(self):
        return torch.tensor([0.5, 0.5])

    def inside(self, alpha):
        return ((alpha >= 0) & (alpha <= 1)).all(-1)

    def separation(self, first, second):
        return (first - second).abs().amax(-1)


@pytest.mark.parametrize("layerwise", [False, True])
def test_a_new_shape_is_one_class(layerwise):
    family = Subspace(Small, Patch(), layerwise, seed=0)
    alpha = family.sample()
    torch.testing.assert_close(family.at(alpha)(images()), family(images(), alpha=alpha))
    assert torch.equal(family.at([1.0, 0.0]).head.weight, family.vertex(1)["head.weight"])
    sampled = family(images(), samples=2, features="head")
    assert family.feature_similarity(sampled) > 0
    with pytest.raises(ValueError, match=r"not a point of Patch\(\): expected two numbers in \[0, 1\]; pass outside"):
        family.at([0.5, 1.5])


# Drawing points


def test_train_mode_draws_afresh_and_repeats_under_a_seed():
    drawn = []
    for seed in (1, 1, 2):
        family = Subspace(Small, Line(), seed=seed)
        for vertex in range(2):
            family.vertex(vertex)["head.weight"].zero_()
            family.vertex(vertex)["head.bias"].fill_(vertex)  # the output is alpha
        drawn.append([family(images())[0, 0].item() for _ in range(8)])
    rngs = []
    for seed in (0, 0, 1):  # by default from the global generator
        torch.manual_seed(seed)
        rngs.append(Subspace(Small, Line()).rng)
    assert [torch.equal(rngs[0], rng) for rng in rngs] == [True, True, False]
    assert len(set(drawn[0])) == 8
    assert all(0 <= alpha < 1 for alpha in drawn[0])
    assert drawn[0] == drawn[1]
    assert set(drawn[0]).isdisjoint(drawn[2])


@pytest.mark.filterwarnings("ignore::subspaces.core.batchnorm.StatisticsWarning")
def test_eval_mode_and_given_points_draw_nothing():
    family = Subspace(Small, Simplex(3), seed=0)
    before = family.rng.clone()
    family(images(), alpha=[0.2, 0.3, 0.5])
    family.at([0.2, 0.3, 0.5])
    family.penalty(0)
    family.eval()(images())
    family(images(), samples=4)
    assert torch.equal(family.rng, before)


# Ordinary networks out of the family


def test_network_is_independent_of_the_family():
    family = Subspace(Small, Line(), seed=0)
    before = copy.deepcopy(family.state_dict())
    for network in (family.at(0.0), family.midpoint()):
        optimizer = torch.optim.SGD(network.parameters(), lr=1)
        loss_of(network(images())).backward()
        optimizer.step()
        network.norm.running_mean.fill_(9)
    after = family.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(parameter.grad is None for parameter in family.parameters())
    network, frozen = family.at(0.3), copy.deepcopy(family.at(0.3).state_dict())
    family.vertex(0)["conv.weight"].zero_()
    family(images())
    assert all(torch.equal(value, frozen[name]) for name, value in network.state_dict().items())


def test_tied_weights_stay_tied():
    family = Subspace(Tied, Line())
    network = family.at(0.4)
    assert network.output.weight is network.embedding.weight
    x = torch.arange(5)
    F.cross_entropy(family(x, alpha=0.4), x).backward()
    F.cross_entropy(network(x), x).backward()
    torch.testing.assert_close(gradients(family, 1)["output.weight"], 0.4 * network.output.weight.grad)


def test_vertices_are_views():
    family = Subspace(Small, Simplex(3), seed=0)
    vertex = family.vertex(1)
    assert vertex.keys() == dict(Small().named_parameters()).keys()
    assert not any(view.requires_grad for view in vertex.values())
    vertex["head.bias"].fill_(7)
    assert torch.equal(family.at([0.0, 1.0, 0.0]).head.bias, torch.full((2,), 7.0, dtype=torch.float64))
    assert all(torch.equal(family.vertex(-1)[name], view) for name, view in family.vertex(2).items())
    assert not family.vertex(0)["head.bias"].eq(7).any()


# The penalty


def exact_cos2(family: Subspace, j: int, k: int, names: tuple[str, ...]) -> Tensor:
    a, b = (torch.cat([family.vertex(i)[name].double().flatten() for name in names]) for i in (j, k))
    return (a @ b) ** 2 / ((a @ a) * (b @ b))


WEIGHTS = ("conv.weight", "head.weight")


@quick
@given(architectures(), st.floats(0.01, 10), st.booleans(), seeds)
def test_penalty_of_two_vertices_is_the_formula(make, beta, single, seed):
    torch.manual_seed(seed)
    family = Subspace(lambda: make().to(torch.float32 if single else torch.float64), Line())
    names = tuple(name for name, value in family.vertex(0).items() if value.ndim > 1)
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if single else {}
    torch.testing.assert_close(family.penalty(beta).double(), beta * exact_cos2(family, 0, 1, names), **tolerance)


@pytest.mark.parametrize("shape", [Simplex(3), Simplex(4), Bezier(1)], ids=str)
def test_penalty_of_more_vertices_is_that_of_a_random_pair(shape):
    family = Subspace(Small, shape, seed=0)
    pairs = list(itertools.combinations(range(shape.vertices), 2))
    values = torch.stack([exact_cos2(family, j, k, WEIGHTS) for j, k in pairs])
    with torch.no_grad():
        draws = torch.stack([family.penalty() for _ in range(1500)])
    nearest = (draws[:, None] - values).abs()
    assert nearest.amin(1).max() < 1e-12
    counts = nearest.argmin(1).bincount(minlength=len(pairs))
    assert stats.chisquare(counts.numpy()).pvalue > 0.01  # so its mean is the paper's expectation


def test_no_penalty():
    family = Subspace(Small, Simplex(3))
    penalty = family.penalty(beta=0)
    assert penalty == 0
    assert penalty.shape == ()
    assert not penalty.requires_grad
    norms_only = Subspace(lambda: nn.BatchNorm1d(3), Line())
    assert norms_only.penalty() == 0
    assert family.feature_similarity(family(images(), features="head")) == 0  # of one group
    same = Subspace(Small, Simplex(3), init="point", offset=0.0)
    assert same.penalty().item() == pytest.approx(1)


def test_penalty_and_distances_look_where_the_predicate_says():
    family = Subspace(Small, Line(), penalised=lambda name, parameter: name.startswith("conv"))
    names = ("conv.weight", "conv.bias")
    torch.testing.assert_close(family.penalty(), exact_cos2(family, 0, 1, names))
    torch.testing.assert_close(family.distances().cos2[0, 1], exact_cos2(family, 0, 1, names))
    family.penalty().backward()
    penalised = [group.name for group in family.layout.groups if group.penalised]
    assert {name for name, omega in family.omega.items() if omega.grad is not None} == set(penalised)
    everything = Subspace(Small, Line(), penalised=lambda name, parameter: True)
    torch.testing.assert_close(everything.penalty(), exact_cos2(everything, 0, 1, tuple(everything.vertex(0))))


# Parameter groups


def test_parameter_groups_hold_each_vertex_once():
    family = Subspace(Small, Simplex(3))
    groups = family.parameter_groups(others={"weight_decay": 0.0, "lr": 3})
    assert [len(group["params"]) for group in groups] == [1, 1]
    assert groups[0]["params"][0] is family.omega["weights"]
    assert groups[1] == {"params": [family.omega["others"]], "weight_decay": 0.0, "lr": 3}
    assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in family.parameters()}


# Several samples and features


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize(("batch", "samples"), [(4, 2), (5, 2), (5, 3), (2, 5), (5, 1)])
def test_samples_are_groups_at_their_own_points(batch, samples, layerwise):
    family = Subspace(Small, Simplex(3), layerwise, seed=3)
    hand = copy.deepcopy(family)
    x = images(batch)
    output = family(x, samples=samples)
    alphas = [hand.sample() for _ in range(min(samples, batch))]
    parts = x.tensor_split(len(alphas))
    expected = torch.cat([hand(part, alpha=alpha) for part, alpha in zip(parts, alphas, strict=True)])
    assert torch.equal(output, expected)
    loss_of(output).backward()
    loss_of(expected).backward()
    for omega, other in zip(family.parameters(), hand.parameters(), strict=True):
        assert torch.equal(omega.grad, other.grad)
    assert torch.equal(family.rng, hand.rng)
    assert torch.equal(family.template.norm.running_mean, hand.template.norm.running_mean)


class Deep(nn.Module):
    """Runs `body` twice, `unused` never."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(input=self.body(self.body(x).tanh()).tanh())


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_features_are_what_enters_the_named_module(samples):
    family = Subspace(Deep, Line(), seed=0)
    x = torch.randn(6, 4)
    for name in ("head", "body", ""):
        sampled = family(x, samples=samples, features=name)
        parts = x.tensor_split(samples)
        assert len(sampled.alphas) == len(sampled.features) == samples
        for alpha, features, part in zip(sampled.alphas, sampled.features, parts, strict=True):
            network = family.at(alpha)
            once = network.body(part).tanh()
            expected = {"": part, "body": once, "head": network.body(once).tanh()}  # the last call of a run
            torch.testing.assert_close(features, expected[name])
        heads = [family.at(alpha)(part) for alpha, part in zip(sampled.alphas, parts, strict=True)]
        torch.testing.assert_close(sampled.output, torch.cat(heads))


def test_features_of_an_unknown_module():
    family = Subspace(Small, Line(), seed=0)
    before = family.rng.clone()
    with pytest.raises(KeyError, match=r"features='heda': no module of that name in the network; did you mean 'head'"):
        family(images(), features="heda")
    assert torch.equal(family.rng, before)


@pytest.mark.parametrize("shape", [Line(), Bezier(2), Simplex(3)], ids=str)
@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize(("batch", "samples"), [(4, 2), (5, 2), (5, 4)])
def test_feature_similarity_is_the_formula(shape, layerwise, batch, samples):
    family = Subspace(Small, shape, layerwise, seed=1)
    sampled = family(images(batch), samples=samples, features="head")
    shared = batch // samples
    values = {}
    for j, k in itertools.permutations(range(samples), 2):
        a, b = (sampled.features[i][:shared].flatten() for i in (j, k))
        gap = (sampled.alphas[j] - sampled.alphas[k]).abs()
        gap = gap.sum(-1) / 2 if shape.point else gap
        values[j, k] = (gap.mean() * (a @ b) ** 2 / ((a @ a) * (b @ b))).item()
    found = [family.feature_similarity(sampled, strength=3.0).item() / 3 for _ in range(40)]
    for value in found:
        assert min(abs(value - exact) for exact in values.values()) < 1e-12
    met = {min(values, key=lambda pair: abs(values[pair] - value)) for value in found}
    assert len({frozenset(pair) for pair in met}) == samples * (samples - 1) // 2  # every pair is drawn


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda f: f.penalty(float("nan")), ValueError, "beta=nan.*at least 0"),
        (lambda f: f.penalty(-1), ValueError, "beta=-1.*at least 0"),
        (lambda f: f.penalty("1"), ValueError, "beta='1'.*a number"),
        (lambda f: f.feature_similarity(torch.zeros(2)), TypeError, "feature_similarity.Tensor.: expected family"),
        (lambda f: f.ensemble(0.5), TypeError, "expected several points"),
        (lambda f: f(torch.zeros(2, 3), samples=2.5), ValueError, "samples=2.5: expected an integer"),
        (lambda f: Subspace.from_modules(f.midpoint(), Line()), TypeError, "expected a list of modules"),
        (lambda f: f.sample(per="channel"), ArgumentError, "per='channel': expected one of"),
        (lambda f: f.vertex(2), IndexError, r"vertex\(2\): Line\(\) has vertices 0 to 1"),
        (lambda f: f(torch.zeros(2, 3), samples=2, alpha=0.5), ValueError, "samples=2: .* and no alpha"),
        (lambda f: f.parameter_groups(other={"lr": 1}), ArgumentError, r"\(other={'lr': 1}\): .*did you mean 'others'"),
        (lambda f: Subspace(Deep, Line())(torch.zeros(3, 4), features="unused"), ValueError, "without calling that"),
    ],
)
def test_more_wrong_calls(call, kind, words):
    family = Subspace(lambda: nn.Linear(3, 2), Line())
    with pytest.raises(kind, match=words):
        call(family)
