import copy
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from helpers import Small, Tied, assert_same_state, images, snapshot
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.testing import assert_close

from subspaces import Bezier, Line, Simplex, Subspace, recalibrate


def assert_vertex_is(family: Subspace, index: int, module: nn.Module) -> None:
    vertex = family.vertex(index)
    expected = dict(module.named_parameters(remove_duplicate=False))
    assert vertex.keys() == expected.keys()
    assert all(torch.equal(vertex[name], expected[name]) for name in expected)


@pytest.mark.parametrize("shape", [Line(), Bezier(2), Simplex(3)], ids=str)
def test_factory_makes_one_network_per_vertex(shape):
    made = []

    def make() -> nn.Module:
        made.append(Small())
        return made[-1]

    family = Subspace(make, shape)
    assert len(made) == shape.vertices
    for index, module in enumerate(made):
        assert_vertex_is(family, index, module)
    for j, k in itertools.combinations(range(shape.vertices), 2):
        assert not torch.equal(family.vertex(j)["conv.weight"], family.vertex(k)["conv.weight"])


def test_frozen_parameters_and_buffers_are_the_modules_own():
    module = Small()
    module.conv.requires_grad_(False)
    module.norm.running_mean.fill_(3)
    family = Subspace(module, Line())
    for point in (0.0, 0.5, 1.0):
        network = family.at(point)
        assert torch.equal(network.conv.weight, module.conv.weight)
        assert torch.equal(network.norm.running_mean, module.norm.running_mean)
        assert not network.conv.weight.requires_grad
        assert network.head.weight.requires_grad


@pytest.mark.parametrize("shape", [Line, "line", None, 2])
def test_not_a_shape(shape):
    with pytest.raises(TypeError, match=r"shape=.*: expected Line\(\), Bezier\(bends\), Simplex\(m\)"):
        Subspace(Small, shape)
    with pytest.raises(TypeError, match=r"shape=.*: expected Line\(\), Bezier\(bends\), Simplex\(m\)"):
        Subspace.from_modules([Small(), Small()], shape)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize(
    "make", [lambda: nn.LazyLinear(2), lambda: nn.Sequential(nn.Linear(2, 2), nn.LazyBatchNorm1d(affine=False))]
)
def test_lazy_modules(make):
    for ask in (
        lambda: Subspace(make, Line()),
        lambda: Subspace(make(), Line()),
        lambda: Subspace.from_modules([make(), make()], Line()),
    ):
        with pytest.raises(ValueError, match="lazy parameters without a shape: run it once on a batch first"):
            ask()
    ready = make()
    ready(torch.randn(4, 2))
    assert Subspace(ready, Line()).at(0.3)(torch.ones(3, 2)).shape == (3, 2)


def test_from_modules_spans_them_and_copies_them():
    modules = [Small() for _ in range(3)]
    modules[0].norm.running_var.fill_(5)
    before = [snapshot(module) for module in modules]
    family = Subspace.from_modules(modules, Bezier(), layerwise=True, seed=3)
    for index, module in enumerate(modules):
        assert_vertex_is(family, index, module)
    assert family.layerwise
    assert family.midpoint().norm.running_var.eq(5).all()
    family(images()).sum().backward()
    for index in range(3):
        family.vertex(index)["head.bias"].fill_(1)
    for module, state in zip(modules, before, strict=True):
        assert_same_state(module, state)


def frozen_head() -> nn.Module:
    module = Small()
    module.head.requires_grad_(False)
    return module


