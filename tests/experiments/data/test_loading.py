import math

import numpy as np
import pytest
import torch

from subspaces.core.randomness import permutation, stream
from subspaces.experiments.data import NAMES, Files, Split, load, loading


def test_noise_is_on_the_training_labels_that_stay():
    clean, noisy = load("digits"), load("digits", label_noise=0.5, validation=200, seed=3)
    quiet = load("digits", validation=200, seed=3)
    assert (len(noisy.train), len(noisy.validation), len(noisy.test)) == (1000, 200, 597)
    assert torch.equal(noisy.validation.labels, quiet.validation.labels)
    assert torch.equal(noisy.test.labels, clean.test.labels)
    assert torch.equal(noisy.train.images, quiet.train.images)
    wrong = (noisy.train.labels != quiet.train.labels).double().mean()
    assert 0.4 < wrong < 0.5
    everything = torch.cat([quiet.train.images, quiet.validation.images]).flatten(1)
    assert sorted(everything.tolist()) == sorted(clean.train.images.flatten(1).tolist())


@pytest.mark.parametrize(("name", "hint"), [("cifar", "did you mean 'cifar10'"), ("zzz", "expected one of 'digits'")])
def test_unknown_name(name, hint):
    with pytest.raises(ValueError, match=f"no data set is called '{name}': {hint}"):
        load(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("digits", "folder")])
def test_no_root(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=f"{name}: 'data' is not a folder.*subspaces data get {name} --data data"
    ):
        load(name)
    with pytest.raises(FileNotFoundError, match=f"not a folder.*`subspaces data get {name} --data .*nowhere"):
        load(name, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=f"{name}: found no .*subspaces data get {name} --data"):
        load(name, tmp_path)
    (tmp_path / "data").mkdir()
    with pytest.raises(FileNotFoundError, match=f"{name}: found no .* in data"):
        load(name)


@pytest.mark.parametrize("options", [{"label_noise": 2}, {"validation": 1200}, {"validation": -1}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        load("digits", **options)


def test_splits_say_what_they_need():
    images, labels = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"torch.float32 \(4, 1, 2, 2\): expected torch.uint8"):
        Split(images.float(), labels)
    with pytest.raises(ValueError, match=r"torch.int64 \(3,\): expected torch.int64 \(4,\)"):
        Split(images, labels[:3])
    with pytest.raises(ValueError, match=r"torch\.int32"):
        Split(images, labels.int())


def test_labels_go_with_their_images(tmp_path):
    numbers, index = torch.arange(6), torch.tensor([4, 1, 3])
    split = Split(numbers.to(torch.uint8).view(6, 1, 1, 1), numbers).select(index)
    assert split.images.flatten().tolist() == split.labels.tolist() == [4, 1, 3]
    files = Files(tmp_path, np.array([str(number).encode() for number in range(6)]), numbers).select(index)
    assert [int(files.path(place).name) for place in range(3)] == files.labels.tolist() == [4, 1, 3]


# Label noise and held-out images

LABELS = torch.arange(20_000) % 10


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.4, 1.0])
def test_about_nine_tenths_of_the_fraction_are_wrong(fraction):
    changed = loading.noisy(LABELS, 10, fraction, seed=0)
    wrong = (changed != LABELS).double().mean().item()
    deviation = math.sqrt(fraction * 0.9 * 0.1 / len(LABELS))
    assert abs(wrong - 0.9 * fraction) <= 5 * deviation
    assert changed.dtype == torch.int64


def test_drawn_labels_are_uniform_over_all_classes():
    counts = loading.noisy(torch.zeros(20_000, dtype=torch.int64), 10, 1.0, seed=3).bincount(minlength=10)
    chi2 = ((counts - 2000.0) ** 2 / 2000).sum()
    assert chi2 < 27.9  # 0.1 % of 9 degrees of freedom


def test_exactly_the_first_of_one_order_are_drawn():
    """With a class of its own as the true label, every draw shows."""
    truth = torch.full((100,), 10)
    for fraction, count in ((0.29, 29), (0.295, 29), (0.3, 30), (1.0, 100)):
        assert (loading.noisy(truth, 10, fraction, seed=0) != 10).sum() == count


def test_same_for_everyone_and_fixed_for_good():
    first = loading.noisy(LABELS, 10, 0.4, seed=5)
    torch.manual_seed(99)
    assert torch.equal(first, loading.noisy(LABELS, 10, 0.4, seed=5))
    assert not torch.equal(first, loading.noisy(LABELS, 10, 0.4, seed=6))
    # Who is drawn and which label they get does not depend on the labels themselves.
    other = loading.noisy((LABELS + 1) % 10, 10, 0.4, seed=5)
    moved = (first != LABELS) & (other != (LABELS + 1) % 10)
    assert torch.equal(first[moved], other[moved])
    # Written down once: files of results name a data seed.
    assert permutation(stream(0, "label noise"), 8).tolist() == PERMUTATION
    assert loading.noisy(torch.full((8,), 10), 10, 0.5, seed=0).tolist() == DRAWN


PERMUTATION = [2, 3, 5, 4, 1, 0, 6, 7]
DRAWN = [10, 10, 9, 5, 2, 7, 10, 10]


@pytest.mark.parametrize("count", [0, 1, 30, 99])
def test_held_out_is_disjoint_and_complete(count):
    stay, out = loading.held_out(100, count, seed=0)
    assert len(out) == count
    assert sorted([*stay.tolist(), *out.tolist()]) == list(range(100))
    assert stay.tolist() == sorted(stay.tolist())


@pytest.mark.parametrize("seed", [0, 3])
def test_who_is_held_out_has_a_stream_of_its_own(seed):
    """Or those with noisy labels would be the ones that are left."""
    order = permutation(stream(seed, "validation"), 100)
    assert loading.held_out(100, 30, seed)[1].tolist() == sorted(order[:30].tolist())
    touched = loading.noisy(torch.full((100,), 10), 10, 0.3, seed) != 10
    assert sorted(order[:30].tolist()) != touched.nonzero().flatten().tolist()
