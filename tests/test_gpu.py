"""A family on a CUDA device: the same numbers as on the CPU, CUDA graphs, the compiler, files."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.core.batchnorm import StatisticsWarning
from subspaces.experiments.paper import VERDICTS
from subspaces.experiments.paper.reproduce import plan, run
from subspaces.experiments.studies.setting import Setting
from subspaces.networks import CResNet20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SHAPES = [ss.Line(), ss.Bezier(2), ss.Simplex(4)]
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """Let CUDA compute in full float32 and deterministically, so that numbers can be compared."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = before


def make() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


def family(shape: ss.Shape, network: Callable[[], nn.Module] = make, **options: Any) -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(network, shape, seed=5, **options)


def batch(seed: int = 0, device: str = "cuda") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(16, 3, 8, 8, generator=generator), torch.randint(10, (16,), generator=generator)
    return x.to(device), y.to(device)


def loss_of(module: ss.Subspace, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(module(x), y) + module.penalty(beta=0.5)


def assert_same_state(actual: nn.Module, expected: nn.Module, **tolerance: float) -> None:
    states = [{k: v.cpu() for k, v in module.state_dict().items()} for module in (actual, expected)]
    assert_close(states[0], states[1], **tolerance)


# The same family on both devices


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_draws_are_those_of_the_cpu(shape: ss.Shape):
    here, there = family(shape), family(shape).cuda()
    for per in ("network", "layer", "network"):
        assert_close(there.sample(per).cpu(), here.sample(per), rtol=1e-6, atol=1e-7)
        assert_close(there.penalty().cpu(), here.penalty(), rtol=1e-4, atol=1e-7)
    assert torch.equal(there.rng.cpu(), here.rng)


def test_line_draws_are_bitwise_those_of_the_cpu():
    here, there = family(ss.Line()), family(ss.Line()).cuda()
    assert torch.equal(
        torch.stack([there.sample() for _ in range(50)]).cpu(), torch.stack([here.sample() for _ in range(50)])
    )


@pytest.mark.parametrize("layerwise", [False, True], ids=["whole", "layerwise"])
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_training_is_that_of_the_cpu(shape: ss.Shape, layerwise: bool):
    here, there = family(shape, layerwise=layerwise), family(shape, layerwise=layerwise).cuda()
    for module, device in ((here, "cpu"), (there, "cuda")):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(module, *batch(step, device)).backward()
            optimizer.step()
    assert_same_state(there, here, **CLOSE)


def test_moving_there_and_back_changes_nothing():
    module = family(ss.Simplex(3))
    before = copy.deepcopy(module)
    module.to("cuda")
    assert module.device.type == "cuda"
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"cuda"}
    network = module.midpoint()
    assert {tensor.device.type for tensor in network.state_dict().values()} == {"cuda"}
    module.to("cpu")
    assert_same_state(module, before, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_networks(kind: type[nn.Module]):
    here = family(ss.Line(), lambda: kind(3, 4, 2, batch_first=True, bidirectional=True))
    there = copy.deepcopy(here).cuda()
    x = torch.randn(4, 5, 3)
    for module, device in ((here, "cpu"), (there, "cuda")):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            module(x.to(device))[0].square().sum().backward()
            optimizer.step()
    assert_same_state(there, here, **CLOSE)
    expected = there.eval()(x.cuda(), alpha=0.3)[0]
    assert_close(there.at(0.3)(x.cuda())[0], expected)
    assert_close(copy.deepcopy(there)(x.cuda(), alpha=0.3)[0], expected)


# Speed: nothing waits for the device, nothing is copied


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("layerwise", [False, True], ids=["whole", "layerwise"])
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_a_training_step_does_not_wait_for_the_device(shape: ss.Shape, layerwise: bool):
    module = family(shape, layerwise=layerwise).cuda()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x, y = batch()
    loss_of(module, x, y).backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.zero_grad()
        loss_of(module, x, y).backward()
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert loss_of(module, x, y).isfinite()


def test_channels_last_weights_are_views():
    module = family(ss.Line(), lambda: CResNet20().to(memory_format=torch.channels_last)).cuda()
    weights = module.theta(module.coefficients(0.3))
    convolutions = {name: weight for name, weight in weights.items() if weight.ndim == 4}
    assert len(convolutions) == 22
    assert len({weight.untyped_storage().data_ptr() for weight in convolutions.values()}) == 1
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in convolutions.values())
    network = module.at(0.3)
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in network.parameters() if p.ndim == 4)
    x = torch.randn(4, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    assert_close(module.eval()(x, alpha=0.3), network.eval()(x), **CLOSE)


# CUDA graphs


def warm_up(step: Callable[[], Any], times: int = 3) -> None:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(stream)


@pytest.mark.parametrize("layerwise", [False, True], ids=["whole", "layerwise"])
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_a_captured_training_step_draws_anew_at_each_replay(shape: ss.Shape, layerwise: bool):
    eager = family(shape, layerwise=layerwise).cuda()
    module = copy.deepcopy(eager)
    x, y = (tensor.clone() for tensor in batch())

    def stepper(module: ss.Subspace) -> Callable[[], Tensor]:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(module, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    plain, captured = stepper(eager), stepper(module)
    warm_up(plain)
    warm_up(captured)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = captured()
    counters = []
    for seed in range(5):
        for static, new in zip((x, y), batch(seed), strict=True):
            static.copy_(new)
        graph.replay()
        assert_close(loss, plain(), **CLOSE)
        counters.append(int(module.rng[1]))
    assert counters == sorted(set(counters))
    assert_same_state(module, eager, **CLOSE)
    assert torch.equal(module.rng, eager.rng)


def test_evaluation_can_be_captured():
    """Alpha is a tensor on the device, and may then vary between replays."""
    module = family(ss.Line()).cuda().eval()
    x, alpha = batch()[0].clone(), torch.tensor(0.3, device="cuda")
    with torch.no_grad():
        warm_up(lambda: module(x, alpha=alpha))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = module(x, alpha=alpha)
        for value in (0.1, 0.8):
            x.copy_(batch(7)[0])
            alpha.fill_(value)
            graph.replay()
            assert_close(output, module(x, alpha=value), **CLOSE)


# The compiler, mixed precision


@pytest.mark.filterwarnings("ignore")  # what the compiler's own parts warn of
@pytest.mark.parametrize("shape", [ss.Line(), ss.Simplex(4)], ids=repr)
def test_compiled_training_is_one_graph_and_that_of_eager(shape: ss.Shape):
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    eager = family(shape, layerwise=True).cuda()
    original = copy.deepcopy(eager)
    compiled = torch.compile(loss_of, fullgraph=True)
    for step in range(3):
        for module, function in ((eager, loss_of), (original, compiled)):
            function(module, *batch(step)).backward()
    for name, omega in eager.omega.items():
        assert_close(original.omega[name].grad, omega.grad, **CLOSE)
    assert_same_state(original, eager, **CLOSE)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_autocast():
    module = family(ss.Simplex(3)).cuda()
    x, y = batch()
    alpha = module.sample()
    F.cross_entropy(module(x, alpha=alpha), y).backward()
    exact = {name: omega.grad.clone() for name, omega in module.omega.items()}
    module.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        theta = module.theta(module.coefficients(alpha))
        output = module(x, alpha=alpha)
        loss = F.cross_entropy(output, y)
        penalty = module.penalty()
    assert {weight.dtype for weight in theta.values()} == {torch.float32}
    assert output.dtype == torch.bfloat16
    assert penalty.dtype == torch.float32
    loss.backward()
    for name, omega in module.omega.items():
        assert F.cosine_similarity(omega.grad, exact[name], dim=1).min() > 0.98


# Files, statistics, ensembles


def test_saved_on_the_device_and_loaded_on_the_cpu(tmp_path: Path):
    module = family(ss.Bezier(1)).cuda()
    loss_of(module, *batch()).backward()
    ss.save(module, tmp_path / "family.safetensors")
    loaded = ss.load(tmp_path / "family.safetensors", make)
    assert loaded.device.type == "cpu"
    assert not loaded.is_calibrated
    loaded.calibrated.copy_(module.calibrated)  # a file knows only that its statistics are of no point
    assert_same_state(loaded, module, rtol=0, atol=0)
    again = ss.load(tmp_path / "family.safetensors", lambda: make().cuda())
    assert again.device.type == "cuda"
    x, _ = batch()
    with pytest.warns(StatisticsWarning):
        assert torch.equal(again.eval()(x, alpha=0.3), module.eval()(x, alpha=0.3))


def test_recalibrated_from_batches_of_the_cpu():
    module = family(ss.Line()).cuda()
    loader = [batch(seed, "cpu") for seed in range(4)]
    ensemble = ss.recalibrate(module.ensemble([0.1, 0.9]), loader)
    for alpha, member in zip((0.1, 0.9), ensemble.members, strict=True):
        expected = torch.stack([member[0](x.cuda()).mean((0, 2, 3)) for x, _ in loader]).mean(0)
        assert_close(member[1].running_mean, expected, **CLOSE)
        assert_close(ss.recalibrate(module, loader, alpha=alpha).template[1].running_mean, expected, **CLOSE)
    assert_close(ensemble.eval()(batch()[0]).sum(1), torch.ones(16, device="cuda"))


# Figures of the paper


def test_a_figure_is_made_on_the_device(tmp_path: Path):
    quiet: dict[str, Any] = {"show": "quiet", "device": "cuda"}
    planned = plan("dynamics", "smoke", Setting.of(seeds=[0, 1], runs=tmp_path / "runs", out=tmp_path / "out", **quiet))
    (made,) = run(planned).figures
    assert [each.verdict in VERDICTS for each in made.judged] == [True] * 4
    assert (made.plan.setting.out / "reproduction.png").is_file()
