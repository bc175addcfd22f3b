"""Runs that are one program on a CUDA device: compiled and captured, each is what it is alone."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor
from training_cases import copy_state, made_dataset, run_epochs, run_steps

from subspaces.experiments.training import Execution, Recipe
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.stack import Stack, likeness

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

RECIPES = [
    Recipe(
        name="small",
        dataset="made",
        network="cresnet20",
        method="line",
        epochs=1,
        batch=16,
        pad=2,
        learning_rate=0.002,
        schedule="constant",
        seed=seed,
    )
    for seed in range(3)
]
DATA = made_dataset(train=200, test=10, channels=3, side=32)  # 12 batches of 16, ten of them one graph, and one of 8
States = list[dict[str, Tensor]]


def execution(precision: str, fast: bool = False) -> Execution:
    return Execution(device="cuda", precision=precision, evaluate_every=0, compile=fast, graph=fast).resolved()


def engines(how: Execution, states: Sequence[dict[str, Tensor]] = ()) -> list[Engine]:
    first = Engine(RECIPES[0], DATA, how)
    found = [first, *(Engine(recipe, DATA, how, first.loader) for recipe in RECIPES[1:])]
    for engine, state in zip(found, states, strict=False):
        with torch.cuda.stream(engine.stream):
            engine.load(state)
    return found


def alone(how: Execution) -> States:
    found = engines(how)
    for engine in found:
        run_epochs(engine, [0])
    torch.cuda.synchronize()
    return [copy_state(engine) for engine in found]


def together(how: Execution, steps: int, done: int = 0, states: Sequence[dict[str, Tensor]] = ()) -> States:
    """The states of engines that are one program after so many steps of an epoch: from its start, or from states."""
    found = engines(how, states)
    Stack(found)
    for engine in found:
        with torch.cuda.stream(engine.stream):
            engine.set_epoch(0)
            if not states:
                engine.start_epoch()
    assert run_steps(found[0], steps, done) == steps
    torch.cuda.synchronize()
    return [copy_state(engine) for engine in found]


@pytest.fixture(scope="module")
def expected() -> Iterator[tuple[States, States]]:
    """The same runs alone and as they are written: in full float32, and in bfloat16."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield alone(execution("float32")), alone(execution("bfloat16"))
    torch.backends.cudnn.allow_tf32 = before


def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    names = [name for name in first if name.startswith("family.omega")]
    return sum(float((first[name] - second[name]).square().sum()) for name in names) ** 0.5


def assert_as_close(found: States, expected: tuple[States, States]) -> None:
    """Weights are as close to those in float32 as bfloat16 lets them be; random numbers and places are the same."""
    for state, exact, low in zip(found, *expected, strict=True):
        assert state.keys() == exact.keys()
        assert apart(state, exact) < 1.5 * apart(low, exact)
        assert apart(state, low) < 1.5 * apart(low, exact)
        for name, value in exact.items():
            if not value.is_floating_point():
                assert torch.equal(state[name], value)


def test_the_recipes_can_be_one_program() -> None:
    assert len({likeness(recipe) for recipe in RECIPES} - {None}) == 1


@pytest.mark.filterwarnings("ignore")  # what the compiler's own parts warn of
def test_each_run_of_a_compiled_stack_is_what_it_is_alone(expected) -> None:
    torch.compiler.reset()
    found = together(execution("bfloat16", fast=True), 13)
    assert_as_close(found, expected)
    assert apart(found[0], found[1]) > 10 * apart(found[0], expected[0][0])  # they differ by more than by rounding


@pytest.mark.filterwarnings("ignore")
def test_the_states_of_a_compiled_stack_continue_in_another(expected) -> None:
    torch.compiler.reset()
    how = execution("bfloat16", fast=True)
    states = together(how, 10)
    assert [int(state["position"]) for state in states] == [160] * 3
    assert_as_close(together(how, 13, 10, states), expected)
