"""Any family, network or list of networks on any loaders, against points made by hand and measured by other means."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_cases import (
    CLASSES,
    CPU,
    LOADERS,
    TEST,
    TRAINING,
    VALIDATION,
    Batches,
    Independent,
    about,
    check,
    family,
    network,
    normless,
    softmax,
)
from helpers import assert_same_state, snapshot
from sklearn.metrics import accuracy_score, log_loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import subspaces as ss
from subspaces.experiments.training.batches import evaluation_batches, statistics_batches


@torch.no_grad()
def logits(net: nn.Module, batches: Batches) -> np.ndarray[Any, Any]:
    return np.concatenate([net.eval()(x).double().numpy() for x, _ in batches])


def labels(batches: Batches) -> np.ndarray[Any, Any]:
    return torch.cat([y for _, y in batches]).numpy()


@pytest.mark.parametrize("shape", [ss.Line(), ss.Bezier(), ss.Simplex(3)])
def test_the_rows_of_a_family_are_those_of_its_points_made_by_hand(shape: ss.Shape) -> None:
    one = family(shape)
    found = ss.evaluate(one, grid=(0.1, 0.3), random=2, triangle=0, **LOADERS)
    assert {row.split for row in found.rows} == {"test", "validation"}
    for row in found.rows:
        points = [ss.recalibrate(one.at(alpha), TRAINING) for alpha in row.alphas]
        data = TEST if row.data == "test" else VALIDATION
        check(row, [logits(net, data) for net in points], labels(data))
    counts = {"Line": (5, 3), "Bezier": (5, 3), "Simplex": (1 + 3 + 3 + 2, 2)}[type(shape).__name__]
    for split in found.splits:
        rows = [row for row in found.rows if row.split == split and row.average != "logits"]
        assert (len([row for row in rows if row.kind == "point"]), len(rows)) == (counts[0], sum(counts))
    middle = ss.recalibrate(one.midpoint(), TRAINING)
    assert found["midpoint"].accuracy == accuracy_score(labels(TEST), logits(middle, TEST).argmax(1))
    expected = log_loss(labels(TEST), softmax(logits(middle, TEST)), labels=range(CLASSES))
    assert found["midpoint"].nll == pytest.approx(expected, abs=1e-5)
    answers = ["midpoint", "vertices", "random"] if shape == ss.Simplex(3) else ["midpoint", "pair"]
    assert [each.name for each in found.answers] == answers
    if shape != ss.Simplex(3):
        assert found["pair"].alphas == [0.1, 0.9]


def test_a_network_a_list_and_an_ensemble() -> None:
    torch.manual_seed(1)
    nets = [ss.recalibrate(network(), TRAINING) for _ in range(3)]
    each = [logits(net, TEST) for net in nets]
    alone = ss.evaluate(nets[0], **LOADERS)
    check(alone["midpoint"], each[:1], labels(TEST))
    assert [row.split for row in alone.rows] == ["test", "validation"]
    assert (alone.name, alone.shape["kind"]) == ("network", "single")
    several = ss.evaluate(nets, **LOADERS)
    check(several["vertices"], each, labels(TEST))
    points = [row for row in several.rows if row.kind == "point" and row.split == "test"]
    for row, out in zip(points, each, strict=True):
        check(row, [out], labels(TEST))
    ensemble = ss.evaluate(ss.Ensemble(nets), name="three", **LOADERS)
    assert ensemble.rows == several.rows
    assert (several.name, ensemble.name) == ("ensemble", "three")
    assert several.answers[0].words == "ensemble of 3 networks"


def test_an_ensemble_that_takes_its_answers_out_of_what_members_return() -> None:
    nets = [normless() for _ in range(2)]
    select = ss.Ensemble(nets, select=lambda output: output + 1)  # which no probability notices, but every logit
    found, plain = ss.evaluate(select, **LOADERS), ss.evaluate(nets, **LOADERS)
    assert list(map(about, found.rows)) == list(map(about, plain.rows))
    assert [row.nll for row in found.rows] == pytest.approx([row.nll for row in plain.rows], abs=1e-6)
    numbers = [(x, x[:, :CLASSES]) for x, _ in TEST]
    mixed = ss.Ensemble(nets, "mixture", select=lambda output: (output, output.exp()))
    rows = ss.evaluate(mixed, test=numbers, task="regression", progress=False).rows
    means = [torch.cat([net(x) for x, _ in TEST]).detach().double() for net in nets]
    targets = torch.cat([y for _, y in numbers])
    for row, mean in zip(rows, means, strict=False):
        normal = torch.distributions.Normal(mean, mean.div(2).exp())
        assert row.gaussian_nll == pytest.approx(float(-normal.log_prob(targets).mean()), abs=1e-5)


@pytest.mark.parametrize("name", ["held-out", "curve"])
def test_the_family_of_a_run_on_its_batches_has_the_rows_of_the_run(name: str, runs: Any) -> None:
    (folder,) = runs(name)
    run = ss.evaluate(folder, device="cpu", progress=False, grid=(0.0, 0.1, 0.4))
    truth = Independent(folder)
    recipe, data = truth.recipe, truth.dataset
    splits = ["test", *(["validation"] if recipe.validation else [])]
    loaders = {split: evaluation_batches(getattr(data, split), recipe, data, CPU) for split in splits}
    training = list(statistics_batches(recipe, data, CPU))
    own = ss.evaluate(truth.family, statistics=training, progress=False, grid=(0.0, 0.1, 0.4), **loaders)  # type: ignore[call-overload]
    assert own.rows == run.rows
    assert own.choices == run.choices
    assert own.statistics["images"] == run.statistics["images"]


def loader(shuffle: bool = False) -> DataLoader[Any]:
    x, y = (torch.cat(parts) for parts in zip(*TEST, strict=True))
    return DataLoader(TensorDataset(x, y), batch_size=64, shuffle=shuffle)


def test_a_loader_gives_the_rows_of_its_batches_and_one_that_shuffles_is_refused() -> None:
    one = family(ss.Line(), normless)
    assert ss.evaluate(one, test=loader(), progress=False).rows == ss.evaluate(one, test=TEST, progress=False).rows
    with pytest.raises(ValueError, match=r"the test loader gave other labels, or another order .* does not shuffle"):
        ss.evaluate(one, test=loader(shuffle=True), progress=False)
    with pytest.raises(ValueError, match="the validation loader gave other labels"):
        ss.evaluate(one, test=TEST, validation=loader(shuffle=True), progress=False)


def test_statistics_may_come_from_a_loader_that_shuffles_and_every_point_gets_the_same() -> None:
    x, y = (torch.cat(parts) for parts in zip(*TRAINING, strict=True))
    training = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    one = ss.Subspace.from_modules([made := network(), made], ss.Line())  # every point is the same network
    found = ss.evaluate(one, test=TEST, statistics=training, statistics_batches=2, progress=False)
    likelihoods = [row.nll for row in found.rows if row.kind == "point"]
    assert max(likelihoods) - min(likelihoods) < 1e-6  # which is the rounding of the mixtures
    others = [float(np.ptp([logits(ss.recalibrate(made, training, batches=2), TEST) for _ in range(2)], 0).max())]
    assert min(others) > 1e-3
    assert found.statistics["images"] == 64


def test_statistics_are_made_for_copies_of_plain_networks() -> None:
    net = network()
    before = snapshot(net)
    expected = logits(ss.recalibrate(copy.deepcopy(net), TRAINING), TEST)
    check(ss.evaluate(net, test=TEST, statistics=TRAINING, progress=False)["midpoint"], [expected], labels(TEST))
    check(
        ss.evaluate([net, net], test=TEST, statistics=TRAINING, progress=False)["vertices"],
        [expected] * 2,
        labels(TEST),
    )
    assert_same_state(net, before)


# What belongs to the caller is left alone


def modes(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


@pytest.mark.parametrize("kind", ["family", "network", "list", "ensemble"])
def test_modes_weights_and_random_numbers_are_those_of_before(kind: str) -> None:
    torch.manual_seed(5)
    nets = [ss.recalibrate(network(), TRAINING) for _ in range(2)]
    what: Any = {"family": family(ss.Line()), "network": nets[0], "list": nets, "ensemble": ss.Ensemble(nets)}[kind]
    several = what if isinstance(what, list) else [what]
    expected = ss.evaluate(what, **LOADERS).rows
    for training in (True, False):
        for module in several:
            module.train(training)
            list(module.modules())[-1].training = not training  # one part is in the other mode
            next(module.parameters()).requires_grad_(False)
        before = [
            (modes(module), snapshot(module), [p.requires_grad for p in module.parameters()]) for module in several
        ]
        torch.manual_seed(11)
        random.seed(11)
        np.random.seed(11)
        states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
        assert ss.evaluate(what, **LOADERS).rows == expected
        assert torch.equal(torch.get_rng_state(), states[0])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]  # type: ignore[union-attr]
        for module, (mode, state, trained) in zip(several, before, strict=True):
            assert modes(module) == mode
            assert_same_state(module, state)
            assert [p.requires_grad for p in module.parameters()] == trained


def test_a_plane_through_a_line_and_a_network_of_the_users_own() -> None:
    one, third = family(ss.Line(), normless), normless()
    settings: dict[str, Any] = {"test": TEST, "cells": 4, "grid": (), "progress": False}
    (plane,) = ss.evaluate(one, through=[third], **settings).planes
    assert [corner.label for corner in plane.corners] == ["α = 0", "α = 1", "network 1"]
    (others,) = ss.evaluate(one, through=[one.at(0.0), one.at(1.0), third], **settings).planes
    assert others.values == plane.values
    with pytest.raises(ValueError, match=r"network 1 has no 0\.weight: a plane goes through networks of one"):
        ss.evaluate(one, through=[nn.Identity()], **settings)
