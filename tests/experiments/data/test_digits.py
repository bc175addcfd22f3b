import gzip

import made
import numpy as np
import pytest
import torch

from subspaces.experiments.data import DataError, load, published

SHAPES = [(20, 28, 28), (20,), (10, 28, 28), (10,)]


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(published, "MNIST", dict(zip(published.MNIST, SHAPES, strict=True)))


@pytest.mark.parametrize("packed", [False, True], ids=["raw", "gz"])
@pytest.mark.parametrize("place", ["", "MNIST/raw", "mnist"])
def test_where_the_files_may_be(tmp_path, packed, place):
    arrays = made.mnist(tmp_path / place, packed=packed)
    data = load("mnist", tmp_path)
    assert data.train.images.shape == (20, 1, 28, 28)
    assert np.array_equal(data.train.images[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert data.train.labels.tolist() == arrays["train-labels-idx1-ubyte"].tolist()
    assert np.array_equal(data.test.images[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert data.test.labels.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()


def test_missing_files_are_named(tmp_path):
    made.mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"no t10k-labels-idx1-ubyte\[\.gz\] in .*data get mnist --data"):
        load("mnist", tmp_path)


def damaged(tmp_path, content: bytes, packed: bool = False) -> None:
    made.mnist(tmp_path, packed=packed)
    (tmp_path / ("train-images-idx3-ubyte" + ".gz" * packed)).write_bytes(content)


IMAGES = made.idx(np.zeros((20, 28, 28), np.uint8))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (IMAGES[:-1], "15,695 bytes"),
        (IMAGES + b"x", "15,697 or more bytes"),
        (IMAGES[:9], "9 bytes"),
        (b"", "0 bytes"),
        (made.idx(np.zeros(15680, np.uint8)) + b"12345678", "that begin with 00000801"),
        (made.idx(np.zeros((28, 28, 20), np.uint8)), "that begin with 000008030000001c"),
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["raw", "gz"])
def test_damaged(tmp_path, content, found, packed):
    damaged(tmp_path, gzip.compress(content) if packed else content, packed)
    message = rf"train-images-idx3-ubyte.*: expected an array of \(20, 28, 28\) in 15,696 bytes, found .*{found}"
    with pytest.raises(DataError, match=message):
        load("mnist", tmp_path)


def altered(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 255]) + content[5001:]


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(IMAGES)[:-4],
        gzip.compress(IMAGES)[:20],
        IMAGES,
        altered(gzip.compress(np.random.default_rng(0).bytes(15696))),
    ],
    ids=["cut at the end", "cut early", "not packed", "altered"],
)
def test_damaged_gzip(tmp_path, content):
    damaged(tmp_path, content, packed=True)
    with pytest.raises(DataError, match=r"ubyte\.gz: not a whole gzip file"):
        load("mnist", tmp_path)


def test_wrong_label(tmp_path):
    arrays = made.mnist(tmp_path)
    labels = arrays["t10k-labels-idx1-ubyte"]
    labels[7] = 10
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(made.idx(labels))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte: image 7 has the label 10, expected 0 to 9"):
        load("mnist", tmp_path)


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
    assert data.train.labels[:10].tolist() == [5, 9, 4, 2, 3, 0, 1, 5, 1, 1]  # the split is fixed for good
    pixels = data.train.images.double() / 255
    assert pixels.mean().item() == pytest.approx(data.mean[0], abs=1e-4)
    assert pixels.std().item() == pytest.approx(data.std[0], abs=2e-4)
