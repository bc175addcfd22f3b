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
from subspaces.core.batchnorm import StatisticsWarning, tracked


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


def test_a_trained_network_brings_its_statistics_to_its_point_only():
    network = make()
    network(batches(1)[0])
    assert silent(ss.Subspace(network, ss.Line(), init="point"))
    assert not silent(ss.Subspace.from_modules([network, make()], ss.Line()))


# Fresh statistics of the midpoint


def test_fresh_statistics_are_of_the_midpoint_alone_wherever_training_runs():
    family, drawn, fast = (made(statistics_every=2) for _ in range(3))
    torch.compiler.reset()
    compiled = torch.compile(fast, backend="aot_eager")
    for x in batches(4):
        family(x, alpha=0.9)
        assert_close(compiled(x), drawn(x))
    for one in (family, fast):
        for found, expected in zip(running(one.template), running(drawn.template), strict=True):
            assert_close(found, expected)
    ss.recalibrate(family, batches(3), alpha=0.9)
    network = ss.recalibrate(family.at(0.9), batches(3))
    for found, expected in zip(running(family.template), running(network), strict=True):
        assert_close(found, expected)
    assert family.statistics_every == 2


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
    assert silent(family)
    assert_close(family(batches(1)[0]), network.eval()(batches(1)[0]))


def test_a_family_that_runs_again_in_a_backward_pass_counts_once():
    family, plain = made(statistics_every=2), made(statistics_every=2)
    for x in batches(3):
        alpha = family.sample()
        checkpoint(family, x, alpha=alpha, use_reentrant=False).sum().backward()
        plain(x, alpha=alpha).sum().backward()
    for found, expected in zip(running(family.template), running(plain.template), strict=True):
        assert torch.equal(found, expected)


# Other buffers


class OwnNorm(nn.Module):
    """A norm as one writes it by hand; `rebinds`: its mean is another tensor after each call."""

    def __init__(self, rebinds: bool = False) -> None:
        super().__init__()
        self.rebinds = rebinds
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.ones(4))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("step", torch.tensor(0.0))
        self.register_buffer("cache", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.cache = x.detach() * 2
        if self.training:
            self.seen += 1
            self.step += 1
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
    "instance norm": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, affine=True, track_running_stats=True), nn.Flatten()
        ),
        "buffer '1.running_mean', '1.running_var' of",
    ),
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
    assert found[0].filename == __file__
    assert "recalibrate does not renew" in str(found[0].message)
    family.train()(x)
    family.keep_statistics()
    family.eval()(x)  # said once


def test_passes_at_the_midpoint_settle_it():
    family, (x,) = ss.Subspace(OwnNorm, ss.Line(), seed=0), batches(1)
    family(x)
    with torch.no_grad():
        family(x, alpha=family.shape.midpoint())
    family.eval()(x)


def test_buffers_that_something_else_changes_are_not_told():
    torch.manual_seed(0)
    family = ss.Subspace(lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), OwnNorm().eval()), ss.Line())
    (x,) = batches(1)
    family.template[2].eval()
    family(x)
    family.load_state_dict(family.state_dict())
    family.to(torch.float64).to(torch.float32)
    family.template[2].mean.add_(0)  # as DistributedDataParallel does
    family.eval()(x)


@pytest.mark.parametrize(
    "use",
    [
        lambda family, labelled: family.midpoint(),
        lambda family, labelled: family.ensemble([0.1, 0.9]),
        lambda family, labelled: family.select(labelled),
        lambda family, labelled: ss.evaluate(family, test=labelled, progress=False),
    ],
)
def test_other_buffers_are_told_of_before_networks_are_taken_out_and_measured(use):
    (x,) = batches(1)
    family = ss.Subspace(OwnNorm, ss.Line(), seed=0)
    family(x)
    with pytest.warns(StatisticsWarning, match="buffer 'mean' of"):
        use(family, [(x, torch.arange(len(x)) % 4)])


@pytest.mark.parametrize("use", [ss.Subspace.select, lambda family, data: ss.evaluate(family, test=data)])
def test_points_of_a_family_with_running_statistics_of_instance_norm_are_not_measured(use):
    family = ss.Subspace(OTHERS["instance norm"][0], ss.Line(), seed=0)
    with pytest.raises(ss.UserError, match=r"InstanceNorm1d with running statistics.*track_running_stats=False"):
        use(family, [(batches(1)[0], torch.arange(16) % 4)])


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
