"""The engine on the CPU against training loops written by hand, and each of its options."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.func import functional_call
from torch.testing import assert_close
from training_cases import CPU, DIGITS, contents, digits, made_dataset, make_mlp, rows, train_one

import subspaces as ss
from subspaces.core import randomness
from subspaces.experiments import data
from subspaces.experiments.training import Execution, Recipe
from subspaces.experiments.training.batches import training_batches
from subspaces.experiments.training.engine import Engine
from subspaces.networks import MLP

RATES = [0.01, 0.02, 0.03]  # of DIGITS: 0.05 e / 5 in epoch e = 1, 2, 3


def change(recipe: Recipe = DIGITS, **changes) -> Recipe:
    return dataclasses.replace(recipe, **changes)


def trained(recipe: Recipe, out: Path, network: Callable[[], nn.Module] = make_mlp, **options) -> ss.Subspace:
    """The family that training leaves in its file."""
    return ss.load(train_one(recipe, out, **options).family_file, network)


def batches(recipe: Recipe) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch after the other of the batches that the engine gets."""
    loader = training_batches(recipe, digits(), CPU)
    for _ in range(recipe.epochs):
        yield from loader


def networks(recipe: Recipe, count: int) -> list[MLP]:
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        return [MLP(64, 10) for _ in range(count)]


def cos2(vertices: list[dict[str, Tensor]]) -> Tensor:
    """cos² over all matrices, by its definition."""
    a, b = (torch.cat([value.flatten() for value in vertex.values() if value.ndim > 1]) for vertex in vertices)
    return (a @ b) ** 2 / ((a @ a) * (b @ b))


# Loops by hand


def plain_loop(recipe: Recipe) -> tuple[nn.Module, list[list[float]]]:
    """Ordinary training of an ordinary network, and the mean loss and accuracy of each epoch."""
    (network,) = networks(recipe, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loader = training_batches(recipe, digits(), CPU)
    found = []
    for rate in RATES:
        optimizer.param_groups[0]["lr"] = rate
        loss_sum, hits, images = 0.0, 0, 0
        for x, y in loader:
            logits = network(x)
            loss = F.cross_entropy(logits, y, label_smoothing=recipe.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(y)
            hits += int((logits.argmax(1) == y).sum())
            images += len(y)
        found.append([loss_sum / images, hits / images])
    return network, found


@pytest.mark.parametrize(
    "changes", [{}, {"label_smoothing": 0.1}, {"batch": 128, "seed": 3}, {"pad": 2, "flip": True}], ids=str
)
def test_a_single_network_is_ordinary_training_bit_for_bit(changes, tmp_path: Path):
    recipe = change(**changes)
    network, expected = plain_loop(recipe)
    run = train_one(recipe, tmp_path)
    vertex = ss.load(run.family_file, make_mlp).vertex(0)
    for name, value in network.named_parameters():
        assert torch.equal(vertex[name], value), name
    for row, (loss, share) in zip(run.log(), expected, strict=True):
        assert row["loss"] == pytest.approx(loss, rel=1e-6)
        assert row["train_accuracy"] == share


def mixed_loop(
    recipe: Recipe, count: int, draw: Callable[[Tensor], list[Tensor]], pair: Callable[[Tensor], list[int]]
) -> tuple[list[dict[str, Tensor]], list[float]]:
    """Train several sets of parameters, mixed by hand: α from `draw`, penalty on the `pair`, SGD by its formula."""
    template = networks(recipe, 1)[0]
    vertices = [
        {name: value.detach().clone().requires_grad_() for name, value in network.named_parameters()}
        for network in networks(recipe, count)
    ]
    everything = [value for vertex in vertices for value in vertex.values()]
    momenta = [torch.zeros_like(value) for value in everything]
    state = randomness.new_state(recipe.seed)
    losses = []
    stream = batches(recipe)
    for rate in RATES:
        loss_sum = 0.0
        for _ in range(math.ceil(1200 / recipe.batch)):
            x, y = next(stream)
            c = draw(state)
            point = {
                name: sum(share * vertex[name] for share, vertex in zip(c, vertices, strict=True))
                for name in vertices[0]
            }
            loss = F.cross_entropy(functional_call(template, point, (x,)), y)
            loss_sum += loss.item() * len(y)
            j, k = pair(state)
            objective = loss + recipe.beta * cos2([vertices[j], vertices[k]])
            gradients = torch.autograd.grad(objective, everything)
            with torch.no_grad():
                for value, momentum, gradient in zip(everything, momenta, gradients, strict=True):
                    momentum.mul_(0.9).add_(gradient + 1e-4 * value)
                    value.sub_(rate * momentum)
        losses.append(loss_sum / 1200)
    return vertices, losses


def assert_same_vertices(family: ss.Subspace, vertices: list[dict[str, Tensor]]) -> None:
    for index, expected in enumerate(vertices):
        found = family.vertex(index)
        for name, value in expected.items():
            assert_close(found[name], value.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_line_is_two_sets_of_parameters_mixed_by_hand(beta, tmp_path: Path):
    recipe = change(method="line", beta=beta, seed=3)

    def draw(state: Tensor) -> list[Tensor]:
        alpha = randomness.uniform(state)
        return [1 - alpha, alpha]

    vertices, losses = mixed_loop(recipe, 2, draw, lambda state: [0, 1])
    first, second = vertices
    run = train_one(recipe, tmp_path)
    assert_same_vertices(ss.load(run.family_file, make_mlp), vertices)
    last = run.log()[-1]
    assert [row["loss"] for row in run.log()] == pytest.approx(losses, rel=1e-5)
    weights = ("body.1.weight", "body.4.weight", "head.weight")
    squares = sum((first[name] - second[name]).square().sum() for name in weights)
    assert last["l2"] == pytest.approx(squares.sqrt().item(), rel=1e-5)
    assert last["cos2"] == pytest.approx(cos2(vertices).item(), abs=1e-6)


def test_a_simplex_is_three_sets_with_a_random_pair_penalised(tmp_path: Path):
    recipe = change(method="simplex", vertices=3, seed=3)

    def draw(state: Tensor) -> list[Tensor]:
        exponentials = -torch.log(1 - randomness.uniform(state, (3,)))
        return list(exponentials / exponentials.sum())

    vertices, losses = mixed_loop(recipe, 3, draw, lambda state: randomness.pair(state, 3))
    run = train_one(recipe, tmp_path)
    assert_same_vertices(ss.load(run.family_file, make_mlp), vertices)
    assert [row["loss"] for row in run.log()] == pytest.approx(losses, rel=1e-5)


# Options


@pytest.mark.parametrize("optimizer", ["RMSprop", "NAdam"])
def test_any_optimiser_by_name(optimizer, tmp_path: Path):
    run = train_one(change(method="line", optimizer=optimizer, learning_rate=0.01, momentum=0.0, epochs=5), tmp_path)
    assert run.log()[-1]["train_accuracy"] > run.log()[0]["train_accuracy"]
    assert run.result["test_accuracy"] > 0.6


# State


# Evaluation


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "line"},
        {"network": "training_cases:dropped", "dropout": 0.5},
        {"method": "simplex", "optimizer": "Adam"},
    ],
    ids=str,
)
def test_evaluations_during_training_leave_no_trace(changes, tmp_path: Path):
    recipe = change(**changes)
    often = train_one(recipe, tmp_path / "often", execution=dataclasses.replace(CPU, evaluate_every=1))
    never = train_one(recipe, tmp_path / "never", execution=dataclasses.replace(CPU, evaluate_every=0))
    assert [("test_accuracy" in row) for row in often.log()] == [True, True, False]
    assert not any("test_accuracy" in row for row in never.log())
    scores = ("test_accuracy", "validation_accuracy")
    plain = [{name: value for name, value in row.items() if name not in scores} for row in rows(often)]
    assert plain == rows(never)
    assert contents(often.family_file)[1] == contents(never.family_file)[1]
    assert often.result["test_accuracy"] == never.result["test_accuracy"]


