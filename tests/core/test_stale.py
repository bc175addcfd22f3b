"""Batch-norm statistics of a family: a warning where they belong to no point, and midpoints kept fresh."""

import copy
import io
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import subspaces as ss
from subspaces.core.batchnorm import tracked
from subspaces.core.stale import StatisticsWarning


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3), nn.BatchNorm1d(3))


def made(**options) -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(make, ss.Line(), seed=0, **options)


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 4, generator=generator) * (1 + index) + index for index in range(count)]


def running(network: nn.Module) -> list[Tensor]:
    return [value for norm in tracked(network).values() for value in (norm.running_mean, norm.running_var)]


def silent(module: nn.Module) -> bool:
    """Say whether a call in eval mode gives no warning."""
    module.eval()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        module(batches(1)[0])
    assert all(each.category is StatisticsWarning for each in found)
    return not found


def test_one_warning_says_what_to_write():
    family = made()
    family(batches(1)[0])
    with pytest.warns(StatisticsWarning, match=r"are noise.*subspaces.recalibrate\(family, train_loader\)") as found:
        family.eval()(batches(1)[0])
    assert len(found) == 1
    assert found[0].filename == __file__
    family(batches(1)[0])  # said once; a second one would be an error here


def test_there_is_a_warning_exactly_where_statistics_belong_to_no_point():
    family = made()
    assert silent(family)  # nothing was trained
    family.train()(batches(1)[0])
    assert not silent(family)
    ss.recalibrate(family, batches(3))
    assert silent(family)
    assert silent(family.train())
    family.train()(batches(1)[0])
    assert not silent(family)
    ss.recalibrate(family.train(), batches(2))
    assert silent(family)
    with pytest.raises(TypeError):
        ss.recalibrate(family, [1, 2])
    assert silent(family)  # which has its statistics still


@pytest.mark.parametrize("calibrated", [True, False])
def test_copies_checkpoints_and_files_know_it_too(calibrated, tmp_path):
    family = made()
    family(batches(1)[0])
    if calibrated:
        ss.recalibrate(family, batches(3))
    other = made()
    other.load_state_dict(family.state_dict())
    stored = io.BytesIO()
    torch.save(family, stored)
    stored.seek(0)
    ss.save(family, tmp_path / "family.safetensors")
    read = ss.load(tmp_path / "family.safetensors", make)
    for each in (copy.deepcopy(family), other, read, torch.load(stored, weights_only=False)):
        assert silent(each) is calibrated


def test_fresh_statistics_are_of_the_midpoint_alone_wherever_training_runs():
    family, drawn = made(statistics_every=2), made(statistics_every=2)
    for x in batches(4):
        family(x, alpha=0.9)
        drawn(x)
    for found, expected in zip(running(family.template), running(drawn.template), strict=True):
        assert torch.equal(found, expected)
    ss.recalibrate(family, batches(3), alpha=0.9)
    network = ss.recalibrate(family.at(0.9), batches(3))
    for found, expected in zip(running(family.template), running(network), strict=True):
        assert_close(found, expected)
    assert family.statistics_every == 2


def test_a_family_that_runs_again_in_a_backward_pass_counts_once():
    family, plain = made(statistics_every=2), made(statistics_every=2)
    for x in batches(3):
        alpha = family.sample()
        checkpoint(family, x, alpha=alpha, use_reentrant=False).sum().backward()
        plain(x, alpha=alpha).sum().backward()
    for found, expected in zip(running(family.template), running(plain.template), strict=True):
        assert torch.equal(found, expected)


def test_a_trained_network_brings_its_statistics_to_its_point_only():
    network = make()
    network(batches(1)[0])
    assert silent(ss.Subspace(network, ss.Line(), init="point"))
    assert not silent(ss.Subspace.from_modules([network, make()], ss.Line()))