def more(kind: str) -> nn.Module:
    module = Small()
    if kind == "buffer":
        module.register_buffer("count", torch.zeros(1))
    else:
        module.register_parameter("count", nn.Parameter(torch.zeros(1)))
    return module


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: more("parameter"), r"parameter count is \(1,\) .* trainable, expected none of that name"),
        (lambda: more("buffer"), r"buffer count is \(1,\) torch.float32, expected none of that name"),
        (lambda: nn.Sequential(Small()), r"parameter conv.weight is missing, expected \(3, 4, 3, 3\)"),
        (lambda: Small().float(), r"is .*torch.float32 on cpu, trainable, expected .*torch.float64 on cpu, trainable"),
        (frozen_head, r"head.weight is .* frozen, expected .* trainable"),
        (lambda: Small().to("meta"), r"conv.weight is .* on meta, trainable, expected .* on cpu"),
    ],
)
def test_from_modules_that_do_not_match(make, expected):
    modules = [Small(), Small(), make()]
    before = [snapshot(module) for module in modules[:2]]
    with pytest.raises(ValueError, match=rf"network 2 does not match network 0: .*{expected}.*same architecture"):
        Subspace.from_modules(modules, Simplex(3))
    for module, state in zip(modules, before, strict=False):
        assert_same_state(module, state)


def test_from_modules_with_other_frozen_values():
    modules = [frozen_head(), frozen_head()]
    for make in (lambda: Subspace.from_modules(modules, Line()), lambda: Subspace(frozen_head, Line())):
        with pytest.raises(ValueError, match=r"frozen parameter head.weight of network 1 differs .*make it trainable"):
            make()
    modules[1].head.load_state_dict(modules[0].head.state_dict())
    family = Subspace.from_modules(modules, Line())
    assert torch.equal(family.at(0.7).head.weight, modules[0].head.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [Line(), Simplex(3), Bezier(1)], ids=str)
def test_offsets_are_of_the_given_size_around_the_module(shape, dtype):
    torch.manual_seed(0)
    parts = [*(0.3 * torch.randn(size, dtype=dtype) for size in [(6, 8), (6,), (5, 6)]), torch.zeros(4, 2, dtype=dtype)]
    network = nn.ParameterList(parts)
    exact = 0.02 if dtype == torch.bfloat16 else 1e-5
    family = Subspace(network, shape, init="point", offset=0.1, seed=0)

    def row(value: torch.Tensor) -> torch.Tensor:
        return (torch.view_as_real(value) if value.is_complex() else value).detach().double().flatten()

    for name, weight in network.named_parameters():
        steps = torch.stack([row(family.vertex(index)[name]) - row(weight) for index in range(shape.vertices)])
        size = 0.1 * row(weight).norm() if weight.ndim > 1 else 0.0
        apart = 2**0.5 * size * (1 - torch.eye(len(steps), dtype=torch.float64))
        assert_close(torch.cdist(steps, steps), apart, rtol=exact, atol=exact)
        middle = shape.coefficients(shape.midpoint().double())
        assert (middle @ steps).abs().max() <= exact  # the midpoint is the module
        assert (steps @ row(weight)).abs().max() <= exact
    again = Subspace(network, shape, init="point", offset=0.1, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(family.parameters(), again.parameters(), strict=True))


def test_hooks_of_modules_work_through_a_family_and_its_networks():
    calls, doubled, module = [], [], Small()
    module.head.register_forward_hook(lambda *_: calls.append("forward"))
    module.head.register_forward_pre_hook(lambda *_: calls.append("before"))
    module.head.register_full_backward_hook(lambda *_: calls.append("backward"))
    module.head.register_full_backward_pre_hook(lambda *_: calls.append("back"))
    module.conv.register_forward_hook(lambda part, args, output: doubled.append(output) or 2 * output)
    family = Subspace(module, Line())
    family(images()).sum().backward()
    assert calls == ["before", "forward", "back", "backward"]
    assert len(doubled) == 1
    calls.clear()
    family.midpoint()(images())
    copy.deepcopy(family)(images())
    assert calls == ["before", "forward"] * 2
    recalibrate(family, [images()]).eval()
    assert torch.equal(family(images(), alpha=0.3), family.at(0.3).eval()(images()))


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("computed", "words"),
    [
        (parametrizations.spectral_norm, r"has spectral_norm, .* belong to no point .* or use weight_norm"),
        (nn.utils.spectral_norm, r"\(SpectralNorm\) computes weights of part '0' before each call"),
        (nn.utils.weight_norm, r"\(WeightNorm\) .* use torch.nn.utils.parametrizations.weight_norm"),
        (lambda part: prune.l1_unstructured(part, "weight", 0.5), r"\(L1Unstructured\) .* prune.remove first"),
    ],
)
def test_weights_that_are_computed_before_each_call_are_refused_where_they_are_trained(computed, words):
    def make() -> nn.Module:
        return nn.Sequential(computed(nn.Linear(3, 3)), nn.Linear(3, 2))

    module = make()
    for start in (lambda: Subspace(module, Line()), lambda: Subspace(make, Line())):
        with pytest.raises(ValueError, match=words):
            start()
    module[0].requires_grad_(False)
    family = Subspace(module, Line())
    assert family.layers == ("1",)
    x = torch.randn(4, 3)
    assert_close(family.eval()(x), family.midpoint()(x))


