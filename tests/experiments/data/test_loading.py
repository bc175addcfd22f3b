import pickle

import numpy as np
import pytest
import torch

from subspaces.experiments.data import NAMES, DataError, Files, Split, digits, load


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    data = load("digits")
    assert (len(data.train), len(data.test), data.validation) == (1200, 597, None)
    assert data.image_shape == (1, 8, 8)
    images = torch.cat([data.train.images, data.test.images]).double() * 16 / 255
    labels = torch.cat([data.train.labels, data.test.labels])
    ours = sorted((*row, label) for row, label in zip(images.round().flatten(1).tolist(), labels.tolist(), strict=True))
    bundle = load_digits()
    theirs = sorted((*row, label) for row, label in zip(bundle.data.tolist(), bundle.target.tolist(), strict=True))
    assert ours == theirs
    assert data.train.labels[:10].tolist() == FIRST  # the split is fixed for good


FIRST = [5, 9, 4, 2, 3, 0, 1, 5, 1, 1]


def test_constants_of_digits_are_the_training_sets():
    pixels = load("digits").train.images.double() / 255
    assert pixels.mean().item() == pytest.approx(digits.MEAN[0], abs=1e-4)
    assert pixels.std().item() == pytest.approx(digits.STD[0], abs=2e-4)


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


def test_same_for_everyone():
    first, second = (load("digits", label_noise=0.2, validation=100, seed=1) for _ in range(2))
    other = load("digits", label_noise=0.2, validation=100, seed=2)
    assert torch.equal(first.train.labels, second.train.labels)
    assert not torch.equal(first.validation.images, other.validation.images)


@pytest.mark.parametrize(("name", "hint"), [("cifar", "did you mean 'cifar10'"), ("zzz", "expected one of 'digits'")])
def test_unknown_name(name, hint):
    with pytest.raises(ValueError, match=f"no data set is called '{name}': {hint}"):
        load(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("digits", "folder")])
def test_no_root(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"{name} needs its files.*subspaces data get {name} --data data"):
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


def test_exports():
    import subspaces.experiments.data as data

    assert all(hasattr(data, name) for name in data.__all__)
    assert list(data.__all__) == sorted(data.__all__, key=lambda name: (not name.isupper(), name))
    assert issubclass(DataError, ValueError)
    assert {"Dataset", "ResidentLoader", "StreamingLoader", "check", "describe", "get", "load"} <= set(data.__all__)
    pickle.dumps(load("digits"))


def test_labels_go_with_their_images(tmp_path):
    numbers, index = torch.arange(6), torch.tensor([4, 1, 3])
    split = Split(numbers.to(torch.uint8).view(6, 1, 1, 1), numbers).select(index)
    assert split.images.flatten().tolist() == split.labels.tolist() == [4, 1, 3]
    files = Files(tmp_path, np.array([str(number).encode() for number in range(6)]), numbers).select(index)
    assert [int(files.path(place).name) for place in range(3)] == files.labels.tolist() == [4, 1, 3]