@pytest.mark.parametrize("every", [1, 3, 10])  # of seven: also before the tenth there are some
def test_statistics_are_those_of_passes_of_the_midpoint_alone(every):
    family, network = made(statistics_every=every), made().midpoint().train()
    for norm in tracked(network).values():
        norm.momentum = 1 - 0.9**every  # as much as so many batches
    for index, x in enumerate(batches(7), 1):
        output = family(x)
        assert output.grad_fn is not None
        if index == 1 or index % every == 0:
            network(x)
    for found, expected in zip(running(family.template), running(network), strict=True):
        assert_close(found, expected)
    assert all(norm.momentum == 0.1 for norm in tracked(family.template).values())
    assert len(tracked(family.template)) == 2
    assert silent(family)
    assert_close(family(batches(1)[0]), network.eval()(batches(1)[0]))


def test_fresh_statistics_of_a_compiled_family():
    torch.compiler.reset()
    fresh, plain = made(statistics_every=2), made(statistics_every=2)
    compiled = torch.compile(fresh, backend="aot_eager")
    for x in batches(5):
        assert_close(compiled(x), plain(x))
    for found, expected in zip(running(fresh.template), running(plain.template), strict=True):
        assert_close(found, expected)


# Norms that do not count, and other buffers


def instance() -> nn.Module:
    norm = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
    return nn.Sequential(nn.Conv1d(2, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))


def sequences(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(6, 2, 8, generator=generator) * (1 + index) + index for index in range(count)]


@pytest.mark.parametrize("momentum", [0.1, None])
def test_instance_norms_are_recalibrated_to_the_plain_average(momentum):
    torch.manual_seed(0)
    family = ss.Subspace(instance, ss.Line(), seed=0)
    family.template[1].momentum = momentum
    net = ss.recalibrate(family.midpoint(), sequences(3))
    hidden = [net[0](x).detach() for x in sequences(3)]
    assert_close(net[1].running_mean, torch.stack([each.mean(2).mean(0) for each in hidden]).mean(0))
    assert_close(net[1].running_var, torch.stack([each.var(2).mean(0) for each in hidden]).mean(0))
    assert (net[1].momentum, net.training, len(net[1]._forward_pre_hooks)) == (momentum, True, 0)
    ss.recalibrate(family, sequences(3))
    for found, expected in zip(running(family.template), running(net), strict=True):
        assert_close(found, expected)
    before = running(net)[0].clone()
    with pytest.raises(ValueError, match="not finite"):
        ss.recalibrate(net, [torch.full((2, 2, 8), torch.nan)])
    assert torch.equal(running(net)[0], before)


def test_stale_statistics_of_instance_norms_are_told(tmp_path):
    torch.manual_seed(0)
    family, (x,) = ss.Subspace(instance, ss.Line(), seed=0), sequences(1)

    def told(family: ss.Subspace) -> bool:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            family.eval()(x)
        assert all("instance-norm statistics" in str(each.message) for each in found)
        return bool(found)

    assert not told(family)
    for _ in range(2):
        family.train()(x)
        other = ss.Subspace(instance, ss.Line())
        other.load_state_dict(family.state_dict())
        ss.save(family, tmp_path / "family.safetensors")
        read = ss.load(tmp_path / "family.safetensors", instance)
        assert [told(each) for each in (copy.deepcopy(family), other, read, family)] == [True] * 4
        ss.recalibrate(family, sequences(2))
        other.load_state_dict(family.state_dict())
        assert not told(family)
        assert not told(other)
        ss.recalibrate(family.train(), sequences(2))
    family(x)
    assert told(family)


def test_fresh_statistics_of_instance_norms_are_of_the_midpoint_alone():
    torch.manual_seed(0)
    family = ss.Subspace(instance, ss.Line(), seed=0, statistics_every=1)
    network = family.midpoint().train()
    for x in sequences(4):
        family(x)
        with family.point() as net:
            net(x)
        network(x), network(x)
    for found, expected in zip(running(family.template), running(network), strict=True):
        assert_close(found, expected)
    family.eval()(x)


