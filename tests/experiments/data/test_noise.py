import math

import pytest
import torch

from subspaces.core.randomness import permutation, stream
from subspaces.experiments.data import noise

LABELS = torch.arange(20_000) % 10


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.4, 1.0])
def test_about_nine_tenths_of_the_fraction_are_wrong(fraction):
    changed = noise.noisy(LABELS, 10, fraction, seed=0)
    wrong = (changed != LABELS).double().mean().item()
    deviation = math.sqrt(fraction * 0.9 * 0.1 / len(LABELS))
    assert abs(wrong - 0.9 * fraction) <= 5 * deviation
    assert changed.dtype == torch.int64


def test_drawn_labels_are_uniform_over_all_classes():
    counts = noise.noisy(torch.zeros(20_000, dtype=torch.int64), 10, 1.0, seed=3).bincount(minlength=10)
    chi2 = ((counts - 2000.0) ** 2 / 2000).sum()
    assert chi2 < 27.9  # 0.1 % of 9 degrees of freedom


def test_exactly_the_first_of_one_order_are_drawn():
    """With a class of its own as the true label, every draw shows."""
    truth = torch.full((100,), 10)
    for fraction, count in ((0.29, 29), (0.295, 29), (0.3, 30), (1.0, 100)):
        assert (noise.noisy(truth, 10, fraction, seed=0) != 10).sum() == count


def test_more_noise_adds_to_less():
    some, more = (noise.noisy(torch.full((500,), 10), 10, fraction, seed=1) for fraction in (0.2, 0.5))
    touched = some != 10
    assert torch.equal(some[touched], more[touched])


def test_same_for_everyone_and_fixed_for_good():
    first = noise.noisy(LABELS, 10, 0.4, seed=5)
    torch.manual_seed(99)
    assert torch.equal(first, noise.noisy(LABELS, 10, 0.4, seed=5))
    assert not torch.equal(first, noise.noisy(LABELS, 10, 0.4, seed=6))
    # Who is drawn and which label they get does not depend on the labels themselves.
    other = noise.noisy((LABELS + 1) % 10, 10, 0.4, seed=5)
    moved = (first != LABELS) & (other != (LABELS + 1) % 10)
    assert torch.equal(first[moved], other[moved])
    # Written down once: files of results name a data seed.
    assert permutation(stream(0, "label noise"), 8).tolist() == PERMUTATION
    assert noise.noisy(torch.full((8,), 10), 10, 0.5, seed=0).tolist() == DRAWN


PERMUTATION = [2, 3, 5, 4, 1, 0, 6, 7]
DRAWN = [10, 10, 9, 5, 2, 7, 10, 10]


def test_the_argument_is_not_changed():
    before = LABELS.clone()
    noise.noisy(LABELS, 10, 1.0, seed=0)
    assert torch.equal(LABELS, before)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_outside_is_refused(fraction):
    with pytest.raises(ValueError, match=r"label_noise=.*between 0 and 1"):
        noise.noisy(LABELS, 10, fraction, seed=0)


@pytest.mark.parametrize("count", [0, 1, 30, 99])
def test_held_out_is_disjoint_and_complete(count):
    stay, out = noise.held_out(100, count, seed=0)
    assert len(out) == count
    assert sorted([*stay.tolist(), *out.tolist()]) == list(range(100))
    assert stay.tolist() == sorted(stay.tolist())


def test_held_out_depends_on_the_seed_alone():
    assert torch.equal(noise.held_out(100, 30, 1)[1], noise.held_out(100, 30, 1)[1])
    assert not torch.equal(noise.held_out(100, 30, 1)[1], noise.held_out(100, 30, 2)[1])


@pytest.mark.parametrize("seed", [0, 3])
def test_who_is_held_out_has_a_stream_of_its_own(seed):
    """Or those with noisy labels would be the ones that are left."""
    order = permutation(stream(seed, "validation"), 100)
    assert noise.held_out(100, 30, seed)[1].tolist() == sorted(order[:30].tolist())
    touched = noise.noisy(torch.full((100,), 10), 10, 0.3, seed) != 10
    assert sorted(order[:30].tolist()) != touched.nonzero().flatten().tolist()


@pytest.mark.parametrize("count", [-1, 100, 101])
def test_held_out_leaves_something(count):
    with pytest.raises(ValueError, match=f"validation={count}: expected 0 to 99"):
        noise.held_out(100, count, 0)


def test_uses_of_a_seed_are_unrelated():
    uses = ("digits", "validation", "label noise", "batches", "augmentation")
    orders = [permutation(stream(0, use), 1000).double() for use in uses]
    correlations = torch.corrcoef(torch.stack(orders)).fill_diagonal_(0)
    assert correlations.abs().max() < 0.15
