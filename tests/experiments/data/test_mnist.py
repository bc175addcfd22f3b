import gzip

import made
import numpy as np
import pytest

from subspaces.experiments.data import DataError, mnist


@pytest.mark.parametrize("packed", [False, True], ids=["raw", "gz"])
@pytest.mark.parametrize("place", ["", "MNIST/raw", "mnist"])
def test_where_the_files_may_be(tmp_path, packed, place):
    arrays = made.mnist(tmp_path / place, packed=packed)
    data = mnist.load(tmp_path, training=20, test=10)
    assert data.train.images.shape == (20, 1, 28, 28)
    assert np.array_equal(data.train.images[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert data.train.labels.tolist() == arrays["train-labels-idx1-ubyte"].tolist()
    assert np.array_equal(data.test.images[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert data.test.labels.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()


def test_missing_files_are_named(tmp_path):
    made.mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"no t10k-labels-idx1-ubyte\[\.gz\] in .*data get mnist --data"):
        mnist.load(tmp_path)


def damaged(tmp_path, content: bytes, packed: bool = False) -> None:
    made.mnist(tmp_path, packed=packed)
    (tmp_path / ("train-images-idx3-ubyte" + ".gz" * packed)).write_bytes(content)


IMAGES = made.idx(np.zeros((20, 28, 28), np.uint8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (IMAGES[:-1], r"expected 15,696 bytes for \(20, 28, 28\), found 15,695: the file is cut short"),
        (IMAGES + b"x", "found 15,697 or more: the file is too long"),
        (IMAGES[:9], "found 9: the file is cut short"),
        (b"", "found 0: the file is cut short"),
        (made.idx(np.zeros(15680, np.uint8)) + b"12345678", "begins with 0x801, expected 0x803"),
        (made.idx(np.zeros((20, 14, 56), np.uint8)), r"holds an array of \(20, 14, 56\), expected \(20, 28, 28\)"),
        (made.idx(np.zeros((28, 28, 20), np.uint8)), r"holds an array of \(28, 28, 20\), expected \(20, 28, 28\)"),
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["raw", "gz"])
def test_damaged(tmp_path, content, message, packed):
    damaged(tmp_path, gzip.compress(content) if packed else content, packed)
    with pytest.raises(DataError, match=f"train-images-idx3-ubyte.*{message}"):
        mnist.load(tmp_path, 20, 10)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(IMAGES)[:-4], gzip.compress(IMAGES)[:20], IMAGES, b""],
    ids=["cut at the end", "cut early", "not packed", "empty"],
)
def test_damaged_gzip(tmp_path, content):
    damaged(tmp_path, content, packed=True)
    with pytest.raises(DataError, match=r"ubyte\.gz: .*(expected 15,696)"):
        mnist.load(tmp_path, 20, 10)


def test_altered_gzip(tmp_path):
    content = bytearray(gzip.compress(np.random.default_rng(0).bytes(15696)))
    content[5000] ^= 255
    damaged(tmp_path, bytes(content), packed=True)
    with pytest.raises(DataError, match=r"ubyte\.gz: "):
        mnist.load(tmp_path, 20, 10)


def test_wrong_label(tmp_path):
    arrays = made.mnist(tmp_path)
    labels = arrays["t10k-labels-idx1-ubyte"]
    labels[7] = 10
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(made.idx(labels))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte: image 7 has the label 10, expected 0 to 9"):
        mnist.load(tmp_path, 20, 10)


def test_problems(tmp_path, monkeypatch):
    made.mnist(tmp_path)
    assert len(mnist.problems(tmp_path)) == 4  # far too few images
    monkeypatch.setattr(mnist, "TRAINING", 20)
    monkeypatch.setattr(mnist, "TEST", 10)
    assert all("published" in problem for problem in mnist.problems(tmp_path))