class OwnNorm(nn.Module):
    """A norm as one writes it by hand; `rebinds`: its mean is another tensor after each call."""

    def __init__(self, rebinds: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.rebinds = rebinds
        self.weight = nn.Parameter(torch.full((4,), scale))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.ones(4))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
            new = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            if self.rebinds:
                self.mean = new
            else:
                self.mean.copy_(new)
        return (x - self.mean) * self.weight * self.table


OTHERS = {
    "by hand": (OwnNorm, "buffer 'mean' of"),
    "by hand, rebound": (lambda: OwnNorm(rebinds=True), "buffer 'mean' of"),
    "in a part": (lambda: nn.Sequential(OwnNorm(), nn.BatchNorm1d(4)), "buffer '0.mean' of"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("block", [False, True])
def test_other_buffers_that_training_changed_are_told_once(name, block):
    make, said = OTHERS[name]
    torch.manual_seed(0)
    family, (x,) = ss.Subspace(make, ss.Line(), seed=0), batches(1)
    family.eval()(x)
    family.train()
    if block:
        with family.point() as net:
            net(x)
    else:
        family(x)
    family(x)
    family.keep_statistics()
    with pytest.warns(StatisticsWarning, match=said) as found:
        family.eval()(x)
    assert len(found) == 1
    assert "recalibrate does not renew" in str(found[0].message)
    family.train()(x)
    family.keep_statistics()
    family.eval()(x)  # said once


def test_buffers_that_something_else_changes_are_not_told():
    torch.manual_seed(0)
    family, (x,) = (
        ss.Subspace(lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), OwnNorm().eval()), ss.Line()),
        batches(1),
    )
    family.template[2].eval()
    family(x)
    family.load_state_dict(family.state_dict())
    family.to(torch.float64).to(torch.float32)
    family.template[2].mean.add_(0)  # as DistributedDataParallel does
    family.eval()(x)


def test_other_buffers_are_told_of_before_networks_are_taken_out_and_measured():
    (x,) = batches(1)
    labelled = [(x, torch.arange(len(x)) % 4)]
    for use in (
        lambda family: family.midpoint(),
        lambda family: family.ensemble([0.1, 0.9]),
        lambda family: family.select(labelled),
        lambda family: ss.evaluate(family, test=labelled, progress=False),
    ):
        family = ss.Subspace(OwnNorm, ss.Line(), seed=0)
        family(x)
        with pytest.warns(StatisticsWarning, match="buffer 'mean' of"):
            use(family)


def test_fresh_statistics_change_no_gradient():
    fresh, plain = made(statistics_every=2), made()
    for x in batches(4):
        for family in (fresh, plain):
            family(x, samples=2).square().sum().backward()
    for found, expected in zip(fresh.parameters(), plain.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)
    assert torch.equal(fresh.rng, plain.rng)


def test_loading_a_checkpoint_is_no_training():
    torch.manual_seed(0)
    family, other, (x,) = ss.Subspace(OwnNorm, ss.Line()), ss.Subspace(OwnNorm, ss.Line()), batches(1)
    family(x)
    other.load_state_dict(family.state_dict())
    other.eval()(x)
    copied = copy.deepcopy(family)
    with pytest.warns(StatisticsWarning, match="'mean'"):
        copied.eval()(x)
    family.load_state_dict(other.state_dict())
    family.eval()(x)


def test_caches_and_counters_are_nothing_to_tell():
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 4)
            self.register_buffer("cache", None, persistent=False)
            self.register_buffer("step", torch.tensor(0.0))

        def forward(self, x):
            self.cache = x.detach() * 2
            self.step += self.training
            return self.last(x)

    family = ss.Subspace(lambda: nn.Sequential(Cached()), ss.Line(), seed=0)
    family(batches(1)[0])
    family.eval()(batches(1)[0])
