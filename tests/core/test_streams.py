"""Every purpose of a seed has random numbers of its own."""

import itertools

import torch
from torch import nn

import subspaces as ss
from subspaces.core import randomness

PURPOSES = ("digits", "validation", "label noise", "batches", "augmentation", "points", "dropout", "mixtures")


def test_streams_of_all_seeds_purposes_and_parts_differ():
    seeds = (0, 1, 2, 2**32, randomness.SEEDS - 1)
    corners = itertools.product(seeds, PURPOSES, (0, 1, 255, 2**40, ("global", 1), ("global", 2)))
    states = [tuple(randomness.stream(*corner).tolist()) for corner in corners]
    assert len(set(states)) == len(states)
    assert all(counter == 0 for _, counter in states)


def test_numbers_are_fixed_for_good():
    """Results name seeds: these numbers are those that runs are made with."""
    known = {
        ("batches", 0): 8702057007617766689,
        ("batches", 3): 6264825409802239824,
        ("statistics", 0): 4686199246475631324,
        ("mixtures", ("global", 1)): 7042194868967625846,
    }
    assert {each: randomness.number(5, *each) for each in known} == known
    assert all(0 <= number < randomness.SEEDS for number in known.values())  # torch takes no more
    for each, number in known.items():
        assert torch.equal(randomness.stream(5, *each), randomness.new_state(number))


def test_a_family_draws_from_the_stream_of_its_bare_seed():
    family = ss.Subspace(lambda: nn.Linear(2, 2), ss.Line(), seed=9)
    assert torch.equal(family.rng, randomness.new_state(9))
