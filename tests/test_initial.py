import copy
import itertools
import math

import pytest
import torch
from helpers import Small, Tied, assert_same_state, images, snapshot
from torch import nn
from torch.testing import assert_close

from subspaces import Bezier, Line, Simplex, Subspace


class Bare(nn.Module):
    """A part that owns a parameter and cannot draw it anew."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


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


def test_module_is_the_first_vertex_and_the_others_are_new():
    module = Small()
    family = Subspace(module, Simplex(3))
    assert_vertex_is(family, 0, module)
    for j, k in itertools.combinations(range(3), 2):
        for name in ("conv.weight", "conv.bias", "head.weight"):
            assert not torch.equal(family.vertex(j)[name], family.vertex(k)[name])
    bound = 1 / math.sqrt(4 * 9)  # torch's own range for this convolution
    assert all(family.vertex(i)["conv.weight"].abs().max() <= bound for i in range(3))
    assert all(family.vertex(i)["conv.weight"].abs().max() > 0.8 * bound for i in range(3))
    assert all(family.vertex(i)["norm.weight"].eq(1).all() for i in range(3))


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


@pytest.mark.parametrize("network", [Small, Small()], ids=["factory", "module"])
def test_point_init(network):
    family = Subspace(network, Simplex(4), init="point")
    for index in range(1, 4):
        first, other = family.vertex(0), family.vertex(index)
        assert all(torch.equal(first[name], other[name]) for name in first)
    assert family.distances().l2.eq(0).all()
    if isinstance(network, nn.Module):
        assert_vertex_is(family, 0, network)


def test_point_init_needs_no_reset():
    assert Subspace(nn.Sequential(Bare()), Line(), init="point").layers == ("0",)


def test_a_parts_own_initialisation_has_the_last_word():
    class Special(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def reset_parameters(self) -> None:
            nn.init.constant_(self.inner.weight, 7)

    family = Subspace(nn.Sequential(Special()), Line())
    assert family.vertex(1)["0.inner.weight"].eq(7).all()
    assert not family.vertex(0)["0.inner.weight"].eq(7).any()


def test_attention_resets_itself():
    module = nn.MultiheadAttention(8, 2)
    family = Subspace(module, Line())
    first, other = family.vertex(0), family.vertex(1)
    assert not torch.equal(first["in_proj_weight"], other["in_proj_weight"])
    assert not torch.equal(first["out_proj.weight"], other["out_proj.weight"])
    assert 1 / math.sqrt(8) < other["in_proj_weight"].abs().max() <= math.sqrt(6 / (8 + 24))  # Xavier's range
    assert other["in_proj_bias"].eq(0).all()
    assert other["out_proj.bias"].eq(0).all()


def test_transformer_resets_itself():
    module = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    before = snapshot(module)
    family = Subspace(module, Line())
    first, other = family.vertex(0), family.vertex(1)
    matrices = [name for name, value in first.items() if value.ndim > 1]
    assert all(not torch.equal(first[name], other[name]) for name in matrices)
    for name in matrices:  # Xavier's range, set by the whole and not by its parts
        bound = math.sqrt(6 / sum(other[name].shape))
        assert 0.7 * bound < other[name].abs().max() <= bound
    assert_same_state(module, before)


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


def test_frozen_parts_need_no_reset():
    module = nn.Sequential(Bare().requires_grad_(False), nn.Linear(3, 3))
    assert Subspace(module, Line()).layers == ("1",)


@pytest.mark.parametrize(
    ("module", "where"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Sequential(Bare())), r"part '1.0' of the network, a Bare, owns"),
        (Bare(), "the network, a Bare, owns"),
    ],
)
def test_part_that_cannot_be_initialised_anew(module, where):
    before = snapshot(module)
    with pytest.raises(TypeError, match=rf"{where} trainable .* no reset_parameters\(\).*pass a factory.*init='point'"):
        Subspace(module, Line())
    assert_same_state(module, before)


def test_factory_that_returns_the_same_module_twice():
    module = Small()
    before = snapshot(module)
    with pytest.raises(ValueError, match="factory returned the same module twice: it must make a new one at each call"):
        Subspace(lambda: module, Line())
    two = itertools.cycle([module, Small()])
    with pytest.raises(ValueError, match="same module twice"):
        Subspace(lambda: next(two), Simplex(3))
    assert_same_state(module, before)


def test_factory_that_makes_no_module():
    with pytest.raises(TypeError, match=r"the factory returned a dict: expected an nn.Module"):
        Subspace(dict, Line())


def test_factory_that_makes_different_networks():
    widths = itertools.count(2)
    with pytest.raises(ValueError, match=r"network 1 does not match network 0: parameter weight is \(2, 3\)"):
        Subspace(lambda: nn.Linear(next(widths), 2), Line())


@pytest.mark.parametrize("network", [3, None, "net", [nn.Linear(2, 2)]])
def test_neither_module_nor_factory(network):
    with pytest.raises(TypeError, match=f"got a {type(network).__name__}: expected an nn.Module or a function"):
        Subspace(network, Line())


@pytest.mark.parametrize("init", ["same", None, 3])
def test_unknown_init(init):
    with pytest.raises(ValueError, match=f"init={init!r}: expected 'independent' or 'point'"):
        Subspace(Small, Line(), init=init)


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


@pytest.mark.parametrize("part", [nn.Embedding(5, 2, sparse=True), nn.EmbeddingBag(5, 2, sparse=True)])
def test_sparse_embeddings(part):
    with pytest.raises(ValueError, match=r"embedding '0' has sparse gradients.*pass sparse=False"):
        Subspace(nn.Sequential(part), Line())


@pytest.mark.parametrize("part", [nn.Embedding(5, 2, max_norm=1), nn.EmbeddingBag(5, 2, max_norm=1)])
def test_embeddings_that_change_their_weights(part):
    with pytest.raises(ValueError, match=r"embedding '0' has max_norm, .*pass max_norm=None"):
        Subspace(nn.Sequential(part), Line())


@pytest.mark.parametrize("module", [nn.ReLU(), nn.Linear(2, 2).requires_grad_(False)])
def test_nothing_to_train(module):
    with pytest.raises(ValueError, match="no trainable parameters"):
        Subspace(module, Line())


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


def test_from_modules_of_other_shapes():
    with pytest.raises(ValueError, match=r"parameter weight is \(2, 3\) .*, expected \(2, 2\)"):
        Subspace.from_modules([nn.Linear(2, 2), nn.Linear(3, 2)], Line())
    with pytest.raises(ValueError, match="parameter bias is missing"):
        Subspace.from_modules([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)], Line())


def test_from_modules_with_other_ties():
    tie = "trainable, tied to embedding.weight"
    with pytest.raises(ValueError, match=rf"output.weight is .*, trainable, expected .*, {tie};"):
        Subspace.from_modules([Tied(), Tied(tie=False)], Line())
    with pytest.raises(ValueError, match=rf"output.weight is .*, {tie}, expected .*, trainable;"):
        Subspace.from_modules([Tied(tie=False), Tied()], Line())


def test_from_modules_with_other_frozen_values():
    modules = [frozen_head(), frozen_head()]
    with pytest.raises(ValueError, match=r"frozen parameter head.weight of network 1 differs .*make it trainable"):
        Subspace.from_modules(modules, Line())
    modules[1].head.load_state_dict(modules[0].head.state_dict())
    family = Subspace.from_modules(modules, Line())
    assert torch.equal(family.at(0.7).head.weight, modules[0].head.weight)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_from_modules_wrong_count(count):
    with pytest.raises(ValueError, match=rf"from_modules got {count} networks: Line\(\) has 2 vertices"):
        Subspace.from_modules([Small() for _ in range(count)], Line())


def test_from_modules_of_no_modules():
    with pytest.raises(TypeError, match=r"network 0 is a OrderedDict: expected an nn.Module"):
        Subspace.from_modules([Small().state_dict(), Small()], Line())


def test_from_modules_takes_no_other_initialisation():
    with pytest.raises(TypeError, match="init"):
        Subspace.from_modules([Small(), Small()], Line(), init="point")


class OwnInit(nn.Module):
    """Sets its weights as Hugging Face's networks do: by a function of each part."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.full((16,), 0.5))
        self.apply(self._init_weights)

    def _init_weights(self, part: nn.Module, name: str = "") -> None:
        if isinstance(part, (nn.Embedding, nn.Linear)):
            nn.init.normal_(part.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x) * self.scale)


