import copy
import itertools
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from helpers import Small, Tied, assert_same_state, images, snapshot
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.testing import assert_close

from subspaces import Bezier, Line, Point, Simplex, Subspace, load, recalibrate, save


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


def test_networks_that_the_factory_keeps_are_not_changed():
    kept = [Small(), Small()]
    before = [snapshot(module) for module in kept]
    supply = iter(kept)
    family = Subspace(lambda: next(supply), Line())
    single = Subspace(lambda: kept[0], Line(), init="point")
    for members in (family, single):
        members(images()).sum().backward()
    for module, state in zip(kept, before, strict=True):
        assert_same_state(module, state)
        assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize("network", [Small, Small()], ids=["factory", "module"])
def test_all_vertices_start_at_one_point(network):
    family = Subspace(network, Simplex(4), init="point", offset=0.0)
    for index in range(1, 4):
        first, other = family.vertex(0), family.vertex(index)
        assert all(torch.equal(first[name], other[name]) for name in first)
    assert family.distances().l2.eq(0).all()
    if isinstance(network, nn.Module):
        assert_vertex_is(family, 0, network)


@pytest.mark.parametrize(
    "make", [lambda: Subspace(Small(), Simplex(3)), lambda: Subspace(Small, Simplex(3), init="point")]
)
def test_a_module_and_point_set_the_vertices_a_little_apart(make):
    torch.manual_seed(0)
    module = Small()
    torch.manual_seed(0)
    family = make()
    for index in range(3):
        vertex = family.vertex(index)
        for name, value in module.named_parameters():
            weight = value.detach()
            size = 0.1 * math.sqrt(2 / 3) * weight.norm() if weight.ndim > 1 else torch.zeros_like(weight.norm())
            assert_close((vertex[name] - weight).norm(), size)
    assert family.distances().cos2[0, 1] == pytest.approx(((1 - 0.01 / 3) / (1 + 0.01 * 2 / 3)) ** 2)
    for name, value in family.midpoint().named_parameters():
        assert_close(value, module.get_parameter(name))


def test_one_vertex_is_the_module_itself():
    module = Small()
    assert_vertex_is(Subspace(module, Point()), 0, module)


