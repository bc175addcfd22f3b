"""Learning rates over the epochs: the paper's values, and what holds at any number of epochs."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subspaces.experiments.methods import METHODS
from subspaces.experiments.methods.rates import SCHEDULES

lengths = st.integers(1, 400)
quick = settings(max_examples=60, deadline=None, derandomize=True)


OWN = {"snapshot": 6, "swa-cyclic": 3, "swa-constant": 3, "fge": 6}  # methods with a schedule, and how many they keep


def rates(name: str, epochs: int, peak: float = 0.1, m: int | None = None) -> list[float]:
    rate = METHODS[name](vertices=m or OWN[name]).rate if name in OWN else SCHEDULES[name].rate
    return [rate(epoch, epochs, peak) for epoch in range(epochs)]


def kept(name: str, epochs: int, m: int) -> list[int]:
    return METHODS[name](vertices=m).checkpoints(epochs)


def test_every_schedule_is_in_these_tests():
    assert {kind.schedule for kind in METHODS.values() if kind.schedule} == set(OWN)
    assert set(SCHEDULES) == {"warmup-cosine", "constant"}


# The paper's 160 epochs


def test_warmup_is_five_equal_steps_to_the_peak():
    assert rates("warmup-cosine", 160)[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])


def test_cosine_by_formula_and_at_its_ends():
    found = rates("warmup-cosine", 160)
    expected = [0.1 * 0.5 * (1 + math.cos(math.pi * (epoch - 5) / 155)) for epoch in range(5, 160)]
    assert found[5:] == pytest.approx(expected)
    assert found[5] == pytest.approx(0.1)
    assert found[-1] == pytest.approx(1e-5, rel=0.05)


@pytest.mark.parametrize(
    ("m", "expected"),
    [
        (2, [120, 160]),
        (3, [120, 140, 160]),
        (4, [120, 133, 146, 160]),
        (5, [120, 130, 140, 150, 160]),
        (6, [120, 128, 136, 144, 152, 160]),
    ],
)
def test_swa_checkpoints_of_the_paper(m, expected):
    assert kept("swa-cyclic", 160, m) == expected


@pytest.mark.parametrize("m", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("epochs", [80, 160, 200])
def test_cyclic_rate_falls_along_a_cosine_from_half_the_peak_to_each_checkpoint(epochs, m):
    found = rates("swa-cyclic", epochs, m=m)
    checkpoints = kept("swa-cyclic", epochs, m)
    assert found[checkpoints[0] - 1] < 1e-4
    for start, end in pairwise(checkpoints):
        length = end - start
        expected = [0.05 * 0.5 * (1 + math.cos(math.pi * position / length)) for position in range(length)]
        assert found[start:end] == pytest.approx(expected)


def test_cyclic_begins_as_the_cosine_of_its_first_three_quarters():
    assert rates("swa-cyclic", 160)[:120] == rates("warmup-cosine", 120)


def test_high_constant_stays_then_moves_in_a_line_to_half_and_stays():
    found = rates("swa-constant", 160)
    assert found[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    assert found[5:81] == pytest.approx([0.1] * 76)
    falls = [before - after for before, after in pairwise(found[80:121])]
    assert falls == pytest.approx([0.05 / 40] * 40)
    assert found[120:] == pytest.approx([0.05] * 40)


def test_snapshot_has_six_cosine_cycles_from_the_peak():
    assert kept("snapshot", 160, 6) == [26, 53, 80, 106, 133, 160]
    found = rates("snapshot", 180)
    cycle = [0.1 * 0.5 * (1 + math.cos(math.pi * position / 30)) for position in range(30)]
    assert found == pytest.approx(cycle * 6)


def test_fge_begins_as_the_cosine_of_its_first_four_fifths():
    assert rates("fge", 160)[:128] == rates("warmup-cosine", 128)


def test_fge_at_160_epochs_has_its_members_at_the_low_points():
    assert kept("fge", 160, 6) == [130, 136, 142, 148, 154, 160]
    found = rates("fge", 160)
    low = [epoch + 1 for epoch in range(128, 160) if found[epoch] == pytest.approx(5e-4)]
    assert low == kept("fge", 160, 6)
    cycle = [0.017, 0.0335, 0.05, 0.0335, 0.017, 5e-4]  # three epochs up to half the peak and three down
    assert found[130:136] == pytest.approx(cycle)


def test_fge_with_sides_of_one_epoch_alternates():
    assert kept("fge", 25, 3) == [21, 23, 25]
    assert rates("fge", 25, m=3)[20:] == pytest.approx([5e-4, 0.05, 5e-4, 0.05, 5e-4])


# Any number of epochs


@quick
@given(lengths, st.integers(2, 8))
def test_fge_members_increase_to_the_end_and_the_rate_turns_at_each(epochs, m):
    try:
        found = kept("fge", epochs, m)
    except ValueError:
        assert epochs - round(0.8 * epochs) < 2 * m - 1
        return
    assert len(set(found)) == m
    assert found == sorted(found)
    assert found[-1] == epochs
    for epoch in found:
        low, others = (rates("fge", epochs, m=m)[e] for e in (epoch - 1, max(epoch - 2, round(0.8 * epochs))))
        assert low == pytest.approx(5e-4)
        assert others >= low


@quick
@given(lengths, st.floats(1e-6, 10), st.sampled_from([*OWN, *SCHEDULES]))
def test_rates_lie_between_zero_and_the_peak(epochs, peak, name):
    try:
        found = rates(name, epochs, peak)
    except ValueError:
        assert epochs < {"snapshot": 6, "swa-cyclic": 8, "fge": 58}[name]  # too short for their cycles
        return
    assert all(0 <= rate <= peak * (1 + 1e-12) for rate in found)
    assert found[0] > 0


@quick
@given(lengths, st.integers(2, 8))
def test_swa_checkpoints_increase_from_three_quarters_to_the_end(epochs, m):
    try:
        found = kept("swa-cyclic", epochs, m)
    except ValueError:
        assert epochs / 4 < m
        return
    assert len(found) == m
    assert found == sorted(set(found))
    assert found[-1] == epochs
    assert abs(found[0] - 0.75 * epochs) <= 0.5


@quick
@given(lengths, st.integers(2, 8))
def test_snapshot_cycles_are_equal_within_one_epoch_and_end_with_training(epochs, cycles):
    if cycles > epochs:
        with pytest.raises(ValueError, match=f"{cycles} cycles in {epochs} epochs"):
            kept("snapshot", epochs, cycles)
        return
    found = kept("snapshot", epochs, cycles)
    spans = [end - start for start, end in pairwise([0, *found])]
    assert len(found) == cycles
    assert found[-1] == epochs
    assert max(spans) - min(spans) <= 1
    assert min(spans) >= 1


@pytest.mark.parametrize("name", [*OWN, "swag"])
@pytest.mark.parametrize(
    ("m", "message"), [(1, "keeps two checkpoints or more"), (0, "expected at least 1"), (-1, "1")]
)
def test_fewer_than_two_are_an_error(name, m, message):
    with pytest.raises(ValueError, match=f"vertices={m}: .*{message}"):
        kept(name, 160, m)
