"""Every use of a seed has random numbers of its own."""

import itertools

import pytest
import torch
from helpers import quick
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import subspaces as ss
from subspaces.core import randomness
from subspaces.core.randomness import new_state
from subspaces.experiments.studies.mixtures import KINDS

seeds = st.integers(0, randomness.SEEDS - 1)
uses = st.sampled_from(sorted(randomness.USES))
parts = st.integers(0, randomness.PARTS - 1)


def read(number: int) -> tuple[int, int, int, bool]:
    """Seed, part, use and whether it is for statistics, out of the bits of a number."""
    return number % 2**32, number >> 32 & 2**24 - 1, number >> 56 & 63, bool(number >> 62)


@quick
@given(seeds, uses, parts, st.booleans())
def test_a_number_can_be_read_back_so_that_no_two_are_the_same(seed, use, part, statistics):
    chosen = randomness.statistics_seed(seed) if statistics else seed
    number = randomness.number(chosen, use, part)
    assert read(number) == (seed, part, randomness.USES[use], statistics)
    assert number < 2**64  # torch takes no more


def test_uses_are_numbered_once_and_fit():
    assert len(set(randomness.USES.values())) == len(randomness.USES)
    assert set(randomness.USES.values()) <= set(range(64))


@quick
@given(st.integers(0, len(KINDS) - 1), st.integers(0, randomness.PARTS // 256 - 1))
def test_a_draw_of_a_kind_is_a_part_of_its_own(kind, draw):
    part = randomness.mixture(kind, draw)
    assert divmod(part, 256) == (draw, kind)
    assert part < randomness.PARTS


def test_states_of_all_uses_differ():
    ends = (0, 1, randomness.SEEDS - 1)
    starts = [*ends, *(randomness.statistics_seed(seed) for seed in ends)]
    corners = itertools.product(starts, randomness.USES, (0, 1, 255, 256, randomness.EPOCHS, randomness.PARTS - 1))
    states = [tuple(randomness.stream(*corner).tolist()) for corner in corners]
    assert len(set(states)) == len(states)
    assert all(counter == 0 for _, counter in states)


def test_numbers_are_fixed_for_good():
    """Results name seeds: these numbers are those that the runs were made with."""
    known = {
        ("family", 0): 5,
        ("digits", 0): 5 + (1 << 56),
        ("validation", 0): 5 + (2 << 56),
        ("label noise", 0): 5 + (3 << 56),
        ("batches", 3): 5 + (3 << 32) + (4 << 56),
        ("augmentation", 3): 5 + (3 << 32) + (5 << 56),
        ("points", 0): 5 + (6 << 56),
        ("dropout", 0): 5 + (7 << 56),
        ("mixtures", randomness.mixture(2, 3)): 5 + (2 << 32) + (3 << 40) + (8 << 56),
        ("corruptions", 4): 5 + (4 << 32) + (9 << 56),
        ("selection", 0): 5 + (10 << 56),
        ("processes", 1): 5 + (1 << 32) + (11 << 56),
    }
    assert {use for use, _ in known} == set(randomness.USES)
    for (use, part), number in known.items():
        assert randomness.number(5, use, part) == number
        assert torch.equal(randomness.stream(5, use, part), new_state(number))
    assert randomness.statistics_seed(5) == 5 + 2**62


def test_a_family_draws_from_the_stream_of_its_bare_seed():
    family = ss.Subspace(lambda: nn.Linear(2, 2), ss.Line(), seed=9)
    assert torch.equal(family.rng, randomness.stream(9, "family"))


@pytest.mark.parametrize("part", [-1, randomness.PARTS])
def test_a_part_that_would_reach_into_another_use_is_refused(part):
    with pytest.raises(ValueError, match=rf"part {part} of the random numbers for batches: expected 0 to 16777215"):
        randomness.stream(0, "batches", part)