def test_initialising_a_family_by_apply_is_refused():
    family = Subspace(Small, Line())
    for module in (family, nn.Sequential(family)):
        with pytest.raises(ValueError, match="initialise the weights in the function that makes the network"):
            module.apply(lambda part: None)


def pair_of(*modules: nn.Module) -> Callable[[], Subspace]:
    return lambda: Subspace.from_modules(modules, Line())


def widening() -> Callable[[], nn.Module]:
    widths = itertools.count(2)
    return lambda: nn.Linear(next(widths), 2)


TIED = "trainable, tied to embedding.weight"
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Subspace(dict, Line()), r"the factory returned \{\}: expected an nn.Module"),
    (lambda: Subspace(itertools.repeat(Small()).__next__, Line()), "the same module twice: it must make a new one at"),
    (lambda: Subspace(widening(), Line()), r"network 1 does not match network 0: parameter weight is \(2, 3\)"),
    (lambda: Subspace(None, Line()), "got None: expected an nn.Module, or a function"),
    (lambda: Subspace([nn.Linear(2, 2)], Line()), r"got \[Linear.*expected an nn.Module, or a function"),
    (lambda: Subspace(Small, Line(), init="same"), "init='same': expected 'independent' or 'point'"),
    (
        lambda: Subspace(Small(), Line(), init="independent"),
        "with a module, .* pass a function that makes",
    ),
    (lambda: Subspace(Small, Line(), init="point", offset=-1.0), r"offset=-1.0: expected a"),
    (lambda: Subspace(Small, Line(), init="point", offset=math.nan), r"offset=nan: expected a"),
    (lambda: Subspace(Small, Line(), offset=0.1), r"offset=0.1: expected a"),
    (lambda: Subspace(nn.Sequential(nn.Embedding(5, 2, sparse=True)), Line()), "'0' has sparse.*pass sparse=False"),
    (lambda: Subspace(nn.Sequential(nn.Embedding(5, 2, max_norm=1)), Line()), "'0' has .*max_norm=None"),
    (lambda: Subspace(nn.ReLU(), Line()), "no trainable parameters"),
    (
        lambda: Subspace(nn.Sequential(nn.InstanceNorm1d(2, affine=True, track_running_stats=True)), Line()),
        "0 is an InstanceNorm1d with running statistics.*track_running_stats=False",
    ),
    (pair_of(Tied(), Tied(tie=False)), rf"output.weight is .*, trainable, expected .*, {TIED};"),
    (pair_of(Tied(tie=False), Tied()), rf"output.weight is .*, {TIED}, expected .*, trainable;"),
    (pair_of(), r"from_modules got 0 networks \(\): Line\(\) has 2 vertices"),
    (pair_of(Small(), {}), r"networks \(Small, dict\): .*expected an nn.Module"),
    (lambda: Subspace.from_modules([Small(), Small()], Line(), init="point"), "init"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_cannot_be_a_start_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call()


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_gradient_hooks_of_parameters_are_refused(kind):
    module = Small()
    getattr(module.head.weight, kind)(lambda value: None)
    for make in (
        lambda: Subspace(module, Line()),
        lambda: Subspace(lambda: module, Line(), init="point"),
        lambda: Subspace.from_modules([Small(), module], Line()),
    ):
        with pytest.raises(ValueError, match=r"'head.weight' has a gradient hook.*family.omega.*family.point\(\)"):
            make()
    module.head.requires_grad_(False)
    assert Subspace(module, Line()).layers == ("conv", "norm")
