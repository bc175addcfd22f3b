"""Data sets by name: CIFAR-10, MNIST and the digits as their publishers write them, label noise and held-out images."""

import gzip

import made
import numpy as np
import pytest
import torch

from subspaces.core.randomness import permutation, stream
from subspaces.experiments.data import NAMES, DataError, load, loading, published

PUBLISHED = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(published, "RECORDS", 7)
    monkeypatch.setattr(published, "MNIST", made.FEW_MNIST)


# CIFAR-10


@pytest.mark.parametrize("below", [False, True], ids=["itself", "sub-folder"])
def test_cifar10(tmp_path, below):
    pixels, labels = made.cifar10(tmp_path / "cifar-10-batches-bin" if below else tmp_path)
    data = load("cifar10", tmp_path)
    assert data.train.images.shape == (35, 3, 32, 32)
    assert np.array_equal(data.train.images.numpy().reshape(5, 7, 3072), pixels[:5])
    assert np.array_equal(data.test.images.numpy().reshape(7, 3072), pixels[5])
    assert data.train.labels.tolist() == labels[:5].flatten().tolist()
    assert data.test.labels.tolist() == labels[5].tolist()
    assert data.classes == PUBLISHED
    image = data.train.images[2]  # red, then green, then blue, each row by row
    assert image[1, 5, 9] == pixels[0, 2, 1024 + 5 * 32 + 9]


def test_a_batch_of_cifar10_that_is_missing_or_damaged(tmp_path):
    pixels, labels = made.cifar10(tmp_path)
    file = tmp_path / "data_batch_2.bin"
    whole = file.read_bytes()
    for change in (-1, 5):
        file.write_bytes((whole + b"12345")[: 7 * 3073 + change])
        with pytest.raises(DataError, match=rf"data_batch_2\.bin: expected 21,511 bytes, found {21511 + change:,}"):
            load("cifar10", tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"found no data_batch_2\.bin in .*data get cifar10"):
        load("cifar10", tmp_path)
    labels[3, 4] = 11
    made.write_binary(tmp_path, pixels, labels)
    with pytest.raises(DataError, match=r"data_batch_4\S*: image 4 has the label 11, expected 0 to 9 \(1 of 7"):
        load("cifar10", tmp_path)


# MNIST