class Residual(nn.Module):
    """Initialised as torchvision's ResNets are: Kaiming's convolutions, and a zero at the end of a residual path."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.again = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.norm, self.head = nn.BatchNorm2d(64), nn.Linear(64, 4)
        for part in (self.conv, self.again):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.norm.weight)
        nn.init.normal_(self.head.weight, std=0.02 / math.sqrt(2 * 12))  # as GPT-2 scales the end of a residual path
        nn.init.zeros_(self.head.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        return self.head((x + self.norm(self.again(x.relu()))).mean((2, 3)))


def rms(value: torch.Tensor) -> float:
    return value.square().mean().sqrt().item()


def test_a_factory_draws_every_vertex_by_the_networks_own_initialisation():
    torch.manual_seed(0)
    family = Subspace(Residual, Simplex(3))
    for vertex in map(family.vertex, range(3)):
        assert rms(vertex["again.weight"]) == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.05)
        assert rms(vertex["head.weight"]) == pytest.approx(0.02 / math.sqrt(24), rel=0.15)
        assert not vertex["norm.weight"].any()
        assert not vertex["head.bias"].any()
    assert family.distances().cos2[0, 1] < 0.01


def test_a_module_keeps_its_initialisation_at_every_vertex():
    module = Residual()
    family = Subspace(module, Line())
    for vertex in map(family.vertex, range(2)):
        for name, weight in module.named_parameters():
            assert rms(vertex[name]) == pytest.approx(
                rms(weight.detach()) * (math.sqrt(1.005) if weight.ndim > 1 else 1)
            )
        assert not vertex["norm.weight"].any()


class Adapted(nn.Module):
    """A frozen layer with an adapter that begins as nothing, as LoRA does."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 5).requires_grad_(False)
        self.a, self.b = nn.Linear(6, 2, bias=False), nn.Linear(2, 5, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.b(self.a(x))


def test_all_vertices_of_adapters_begin_at_the_base():
    module, x = Adapted(), torch.randn(3, 6)
    family = Subspace(module, Simplex(3))
    assert not torch.equal(family.vertex(0)["a.weight"], family.vertex(1)["a.weight"])
    for alpha in (*torch.eye(3), [0.2, 0.3, 0.5]):
        assert torch.equal(family(x, alpha=alpha), module(x))


def test_complex_weights_are_set_apart_too():
    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter = nn.Parameter(torch.randn(3, 5, dtype=torch.complex64))

    module = Filter()
    vertex = Subspace(module, Line()).vertex(1)["filter"]
    assert (vertex - module.filter.detach()).norm().item() == pytest.approx(
        0.1 / math.sqrt(2) * module.filter.detach().norm().item()
    )


def test_module_is_not_changed():
    module = Small().eval()
    module.conv.requires_grad_(False)
    before = snapshot(module)
    family = Subspace(module, Line()).train()
    optimizer = torch.optim.SGD(family.parameters(), lr=1)
    family(images()).sum().backward()
    optimizer.step()
    family.vertex(0)["head.bias"].fill_(9)
    with torch.no_grad():
        family.midpoint().conv.weight.fill_(9)
    assert_same_state(module, before)
    assert not module.training
    assert [p.requires_grad for p in module.parameters()] == [False, False, True, True, True, True]
    assert all(p.grad is None for p in module.parameters())


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


def test_factory_that_returns_the_same_module_twice():
    module = Small()
    before = snapshot(module)
    with pytest.raises(ValueError, match="factory returned the same module twice: it must make a new one at each call"):
        Subspace(lambda: module, Line())
    two = itertools.cycle([module, Small()])
    with pytest.raises(ValueError, match="same module twice"):
        Subspace(lambda: next(two), Simplex(3))
    assert_same_state(module, before)


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


def test_from_modules_of_one_network_twice():
    module = Small()
    family = Subspace.from_modules([module, module], Line())
    assert_vertex_is(family, 1, module)


def test_from_modules_keeps_ties():
    family = Subspace.from_modules([Tied(), Tied()], Line())
    network = family.at(0.3)
    assert network.output.weight is network.embedding.weight


def test_from_modules_in_another_memory_order():
    rows, channels = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    for modules in ([rows, channels], [channels, rows]):
        family = Subspace.from_modules(modules, Line())
        assert_vertex_is(family, 0, modules[0])
        assert_vertex_is(family, 1, modules[1])


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
        (
            lambda: more("parameter"),
            r"parameter count is \(1,\) .* trainable, expected none of that name",
        ),
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
    with pytest.raises(ValueError, match=r"frozen parameter head.weight of network 1 differs .*make it trainable"):
        Subspace.from_modules(modules, Line())
    modules[1].head.load_state_dict(modules[0].head.state_dict())
    family = Subspace.from_modules(modules, Line())
    assert torch.equal(family.at(0.7).head.weight, modules[0].head.weight)


def test_frozen_parts_that_differ_between_calls_of_a_factory_are_refused():
    def make() -> nn.Module:
        network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        network[0].requires_grad_(False)
        return network

    with pytest.raises(ValueError, match=r"frozen parameter 0\.weight of network 1 differs from network 0: frozen"):
        Subspace(make, Line())
    base = nn.Linear(4, 4).requires_grad_(False)
    family = Subspace(lambda: nn.Sequential(copy.deepcopy(base), nn.Linear(4, 2)), Line())
    assert torch.equal(family.template[0].weight, base.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [Line(), Simplex(3), Bezier(1)], ids=str)
def test_offsets_are_of_the_given_size_around_the_module(shape, dtype):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(2, 4, bias=False), nn.Linear(6, 5, bias=False)
    )
    network = network.to(dtype)
    network[2].weight.data.zero_()
    exact = 0.02 if dtype == torch.bfloat16 else 1e-5
    family = Subspace(network, shape, init="point", offset=0.1, seed=0)
    vertices = [family.vertex(index) for index in range(shape.vertices)]
    for name, weight in network.named_parameters():
        steps = torch.stack([(vertex[name].double() - weight.double()).flatten() for vertex in vertices])
        size = 0.1 * weight.detach().double().norm() if weight.ndim > 1 else 0.0
        apart = 2**0.5 * size * (1 - torch.eye(len(vertices), dtype=torch.float64))
        assert_close(torch.cdist(steps, steps), apart, rtol=exact, atol=exact)
        middle = shape.coefficients(shape.midpoint().double())
        assert (middle @ steps).abs().max() <= exact  # the midpoint is the module
        assert (steps @ weight.detach().double().flatten()).abs().max() <= exact
    again = Subspace(network, shape, init="point", offset=0.1, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(family.parameters(), again.parameters(), strict=True))


