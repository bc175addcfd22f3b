"""Each baseline on the engine, bit for bit against a training loop written by hand."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close
from training_cases import CPU, DIGITS, accuracy, digits, make_mlp, train_one

import subspaces as ss
from subspaces.core.layout import Layout
from subspaces.experiments import data
from subspaces.experiments.methods import checkpoints
from subspaces.experiments.methods.baselines import Stopping
from subspaces.experiments.training import Recipe, Run
from subspaces.experiments.training.api import configure
from subspaces.experiments.training.batches import evaluation_batches, statistics_batches, training_batches

Weights = dict[str, Tensor]
BASE = dataclasses.replace(DIGITS, epochs=8, batch=300)  # 4 steps an epoch


def change(**changes) -> Recipe:
    return dataclasses.replace(BASE, **changes)


def copied(network: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def loop(
    recipe: Recipe,
    after_step: Callable[[nn.Module], None] | None = None,
    after_epoch: Callable[[nn.Module, int], None] | None = None,
    climb: float = 0.0,
    dataset: data.Dataset | None = None,
) -> nn.Module:
    """Ordinary training, with SAM where there is something to climb."""
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        network = make_mlp()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loader = training_batches(recipe, dataset or digits(), CPU)
    for epoch in range(recipe.epochs):
        optimizer.param_groups[0]["lr"] = recipe.rate(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            if climb:
                two_passes(network, x, y, climb)
            optimizer.step()
            if after_step:
                after_step(network)
        if after_epoch:
            after_epoch(network, epoch + 1)
    return network


def two_passes(network: nn.Module, x: Tensor, y: Tensor, rho: float) -> None:
    """Go to θ + ρ g/‖g‖, take the gradient there, go back; ‖g‖ in the order in which the family adds it up."""
    here = copied(network)
    gradients = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    groups = sorted(Layout.of(network).groups, key=lambda group: group.name)
    norms = torch.stack([group.pack(gradients).norm() for group in groups])
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.add_(gradients[name] * (rho / (norms.norm() + 1e-12)))
    network.zero_grad()
    F.cross_entropy(network(x), y).backward()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(here[name])


def family_of(run: Run) -> ss.Subspace:
    family = ss.load(run.family_file, make_mlp)
    assert family.shape == run.recipe.result_shape()
    return family


def assert_vertices(family: ss.Subspace, expected: list[Weights]) -> None:
    assert family.shape.vertices == len(expected)
    for index, weights in enumerate(expected):
        found = family.vertex(index)
        for name, value in weights.items():
            assert torch.equal(found[name], value), (index, name)


def checkpoints_by_hand(recipe: Recipe) -> list[Weights]:
    kept: list[Weights] = []
    loop(recipe, after_epoch=lambda net, epoch: kept.append(copied(net)) if epoch in recipe.checkpoints() else None)
    return kept


# Bit for bit


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"method": "swa-cyclic", "vertices": 3}, [6, 7, 8]),
        ({"method": "swa-constant", "vertices": 2, "seed": 1}, [6, 8]),
        ({"method": "snapshot", "vertices": 4}, [2, 4, 6, 8]),
        ({"method": "fge", "vertices": 2, "epochs": 15}, [13, 15]),
    ],
    ids=str,
)
def test_the_vertices_are_the_checkpoints(changes, after, tmp_path: Path):
    recipe = change(**changes)
    assert recipe.checkpoints() == after
    expected = checkpoints_by_hand(recipe)
    family = family_of(train_one(recipe, tmp_path))
    assert_vertices(family, expected)
    for name, value in family.midpoint().named_parameters():
        assert_close(value.detach(), sum(one[name] for one in expected) / len(expected))


def test_the_vertices_of_swag_are_drawn_from_its_checkpoints(tmp_path: Path):
    recipe = change(method="swag", vertices=3, seed=2)
    layout = Layout.of(make_mlp())
    kept = [{group.name: group.pack(one) for group in layout.groups} for one in checkpoints_by_hand(recipe)]
    drawn = checkpoints.draw(kept, 3, recipe.seed)
    expected = [
        {name: value for group in layout.groups for name, value in group.unpack(one[group.name]).items()}
        for one in drawn
    ]
    assert_vertices(family_of(train_one(recipe, tmp_path)), expected)


@pytest.mark.parametrize("decay", [0.999])
def test_ema_is_the_average_of_a_loop(decay, tmp_path: Path):
    recipe = change(method="ema", ema_decay=decay)
    sums = {name: torch.zeros_like(value) for name, value in make_mlp().named_parameters()}

    def average(network: nn.Module) -> None:
        for name, value in network.named_parameters():
            sums[name].lerp_(value.detach(), 1 - decay)

    loop(recipe, after_step=average)
    steps = 4 * recipe.epochs
    expected = {name: total / (1 - decay**steps) for name, total in sums.items()}
    assert_vertices(family_of(train_one(recipe, tmp_path)), [expected])


@pytest.mark.parametrize("rho", [0.5])
def test_sam_is_a_loop_of_two_passes(rho, tmp_path: Path):
    recipe = change(method="sam", sam_rho=rho, epochs=4)
    assert_vertices(family_of(train_one(recipe, tmp_path)), [copied(loop(recipe, climb=rho))])


def test_early_stopping_keeps_the_epoch_that_is_best_on_validation_images(tmp_path: Path):
    dataset = data.load("digits", label_noise=0.4, validation=200)
    recipe = change(method="early-stopping", validation=200, label_noise=0.4, epochs=10, schedule="constant", seed=1)
    kept: list[tuple[Weights, dict[str, float]]] = []

    def look(network: nn.Module, epoch: int) -> None:
        other = make_mlp()
        other.load_state_dict(network.state_dict())
        ss.recalibrate(other, statistics_batches(recipe, dataset, CPU), batches=Stopping.watch)
        other.eval()
        splits = {"validation": dataset.validation, "test": dataset.test}
        scores = {
            f"{name}_accuracy": accuracy(other, evaluation_batches(split, recipe, dataset, CPU))
            for name, split in splits.items()
        }
        kept.append((copied(network), scores))

    loop(recipe, after_epoch=look, dataset=dataset)
    best = {name: max(range(10), key=lambda i: kept[i][1][name]) for name in ("validation_accuracy", "test_accuracy")}
    assert 0 < best["validation_accuracy"] < 9
    run = train_one(recipe, tmp_path, dataset)
    assert_vertices(family_of(run), [kept[best["validation_accuracy"]][0]])
    assert run.result["stopping"] == [
        {"chosen_on": split, "epoch": best[f"{split}_accuracy"] + 1, **kept[best[f"{split}_accuracy"]][1]}
        for split in ("validation", "test")
    ]
    assert [row["validation_accuracy"] for row in run.log()] == [scores["validation_accuracy"] for _, scores in kept]


# What the result says


def test_the_accuracy_of_an_ensemble_is_that_of_all_its_members(tmp_path: Path):
    run = train_one(change(method="snapshot", vertices=4), tmp_path)
    members = family_of(run).ensemble(torch.eye(4))
    ss.recalibrate(members, statistics_batches(run.recipe, digits(), CPU))
    assert run.result["test_accuracy"] == right(members.eval(), run.recipe)
    l2, cos2 = family_of(run).distances()
    pairs = torch.triu_indices(4, 4, 1)
    assert run.result["l2"] == pytest.approx(l2[pairs[0], pairs[1]].mean().item(), rel=1e-5)
    assert run.result["cos2"] == pytest.approx(cos2[pairs[0], pairs[1]].mean().item(), rel=1e-5)


def right(network: nn.Module, recipe: Recipe) -> float:
    return accuracy(network, evaluation_batches(digits().test, recipe, digits(), CPU))


# All of them, to the end

METHODS = {
    "swa-cyclic": {"epochs": 4, "vertices": 2},
    "swag": {"epochs": 8, "vertices": 3},
    "early-stopping": {"epochs": 2, "validation": 200},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_run_of_every_method_can_be_evaluated(name, tmp_path: Path):
    quiet = {"out": tmp_path, "show": "quiet"}
    (run,) = ss.train(f"digits-{name}", batch=400, device="cpu", **quiet, **METHODS[name])
    evaluation = ss.evaluate(run, device="cpu", progress=False)
    assert run.result["epoch"] == METHODS[name]["epochs"]
    assert tuple(answer.name for answer in evaluation.answers) == run.recipe.answers
    own = evaluation[run.recipe.answers[0]]
    if run.recipe.answers[0] == "vertices":
        assert len(own.alphas) == run.recipe.vertices
    assert own.metrics["accuracy"] == pytest.approx(run.result["test_accuracy"], abs=1e-6)
    points = [row for row in evaluation.rows if row.kind == "point" and row.split == "test"]
    if name == "swa-cyclic":  # two checkpoints can be walked along like a line
        assert sorted(row.alphas[0] for row in points) == pytest.approx([step / 20 for step in range(21)])


def test_what_only_some_methods_use_is_for_those():
    recipes = ["digits-standard", "digits-simplex", "digits-ema", "digits-line"]
    found, _ = configure(recipes, None, {"ema_decay": 0.9, "vertices": 6, "epochs": 3})
    assert [one.epochs for one in found] == [3] * 4
    assert [one.definition.own().get("ema_decay") for one in found] == [None, None, 0.9, None]
    assert [one.definition.own().get("vertices") for one in found] == [None, 6, None, None]
    found, _ = configure(["digits-standard", "digits-swa-cyclic"], None, {"schedule": "constant"})
    assert [one.schedule for one in found] == ["constant", "swa-cyclic"]
    found, _ = configure(["digits-standard", "digits-line"], None, {"samples": 2, "feature_similarity": 1})
    assert [one.definition.own().get("samples") for one in found] == [None, 2]
