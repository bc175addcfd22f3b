"""Checkpoints, and the family that they span."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.testing import assert_close

import subspaces as ss
from subspaces.experiments.methods import Method
from subspaces.experiments.methods.checkpoints import Collecting, rows, spanned


def network() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(12, 3)).to(memory_format=torch.channels_last)


def trained(seed: int) -> ss.Subspace:
    torch.manual_seed(seed)
    return ss.Subspace(network, ss.Point(), seed=seed)


def collecting(*epochs: int) -> Collecting[Method]:
    """What keeps the weights of a network after these epochs."""

    class Chosen(Method):
        def checkpoints(self, _epochs: int) -> list[int]:
            return list(epochs)

    return Collecting(Chosen(), trained(0), max(epochs), 0)


@pytest.mark.parametrize("shape", [ss.Line(), ss.Simplex(2), ss.Bezier(1), ss.Simplex(4)], ids=str)
def test_the_vertices_are_the_networks_and_the_midpoint_their_average(shape):
    families = [trained(seed) for seed in range(shape.vertices)]
    result = spanned(families[0], [rows(one) for one in families], shape, seed=5)
    assert result.shape == shape
    assert torch.equal(result.rng, ss.Subspace(network, shape, seed=5).rng)
    networks = [dict(one.midpoint().named_parameters()) for one in families]
    for index, expected in enumerate(networks):
        for name, value in result.vertex(index).items():
            assert torch.equal(value, expected[name]), name
    c = shape.coefficients(shape.midpoint()).tolist()
    for name, value in result.midpoint().named_parameters():
        average = sum(share * one[name] for share, one in zip(c, networks, strict=True))
        assert_close(value, average)


def test_the_midpoint_is_the_average_of_torch():
    families = [trained(seed) for seed in range(3)]
    average = AveragedModel(families[0].midpoint())
    for one in families:
        average.update_parameters(one.midpoint())
    found = spanned(families[0], [rows(one) for one in families], ss.Simplex(3)).midpoint()
    assert_close(dict(found.named_parameters()), dict(average.module.named_parameters()))


def test_what_is_spanned_is_independent_of_the_family():
    family = trained(0)
    result = spanned(family, [rows(family)], ss.Point())
    with torch.no_grad():
        for omega in family.omega.values():
            omega.add_(1)
        family.template[0][1].running_mean.add_(1)
    assert all(torch.equal(value, trained(0).vertex(0)[name]) for name, value in result.vertex(0).items())
    assert result.template[0][1].running_mean.eq(0).all()


def test_a_shape_with_another_number_of_vertices_is_refused():
    family = trained(0)
    with pytest.raises(ValueError, match="1 networks cannot span Line"):
        spanned(family, [rows(family)], ss.Line())


def test_checkpoints_are_copies_after_the_chosen_epochs():
    hooks = collecting(2, 3)
    for epoch in (1, 2, 3, 4):
        with torch.no_grad():
            for omega in hooks.family.omega.values():
                omega.fill_(epoch)
        hooks.after_epoch(epoch, {})
    first, second = hooks.networks()
    assert all(row.eq(2).all() for row in first.values())
    assert all(row.eq(3).all() for row in second.values())


def test_checkpoints_come_back_from_their_state_in_order():
    hooks, family = collecting(2, 10), trained(0)
    for epoch, hooks.family in ((10, trained(1)), (2, family)):
        hooks.after_epoch(epoch, {})
    other = collecting(2, 10)
    other.load(hooks.kept())
    for actual, expected in zip(other.networks(), hooks.networks(), strict=True):
        assert all(torch.equal(actual[name], row) for name, row in expected.items())
    assert all(torch.equal(other.networks()[0][name], row) for name, row in rows(family).items())


def test_checkpoints_that_are_not_there_are_named():
    hooks = collecting(2, 3)
    hooks.after_epoch(2, {})
    with pytest.raises(ValueError, match=r"after epochs \[3\] are not there"):
        hooks.networks()