def test_a_network_draws_its_weights_by_its_own_function():
    torch.manual_seed(0)
    family = Subspace(OwnInit(), Simplex(3))
    for index in range(3):
        vertex = family.vertex(index)
        assert vertex["embedding.weight"].std() == pytest.approx(0.02, rel=0.2)
        assert vertex["head.weight"].std() == pytest.approx(0.02, rel=0.4)
        assert vertex["scale"].eq(0.5).all()  # which it draws nowhere
    assert family.distances().cos2[0, 1] < 0.1


class Bare(nn.Module):
    """Owns a matrix and cannot draw it."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(16, 4) * 0.02)


class DrawsParts(nn.Module):
    """Draws the weights of a part that cannot do so itself, or leaves them."""

    def __init__(self, known: type[nn.Module] = Bare) -> None:
        super().__init__()
        self.known, self.part = known, Bare()

    def _init_weights(self, part: nn.Module) -> None:
        if isinstance(part, self.known):
            nn.init.normal_(part.matrix, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.part.matrix


def test_a_network_draws_the_weights_of_parts_that_have_no_function_for_it():
    torch.manual_seed(0)
    family = Subspace(DrawsParts(), Simplex(3))
    assert all(family.vertex(i)["part.matrix"].std() == pytest.approx(0.02, rel=0.4) for i in range(3))
    assert family.distances().cos2[1, 2] < 0.2


class Scaled(DrawsParts):
    """Draws the weights of its part smaller than the part would have them, as networks with residual paths do."""

    def _init_weights(self, part: nn.Module) -> None:
        super()._init_weights(part)
        if part is self:
            nn.init.normal_(self.part.matrix, std=0.01)


def test_a_module_has_the_last_word_about_its_parts():
    torch.manual_seed(0)
    family = Subspace(Scaled(), Simplex(3))
    assert all(family.vertex(i)["part.matrix"].std() == pytest.approx(0.01, rel=0.4) for i in (1, 2))


def test_loaded_weights_are_refused_with_what_to_pass():
    network = DrawsParts()
    network.part.matrix._is_hf_initialized = True  # as transformers' from_pretrained leaves it
    with pytest.raises(ValueError, match=r"'part.matrix' was loaded by from_pretrained.*init='point'.*offset=0.1"):
        Subspace(network, Line())
    assert Subspace(network, Line(), init="point").distances().l2[0, 1] == 0
    network.part.matrix.requires_grad_(False)
    network.head = nn.Linear(4, 2)
    family = Subspace(network, Line())  # a new head on a frozen base
    assert list(family.vertex(1)) == ["head.weight", "head.bias"]


def test_a_part_that_the_network_leaves_as_it_is_is_refused():
    with pytest.raises(TypeError, match=r"part 'part' .* a Bare, .*_init_weights leaves its matrix alone.*factory"):
        Subspace(DrawsParts(nn.Linear), Line())


class WholeInit(nn.Linear):
    """Has a function without arguments instead."""

    def __init__(self) -> None:
        super().__init__(8, 8)
        self._init_weights()

    def _init_weights(self) -> None:
        nn.init.normal_(self.weight, std=0.1)


def test_a_function_without_arguments_draws_all_weights():
    family = Subspace(WholeInit(), Line())
    assert family.vertex(1)["weight"].std() == pytest.approx(0.1, rel=0.4)
    assert not torch.equal(family.vertex(0)["weight"], family.vertex(1)["weight"])


class NamedInit(nn.Sequential):
    """Has a function that wants to know the name of a part as well."""

    def _init_weights(self, part: nn.Module, name: str, **options: object) -> None:
        raise AssertionError


def test_a_function_that_takes_more_than_a_part_is_refused_where_it_is_needed():
    network = nn.Sequential(NamedInit(nn.Linear(4, 4)), nn.Linear(4, 2))
    with pytest.raises(TypeError, match=r"part '0' .* has an _init_weights\(part.*name.* more than a part.*factory"):
        Subspace(network, Line())
    network[0].requires_grad_(False)
    assert list(Subspace(network, Line()).vertex(1)) == ["1.weight", "1.bias"]


def small_embedding() -> nn.Module:
    network = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 4))
    nn.init.normal_(network[0].weight, std=0.02)
    return network


def adapter() -> nn.Module:
    """Begins as nothing, as the second matrix of LoRA does."""
    network = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False))
    nn.init.zeros_(network[1].weight)
    return network


@pytest.mark.parametrize(("make", "name"), [(small_embedding, "0.weight"), (adapter, "1.weight")])
def test_weights_that_would_be_drawn_in_another_size_are_refused(make, name):
    with pytest.raises(ValueError, match=rf"parameter '{name}' is of size .*pass a factory.*init='point'.*offset=0.1"):
        Subspace(make(), Line())
    expected = make().get_parameter(name).norm().item()
    for family in (Subspace(make, Line()), Subspace(make(), Line(), init="point")):
        assert family.vertex(1)[name].norm().item() == pytest.approx(expected, rel=0.2)


def test_vectors_may_be_drawn_in_another_size():
    network = nn.Linear(4, 2)
    nn.init.zeros_(network.bias)
    assert Subspace(network, Line()).vertex(1)["bias"].any()


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
@pytest.mark.parametrize("shape", [Line(), Simplex(3)], ids=str)
def test_offsets_are_orthogonal_and_of_the_given_size(shape, dtype):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), adapter().to(dtype)[1], nn.Linear(6, 5, bias=False))
    network = network.to(dtype)
    network[2].weight.data.zero_()
    exact = 0.02 if dtype == torch.bfloat16 else 1e-5
    family = Subspace(network, shape, init="point", offset=0.1, seed=0)
    vertices = [family.vertex(index) for index in range(shape.vertices)]
    for name, weight in network.named_parameters():
        steps = torch.stack([(vertex[name].double() - weight.double()).flatten() for vertex in vertices])
        gram = steps @ steps.T
        size = 0.1 * weight.detach().double().norm() if weight.ndim > 1 else 0.0
        assert_close(gram, torch.eye(len(vertices), dtype=torch.float64) * size**2, rtol=exact, atol=exact)
        assert (steps @ weight.detach().double().flatten()).abs().max() <= exact
    again = Subspace(network, shape, init="point", offset=0.1, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(family.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("offset", "init"), [(-1.0, "point"), (float("nan"), "point"), ("0.1", "point"), (0.1, "independent")]
)
def test_impossible_offsets(offset, init):
    with pytest.raises(ValueError, match=f"offset={offset!r}: expected a"):
        Subspace(lambda: nn.Linear(3, 2), Line(), init=init, offset=offset)