def hooked(parameter: nn.Parameter, kind: str) -> None:
    if kind == "register_hook":
        parameter.register_hook(lambda gradient: 2 * gradient)
    else:
        parameter.register_post_accumulate_grad_hook(lambda parameter: None)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_gradient_hooks_of_parameters_are_refused(kind):
    module = Small()
    hooked(module.head.weight, kind)
    for make in (
        lambda: Subspace(module, Line()),
        lambda: Subspace(lambda: module, Line(), init="point"),
        lambda: Subspace.from_modules([Small(), module], Line()),
    ):
        with pytest.raises(ValueError, match=r"'head.weight' has a gradient hook.*family.omega.*family.point\(\)"):
            make()
    with pytest.raises(ValueError, match="gradient hook"):
        Subspace(hooked_network(kind), Line())
    module.head.requires_grad_(False)
    assert Subspace(module, Line()).layers == ("conv", "norm")


def hooked_network(kind: str):
    def make() -> nn.Module:
        module = Small()
        hooked(module.conv.weight, kind)
        return module

    return make


class Recorder:
    """Counts the calls of its methods."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def forward(self, *_: object) -> None:
        self.calls.append("forward")

    def backward(self, *_: object) -> None:
        self.calls.append("backward")

    def before(self, *_: object) -> None:
        self.calls.append("before")

    def back(self, *_: object) -> None:
        self.calls.append("back")


def test_hooks_of_modules_work_through_a_family_and_its_networks():
    recorder, doubled = Recorder(), []
    module = Small()
    module.head.register_forward_hook(recorder.forward)
    module.head.register_forward_pre_hook(recorder.before)
    module.head.register_full_backward_hook(recorder.backward)
    module.head.register_full_backward_pre_hook(recorder.back)
    module.conv.register_forward_hook(lambda part, args, output: doubled.append(output) or 2 * output)
    family = Subspace(module, Line())
    family(images()).sum().backward()
    assert recorder.calls == ["before", "forward", "back", "backward"]
    assert len(doubled) == 1
    recorder.calls.clear()
    family.midpoint()(images())
    copy.deepcopy(family)(images())
    assert recorder.calls == ["before", "forward"] * 2
    recalibrate(family, [images()]).eval()
    assert torch.equal(family(images(), alpha=0.3), family.at(0.3).eval()(images()))


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, nn.utils.spectral_norm], ids=["new", "old"])
def test_spectral_norm_is_refused_where_its_weight_is_trained(norm):
    module = nn.Sequential(norm(nn.Linear(3, 3)), nn.Linear(3, 2))
    for network in (module, lambda: norm(nn.Linear(3, 3))):
        with pytest.raises(ValueError, match=r"has spectral_norm, .* belong to no point .* or use weight_norm"):
            Subspace(network, Line())
    module[0].requires_grad_(False)
    assert Subspace(module, Line()).layers == ("1",)


def normed() -> nn.Module:
    network = nn.Sequential(nn.utils.weight_norm(nn.Linear(5, 4)), nn.BatchNorm1d(4), nn.Linear(4, 3))
    return prune.l1_unstructured(network[2], "weight", 0.5) and network


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_weight_norm_and_pruning_by_hooks(tmp_path):
    network, x = normed(), torch.randn(8, 5)
    network(x)
    mask = network[2].weight_mask.clone()
    families = Subspace(network, Simplex(3)), Subspace.from_modules([network, network], Line())
    for family in families:
        family(x).square().sum().backward()
        torch.optim.SGD(family.parameters(), lr=0.1).step()
        cut = family.midpoint()
        before = [part.weight.clone() for part in (cut[0], cut[2])]  # right without a call
        expected = recalibrate(cut, [x]).eval()(x)
        assert all(torch.equal(a, part.weight) for a, part in zip(before, (cut[0], cut[2]), strict=True))
        assert torch.equal(cut[2].weight == 0, mask == 0)
        assert torch.equal(recalibrate(family, [x]).eval()(x), expected)
        save(family, tmp_path / "family.safetensors")
        for again in (load(tmp_path / "family.safetensors", normed), pickle.loads(pickle.dumps(family))):
            assert torch.equal(again.eval()(x), expected)
        nn.utils.remove_weight_norm(cut[0])
        prune.remove(cut[2], "weight")
        assert_close(cut(x), expected)


def test_networks_that_are_pruned_in_other_places_are_refused():
    with pytest.raises(
        ValueError, match=r"buffer weight_mask of network 1 differs .* give all networks the same values"
    ):
        Subspace(lambda: prune.l1_unstructured(nn.Linear(6, 4), "weight", 0.5), Line())


def init_weights(part: nn.Module) -> None:
    if isinstance(part, (nn.Conv2d, nn.Linear)):
        nn.init.normal_(part.weight, std=0.5)
        part.bias.data = torch.ones_like(part.bias)
    elif isinstance(part, nn.BatchNorm2d):
        part.reset_parameters()


@pytest.mark.parametrize("held", [False, True], ids=["family", "parent"])
def test_apply_initialises_every_vertex(held):
    torch.manual_seed(0)
    family = Subspace(Small(), Simplex(3))
    optimizer = torch.optim.SGD(family.parameters(), lr=0.1)
    family(images())
    whole = nn.Sequential(family) if held else family
    assert whole.apply(init_weights) is whole
    for vertex in map(family.vertex, range(3)):
        assert vertex["conv.weight"].std() == pytest.approx(0.5, rel=0.2)
        assert vertex["head.bias"].eq(1).all()
        assert vertex["norm.weight"].eq(1).all()
    assert family.distances().cos2[0, 1] < 0.1
    assert family.template.norm.num_batches_tracked == 0
    assert family.is_calibrated
    assert not list(family.template.parameters())
    before = snapshot(family)
    family(images()).sum().backward()
    optimizer.step()
    assert not torch.equal(before["omega.weights"], family.omega["weights"])


def test_apply_keeps_what_a_function_sets_beside_weights():
    family = Subspace(Small, Line())
    family(images())
    family.apply(lambda part: setattr(part, "momentum", 0.5))
    assert family.template.norm.momentum == 0.5
    recalibrate(family, [images()])
    family.apply(lambda part: None)
    assert family.is_calibrated
    family.apply(lambda part: part.weight.mul_(2) if isinstance(part, nn.Linear) else None)
    assert not family.is_calibrated


def test_apply_to_tied_and_recurrent_networks():
    tied = Subspace(Tied, Line()).apply(lambda part: isinstance(part, nn.Embedding) and nn.init.ones_(part.weight))
    network = tied.midpoint()
    assert network.output.weight is network.embedding.weight
    assert network.output.weight.eq(1).all()
    recurrent = Subspace(lambda: nn.LSTM(3, 4), Line())
    recurrent.apply(lambda part: [nn.init.zeros_(p) for p in part.parameters()])
    assert not recurrent(torch.randn(5, 3))[0].any()
    assert not list(recurrent.template.parameters())


def drawing_all(part: nn.Module) -> None:
    for parameter in part.parameters(recurse=False):
        nn.init.normal_(parameter)


def shortened(part: nn.Module) -> None:
    if isinstance(part, nn.Linear):
        part.bias = nn.Parameter(torch.zeros(1, dtype=torch.float64))


def moving(part: nn.Module) -> None:
    if isinstance(part, nn.BatchNorm2d):
        part.running_mean.normal_()


def failing(part: nn.Module) -> None:
    nn.init.ones_(part.running_mean) if isinstance(part, nn.BatchNorm2d) else drawing_all(part)
    if isinstance(part, nn.Linear):
        raise RuntimeError("a function that fails")


def normalised(part: nn.Module) -> None:
    if isinstance(part, nn.Linear):
        parametrizations.weight_norm(part)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (drawing_all, r"frozen parameter conv.weight is shared by all vertices.*leave it alone"),
        (moving, r"buffer norm.running_mean is shared by all vertices"),
        (shortened, r"head.bias is \(1,\) torch.float64 .*, expected \(2,\)"),
        (lambda part: part.requires_grad_(False), r"changed which parameters there are, or are trained: .* frozen"),
        (
            lambda part: isinstance(part, nn.Linear) and parametrizations.weight_norm(part) and None,
            "changed which parameters there are",
        ),
        (failing, "a function that fails"),
    ],
)
def test_apply_that_cannot_be_done_changes_nothing(function, words):
    module = Small()
    module.conv.requires_grad_(False)
    family = Subspace(module, Line())
    family(images())
    before, parts = snapshot(family), [type(part) for part in family.modules()]
    with pytest.raises((ValueError, RuntimeError), match=words):
        family.apply(function)
    assert_same_state(family, before)
    assert [type(part) for part in family.modules()] == parts
    assert [p.requires_grad for p in family.template.parameters()] == [False, False]
    family(images()).sum().backward()


def pair_of(*modules: nn.Module) -> Callable[[], Subspace]:
    return lambda: Subspace.from_modules(modules, Line())


def widening() -> Callable[[], nn.Module]:
    widths = itertools.count(2)
    return lambda: nn.Linear(next(widths), 2)


TIED = "trainable, tied to embedding.weight"
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Subspace(dict, Line()), r"the factory returned a dict: expected an nn.Module"),
    (lambda: Subspace(widening(), Line()), r"network 1 does not match network 0: parameter weight is \(2, 3\)"),
    (lambda: Subspace(None, Line()), "got a NoneType: expected an nn.Module or a function"),
    (lambda: Subspace([nn.Linear(2, 2)], Line()), "got a list: expected an nn.Module or a function"),
    (lambda: Subspace(Small, Line(), init="same"), "init='same': expected 'independent' or 'point'"),
    (lambda: Subspace(Small, Line(), init=3), "init=3: expected 'independent' or 'point'"),
    (
        lambda: Subspace(Small(), Line(), init="independent"),
        r"init='independent' with a module, .* pass a function that makes the network",
    ),
    (lambda: Subspace(Small, Line(), init="point", offset=-1.0), r"offset=-1.0: expected a"),
    (lambda: Subspace(Small, Line(), init="point", offset=math.nan), r"offset=nan: expected a"),
    (lambda: Subspace(Small, Line(), init="point", offset="0.1"), r"offset='0.1': expected a"),
    (lambda: Subspace(Small, Line(), offset=0.1), r"offset=0.1: expected a"),
    (lambda: Subspace(nn.Sequential(nn.Embedding(5, 2, sparse=True)), Line()), "'0' has sparse.*pass sparse=False"),
    (lambda: Subspace(nn.EmbeddingBag(5, 2, sparse=True), Line()), "has sparse.*pass sparse=False"),
    (lambda: Subspace(nn.Sequential(nn.Embedding(5, 2, max_norm=1)), Line()), "'0' has max_norm, .*pass max_norm=None"),
    (lambda: Subspace(nn.EmbeddingBag(5, 2, max_norm=1), Line()), "has max_norm, .*pass max_norm=None"),
    (lambda: Subspace(nn.ReLU(), Line()), "no trainable parameters"),
    (lambda: Subspace(nn.Linear(2, 2).requires_grad_(False), Line()), "no trainable parameters"),
    (pair_of(nn.Linear(2, 2), nn.Linear(3, 2)), r"parameter weight is \(2, 3\) .*, expected \(2, 2\)"),
    (pair_of(nn.Linear(2, 2), nn.Linear(2, 2, bias=False)), "parameter bias is missing"),
    (pair_of(Tied(), Tied(tie=False)), rf"output.weight is .*, trainable, expected .*, {TIED};"),
    (pair_of(Tied(tie=False), Tied()), rf"output.weight is .*, {TIED}, expected .*, trainable;"),
    (pair_of(), r"from_modules got 0 networks: Line\(\) has 2 vertices"),
    (pair_of(Small()), r"from_modules got 1 networks: Line\(\) has 2 vertices"),
    (pair_of(Small(), {}), r"network 1 is a dict: expected an nn.Module"),
    (lambda: Subspace.from_modules([Small(), Small()], Line(), init="point"), "init"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_cannot_be_a_start_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call()