@pytest.mark.parametrize("packed", [False, True], ids=["raw", "gz"])
@pytest.mark.parametrize("place", ["", "MNIST/raw", "mnist"])
def test_where_the_files_of_mnist_may_be(tmp_path, packed, place):
    arrays = made.mnist(tmp_path / place, packed=packed)
    data = load("mnist", tmp_path)
    assert np.array_equal(data.train.images[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert data.train.labels.tolist() == arrays["train-labels-idx1-ubyte"].tolist()
    assert np.array_equal(data.test.images[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert data.test.labels.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()


def test_missing_files_and_wrong_labels_of_mnist_are_named(tmp_path):
    labels = made.mnist(tmp_path)["t10k-labels-idx1-ubyte"]
    labels[7] = 10
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(made.idx(labels))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte: image 7 has the label 10, expected 0 to 9"):
        load("mnist", tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"no t10k-labels-idx1-ubyte\[\.gz\] in .*data get mnist --data"):
        load("mnist", tmp_path)


IMAGES = made.idx(np.zeros((20, 28, 28), np.uint8))
NOISE = gzip.compress(np.random.default_rng(0).bytes(15696))


@pytest.mark.parametrize(
    ("content", "packed", "said"),
    [
        (IMAGES[:-1], False, r"expected an array of \(20, 28, 28\) in 15,696 bytes, found 15,695 bytes"),
        (IMAGES + b"x", False, "found 15,697 or more bytes"),
        (b"", False, "found 0 bytes"),
        (made.idx(np.zeros((28, 28, 20), np.uint8)), False, "that begin with 000008030000001c"),
        (gzip.compress(IMAGES + b"x"), True, "found 15,697 or more bytes"),
        (gzip.compress(IMAGES)[:-4], True, "not a whole gzip file"),
        (gzip.compress(IMAGES)[:20], True, "not a whole gzip file"),
        (IMAGES, True, "not a whole gzip file"),
        (NOISE[:5000] + bytes([NOISE[5000] ^ 255]) + NOISE[5001:], True, "not a whole gzip file"),
    ],
)
def test_damaged_files_of_mnist(tmp_path, content, packed, said):
    made.mnist(tmp_path, packed=packed)
    (tmp_path / ("train-images-idx3-ubyte" + ".gz" * packed)).write_bytes(content)
    with pytest.raises(DataError, match=f"train-images-idx3-ubyte.*: .*{said}"):
        load("mnist", tmp_path)


# The digits


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    data = load("digits")
    assert (len(data.train), len(data.test), data.validation, data.image_shape) == (1200, 597, None, (1, 8, 8))
    images = torch.cat([data.train.images, data.test.images]).double() * 16 / 255
    labels = torch.cat([data.train.labels, data.test.labels])
    ours = sorted((*row, label) for row, label in zip(images.round().flatten(1).tolist(), labels.tolist(), strict=True))
    bundle = load_digits()
    theirs = sorted((*row, label) for row, label in zip(bundle.data.tolist(), bundle.target.tolist(), strict=True))
    assert ours == theirs
    assert data.train.labels[:10].tolist() == [5, 9, 4, 2, 3, 0, 1, 5, 1, 1]  # the split is fixed for good
    pixels = data.train.images.double() / 255
    assert pixels.mean().item() == pytest.approx(data.mean[0], abs=1e-4)
    assert pixels.std().item() == pytest.approx(data.std[0], abs=2e-4)


# Names, options and splits


@pytest.mark.parametrize(("name", "hint"), [("cifar", "did you mean 'cifar10'"), ("zzz", "expected one of 'digits'")])
def test_unknown_name(name, hint):
    with pytest.raises(ValueError, match=f"no data set is called '{name}': {hint}"):
        load(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("digits", "folder")])
def test_no_root(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    remedy = f"subspaces data get {name} --data data"
    with pytest.raises(FileNotFoundError, match=f"{name}: 'data' is not a folder.*{remedy}"):
        load(name)
    with pytest.raises(FileNotFoundError, match=f"not a folder.*`subspaces data get {name} --data .*nowhere"):
        load(name, tmp_path / "nowhere")
    (tmp_path / "data").mkdir()
    whole = name.removesuffix("-12k")  # whose files a part is read from
    with pytest.raises(FileNotFoundError, match=f"{whole}: found no .* in data.*subspaces data get {whole} --data"):
        load(name)


@pytest.mark.parametrize("options", [{"label_noise": 2}, {"validation": 1200}, {"validation": -1}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        load("digits", **options)


# Label noise and held-out images

LABELS = torch.arange(20_000) % 10


def test_noise_is_on_the_training_labels_that_stay():
    clean, noisy = load("digits"), load("digits", label_noise=0.5, validation=200, seed=3)
    quiet = load("digits", validation=200, seed=3)
    assert (len(noisy.train), len(noisy.validation), len(noisy.test)) == (1000, 200, 597)
    assert torch.equal(noisy.validation.labels, quiet.validation.labels)
    assert torch.equal(noisy.test.labels, clean.test.labels)
    assert torch.equal(noisy.train.images, quiet.train.images)
    wrong = (noisy.train.labels != quiet.train.labels).double().mean()
    assert 0.4 < wrong < 0.5
    labels = {tuple(image): label for image, label in pairs(clean.train)}
    assert {tuple(image): label for part in (quiet.train, quiet.validation) for image, label in pairs(part)} == labels


def pairs(split):
    return zip(split.images.flatten(1).tolist(), split.labels.tolist(), strict=True)


def test_drawn_labels_are_uniform_over_all_classes():
    counts = loading.noisy(torch.zeros(20_000, dtype=torch.int64), 10, 1.0, seed=3).bincount(minlength=10)
    assert ((counts - 2000.0) ** 2 / 2000).sum() < 27.9  # 0.1 % of 9 degrees of freedom


def test_exactly_the_first_of_one_order_are_drawn():
    """With a class of its own as the true label, every draw shows."""
    truth = torch.full((100,), 10)
    for fraction, count in ((0.29, 29), (0.295, 29), (0.3, 30), (1.0, 100)):
        assert (loading.noisy(truth, 10, fraction, seed=0) != 10).sum() == count


def test_same_for_everyone_and_fixed_for_good():
    first = loading.noisy(LABELS, 10, 0.4, seed=5)
    assert not torch.equal(first, loading.noisy(LABELS, 10, 0.4, seed=6))
    # Who is drawn and which label they get does not depend on the labels themselves.
    other = loading.noisy((LABELS + 1) % 10, 10, 0.4, seed=5)
    moved = (first != LABELS) & (other != (LABELS + 1) % 10)
    assert torch.equal(first[moved], other[moved])
    # Written down once: files of results name a data seed.
    assert permutation(stream(0, "label noise"), 8).tolist() == [2, 3, 5, 4, 1, 0, 6, 7]
    assert loading.noisy(torch.full((8,), 10), 10, 0.5, seed=0).tolist() == [10, 10, 9, 5, 2, 7, 10, 10]


@pytest.mark.parametrize("count", [0, 30, 99])
def test_held_out_is_disjoint_complete_and_of_a_stream_of_its_own(count):
    """Or those with noisy labels would be the ones that are left."""
    stay, out = loading.held_out(100, count, seed=3)
    order = permutation(stream(3, "validation"), 100)
    assert out.tolist() == sorted(order[:count].tolist())
    assert stay.tolist() == sorted(order[count:].tolist())
    touched = loading.noisy(torch.full((100,), 10), 10, 0.3, seed=3) != 10
    assert sorted(order[:30].tolist()) != touched.nonzero().flatten().tolist()