def test_the_test_set_is_left_alone_until_the_end_where_there_is_a_validation_set(tmp_path: Path):
    dataset = data.load("digits", validation=200)
    execution = dataclasses.replace(CPU, evaluate_every=2)
    run = train_one(change(validation=200, epochs=4), tmp_path, dataset=dataset, execution=execution)
    assert [sorted(name for name in row if "_accuracy" in name) for row in run.log()] == [
        ["train_accuracy"],
        ["train_accuracy", "validation_accuracy"],
        ["train_accuracy"],
        ["train_accuracy"],
    ]
    assert {"validation_accuracy", "test_accuracy"} <= set(run.result)


# Compiled


@pytest.mark.filterwarnings("ignore")
def test_runs_that_differ_in_numbers_share_a_program():
    base = Recipe(name="small", dataset="made", network="mlp", batch=16, method="line")
    execution, dataset, counter = Execution(device="cpu", compile=True).resolved(), made_dataset(), CompileCounter()
    changes = [{}, {"seed": 1}, {"beta": 0.5}, {"learning_rate": 0.01}, {"name": "other", "epochs": 3}]
    for change in changes:
        engine = Engine(dataclasses.replace(base, **change), dataset, execution)
        torch.compile(engine.objective, backend=counter, dynamic=False)(*engine.loader.take(16)).backward()
    assert counter.frame_count == 1


def test_many_runs_may_be_compiled_and_the_limits_of_the_caller_stay(tmp_path, monkeypatch):
    limits: list[int] = []
    before = torch._dynamo.config.recompile_limit
    monkeypatch.setattr(torch, "compile", lambda work, **_: limits.append(torch._dynamo.config.recompile_limit) or work)
    execution = dataclasses.replace(CPU, compile=True)
    train_one(dataclasses.replace(DIGITS, epochs=1), tmp_path, execution=execution)
    assert set(limits) == {2**16}
    assert torch._dynamo.config.recompile_limit == before
