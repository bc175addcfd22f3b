import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import stats

from subspaces.core import randomness

MASK = 2**64 - 1
INCREMENT = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@pytest.fixture(params=["one by one", "as a tensor"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few numbers in one of the two ways that there are."""
    if request.param == "as a tensor":
        monkeypatch.setattr(randomness, "_is_readable", lambda state: False)


def splitmix64(seed: int) -> Iterator[int]:
    """SplitMix64 as its authors print it, on Python's own integers."""
    state = seed & MASK
    while True:
        state = (state + INCREMENT) & MASK
        z = state
        z = ((z ^ (z >> 30)) * FACTORS[0]) & MASK
        z = ((z ^ (z >> 27)) * FACTORS[1]) & MASK
        yield z ^ (z >> 31)


def expected(seed: int, count: int) -> list[float]:
    """The family's stream by the reference: the key is the seed's first word, number 0 is the hash of the key."""
    stream = splitmix64(next(splitmix64(seed)) - INCREMENT)
    return [(word >> 40) / 2**24 for word in itertools.islice(stream, count)]


def undo(word: int) -> int:
    """Return the state whose hash (before the last shift) is `word`."""
    for factor, shift in ((FACTORS[1], 27), (FACTORS[0], 30)):
        word = word * pow(factor, -1, 2**64) & MASK
        word ^= (word >> shift) ^ (word >> 2 * shift)
    return word


def draws(seed: int, *size: int) -> np.ndarray:
    return randomness.uniform(randomness.new_state(seed), size).double().numpy()


def p_of_grid(first: np.ndarray, second: np.ndarray, cells: int = 16) -> float:
    """Return the p-value of a chi-square test that the pairs fill the unit square evenly."""
    counts, *_ = np.histogram2d(first, second, bins=cells, range=[[0, 1], [0, 1]])
    return stats.chisquare(counts.ravel()).pvalue


def test_reference_gives_the_published_numbers():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert list(itertools.islice(splitmix64(1234567), 4)) == published


@pytest.mark.parametrize("seed", [0, 1, -1, 42, 2**31, 2**62, 2**63, 2**64 - 1])
def test_same_numbers_as_the_reference(seed):
    assert draws(seed, 500).tolist() == expected(seed, 500)


@pytest.mark.usefixtures("way")
def test_one_stream_however_it_is_cut():
    state = randomness.new_state(5)
    sizes = [(), (3,), (2, 4), (), (0,), (1, 1, 5)]
    pieces = [randomness.uniform(state, size) for size in sizes]
    assert [tuple(piece.shape) for piece in pieces] == sizes
    assert torch.cat([piece.flatten() for piece in pieces]).tolist() == expected(5, 18)
    assert state[1] == 18


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_uniform(seed):
    sample = draws(seed, 50_000)
    assert sample.min() >= 0
    assert sample.max() < 1
    assert stats.kstest(sample, "uniform").pvalue > 0.01


@pytest.mark.usefixtures("way")
def test_a_stream_can_be_a_view_and_its_numbers_are_float32():
    states = torch.stack([randomness.new_state(seed) for seed in (3, 5)])
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        found = randomness.uniform(states[1], (4,))
    finally:
        torch.set_default_dtype(before)
    assert found.dtype == torch.float32
    assert found.tolist() == expected(5, 4)
    assert states[:, 1].tolist() == [0, 4]


@pytest.mark.parametrize("count", [1, randomness.FEW, randomness.FEW + 1])
def test_numbers_under_a_function_transform_are_the_same(count):
    states = torch.stack([randomness.new_state(seed) for seed in (3, 5)])
    found = torch.vmap(lambda state: randomness.uniform(state, (count,)))(states)
    assert found.tolist() == [expected(3, count), expected(5, count)]
    assert states[:, 1].tolist() == [count, count]


@pytest.mark.usefixtures("way")
def test_largest_and_smallest_number():
    for word, value in ((MASK, 1 - 2**-24), (0, 0.0)):
        state = torch.tensor([randomness._signed(undo(word)), 0])
        assert randomness.uniform(state) == value


@pytest.mark.parametrize("lag", [1, 2, 3, 7])
def test_consecutive_numbers_are_independent(lag):
    sample = draws(3, 40_000 * (lag + 1)).reshape(-1, lag + 1)
    assert p_of_grid(sample[:, 0], sample[:, -1]) > 0.01


def test_nearby_seeds_are_independent():
    sample = np.stack([draws(seed, 2) for seed in range(12_000)])
    for column in sample.T:
        assert stats.kstest(column, "uniform").pvalue > 0.01
        assert p_of_grid(column[::2], column[1::2], cells=8) > 0.01


@pytest.mark.parametrize("m", [2, 3, 5])
def test_every_ordered_pair_is_equally_likely(m):
    state = randomness.new_state(11)
    counts = Counter(randomness.pair(state, m) for _ in range(6000))
    assert set(counts) == set(itertools.permutations(range(m), 2))
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("word", [0, MASK])
def test_pair_of_the_most_extreme_numbers(position, word):
    key = undo(word) - position * INCREMENT
    for m in range(2, 300):
        j, k = map(int, randomness.pair(torch.tensor([randomness._signed(key), 0]), m))
        assert 0 <= j < m
        assert 0 <= k < m
        assert j != k


@pytest.mark.parametrize(
    "draw", [lambda state: randomness.uniform(state, (2, 3)), lambda state: randomness.pair(state, 5)]
)
def test_compiled_draws_the_same(draw):
    compiled = torch.compile(draw, backend="aot_eager", fullgraph=True)
    state, copy = randomness.new_state(7), randomness.new_state(7)
    for _ in range(4):
        assert torch.equal(compiled(state), torch.as_tensor(draw(copy)))
        assert torch.equal(state, copy)


def test_numbers_from_a_seed_leave_those_of_the_caller_alone(monkeypatch):
    reseeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", reseeded.append)
    before = torch.get_rng_state()
    with randomness.seeded(5, torch.device("cpu")):
        inside = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(inside, torch.rand(3, generator=torch.Generator().manual_seed(5)))
    assert reseeded == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_numbers_from_a_seed_are_those_of_the_device_too_and_of_no_other():
    before = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    with randomness.seeded(5, torch.device("cuda")):
        inside, others = torch.rand(3, device="cuda"), torch.cuda.get_rng_state_all()[1:]
    assert torch.equal(inside, torch.rand(3, device="cuda", generator=torch.Generator("cuda").manual_seed(5)))
    after = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    assert all(map(torch.equal, (*before, *before[2:]), (*after, *others)))


@pytest.mark.parametrize("m", [2, 3, 7, 1000])
def test_a_pair_is_the_same_number_by_number_and_as_a_tensor(m, monkeypatch):
    one, other = randomness.new_state(m), randomness.new_state(m)
    few = [randomness.pair(one, m) for _ in range(200)]
    monkeypatch.setattr(randomness, "_is_readable", lambda state: False)
    assert [tuple(randomness.pair(other, m).tolist()) for _ in range(200)] == few
    assert torch.equal(one, other)
