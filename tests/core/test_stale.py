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
        plain(x, alpha=alpha)
    for found, expected in zip(running(family.template), running(plain.template), strict=True):
        assert torch.equal(found, expected)
