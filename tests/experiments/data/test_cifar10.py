import os
import pickle

import made
import numpy as np
import pytest
import torch

from subspaces.experiments.data import DataError, load, published

WRITERS = {
    "bin": made.write_binary,
    **{f"py{p}": lambda *args, p=p: made.write_python(*args, protocol=p) for p in (0, 2, 4)},
}
PUBLISHED = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(published, "RECORDS", 7)


@pytest.mark.parametrize("version", WRITERS)
@pytest.mark.parametrize("below", [False, True], ids=["itself", "sub-folder"])
def test_both_versions(tmp_path, version, below):
    name = "cifar-10-batches-bin" if version == "bin" else "cifar-10-batches-py"
    pixels, labels = made.cifar10(tmp_path / name if below else tmp_path, WRITERS[version])
    data = load("cifar10", tmp_path)
    assert data.train.images.shape == (35, 3, 32, 32)
    assert np.array_equal(data.train.images.numpy().reshape(5, 7, 3072), pixels[:5])
    assert np.array_equal(data.test.images.numpy().reshape(7, 3072), pixels[5])
    assert data.train.labels.tolist() == labels[:5].flatten().tolist()
    assert data.test.labels.tolist() == labels[5].tolist()
    assert data.train.labels.dtype == torch.int64
    assert data.classes == PUBLISHED
    image = data.train.images[2]  # red, then green, then blue, each row by row
    assert image[1, 5, 9] == pixels[0, 2, 1024 + 5 * 32 + 9]


def test_python_2_pickles_have_text_where_python_3_has_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RECORDS", 2)
    content = b"\x80\x02}q\x00(U\x06labelsq\x01]q\x02(K\x03K\x04eU\x04dataq\x03"
    array = pickle.dumps(np.zeros((2, 3072), np.uint8), 2)[2:-1].replace(b"numpy._core", b"numpy.core")
    for name in made.BATCHES:
        (tmp_path / name).write_bytes(content + array + b"u.")
    assert load("cifar10", tmp_path).test.labels.tolist() == [3, 4]


def test_one_file_missing(tmp_path):
    made.cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"found no data_batch_3\.bin in .*data get cifar10"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("change", [-1, 5])
def test_wrong_size_names_file_and_sizes(tmp_path, change):
    made.cifar10(tmp_path)
    file = tmp_path / "data_batch_2.bin"
    file.write_bytes((file.read_bytes() + b"12345")[: 7 * 3073 + change])
    with pytest.raises(DataError, match=rf"data_batch_2\.bin: expected 21,511 bytes, found {21511 + change:,}"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("write", [made.write_binary, made.write_python])
def test_wrong_label_is_named_with_its_place(tmp_path, write):
    pixels, labels = made.cifar10(tmp_path, write)
    labels[3, 4] = 11
    write(tmp_path, pixels, labels)
    with pytest.raises(DataError, match=r"data_batch_4\S*: image 4 has the label 11, expected 0 to 9 \(1 of 7"):
        load("cifar10", tmp_path)


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("owned",)


PIXELS = np.zeros((7, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (pickle.dumps({b"data": Malicious()}, 2), r"it asks for (posix|nt)\.mkdir"),
        (b'cbuiltins\neval\n(S\'open("owned", "w")\'\ntR.', r"it asks for builtins\.eval"),
        (b"cnumpy\nload\n(S'x'\ntR.", r"it asks for numpy\.load"),
        (b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.", "it asks for numpy"),
        (b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.", "it asks for numpy"),
        (pickle.dumps({b"data": PIXELS.astype(np.float32), b"labels": [0] * 7}, 2), "expected uint8"),
        (pickle.dumps({b"data": PIXELS[:, :9], b"labels": [0] * 7}, 2), r"expected uint8 \(7, 3072\)"),
        (pickle.dumps({b"data": PIXELS, b"labels": [0] * 6}, 2), "with as many labels"),
        (pickle.dumps({b"data": PIXELS}, 2), "labels"),
        (pickle.dumps([1], 2), "refused to read"),
        (pickle.dumps({b"data": PIXELS, b"labels": [0] * 7}, 2)[:-500], "refused to read"),
        (b"not a pickle", "refused to read"),
        (b"", "refused to read"),
    ],
)
def test_other_pickles_are_refused_and_run_nothing(tmp_path, monkeypatch, content, what):
    monkeypatch.chdir(tmp_path)
    made.cifar10(tmp_path, made.write_python)
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match=f"data_batch_1: .*{what}"):
        load("cifar10", tmp_path)
    assert not (tmp_path / "owned").exists()
