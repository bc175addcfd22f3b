import os
import pickle

import made
import numpy as np
import pytest
import torch

from subspaces.experiments.data import DataError, cifar10

WRITERS = {
    "bin": made.write_binary,
    **{f"py{p}": lambda *args, p=p: made.write_python(*args, protocol=p) for p in (0, 2, 4)},
}


PUBLISHED = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.mark.parametrize("version", WRITERS)
@pytest.mark.parametrize("below", [False, True], ids=["itself", "sub-folder"])
def test_both_versions(tmp_path, version, below):
    name = "cifar-10-batches-bin" if version == "bin" else "cifar-10-batches-py"
    pixels, labels = made.cifar10(tmp_path / name if below else tmp_path, WRITERS[version])
    data = cifar10.load(tmp_path, records=7)
    assert data.train.images.shape == (35, 3, 32, 32)
    assert data.image_shape == (3, 32, 32)
    assert np.array_equal(data.train.images.numpy().reshape(5, 7, 3072), pixels[:5])
    assert np.array_equal(data.test.images.numpy().reshape(7, 3072), pixels[5])
    assert data.train.labels.tolist() == labels[:5].flatten().tolist()
    assert data.test.labels.tolist() == labels[5].tolist()
    assert data.train.labels.dtype == torch.int64
    assert data.validation is None
    assert not data.streaming
    assert data.classes == PUBLISHED


def test_a_pixel_is_where_the_publisher_says(tmp_path):
    """Red, then green, then blue, each row by row."""
    pixels, _ = made.cifar10(tmp_path)
    image = cifar10.load(tmp_path, records=7).train.images[2]
    assert image[1, 5, 9] == pixels[0, 2, 1024 + 5 * 32 + 9]


def test_an_array_that_was_written_by_columns_is_read_by_columns(tmp_path):
    def by_columns(folder, pixels, labels):
        made.write_python(folder, [np.asfortranarray(part) for part in pixels], labels)

    pixels, _ = made.cifar10(tmp_path, by_columns)
    assert np.array_equal(cifar10.load(tmp_path, records=7).test.images.numpy().reshape(7, 3072), pixels[5])


def test_python_2_pickles_have_text_where_python_3_has_bytes(tmp_path):
    made.cifar10(tmp_path, made.write_python)
    content = b"\x80\x02}q\x00(U\x06labelsq\x01]q\x02(K\x03K\x04eU\x04dataq\x03"
    array = pickle.dumps(np.zeros((2, 3072), np.uint8), 2)[2:-1].replace(b"numpy._core", b"numpy.core")
    for name in made.BATCHES:
        (tmp_path / name).write_bytes(content + array + b"u.")
    assert cifar10.load(tmp_path, records=2).test.labels.tolist() == [3, 4]


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data_batch_1\.bin.*subspaces data get cifar10 --data") as error:
        cifar10.load(tmp_path)
    assert str(tmp_path / "cifar-10-batches-py") in str(error.value)


def test_one_file_missing(tmp_path):
    made.cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"found no data_batch_3\.bin in .*data get cifar10"):
        cifar10.load(tmp_path, records=7)


@pytest.mark.parametrize(("change", "kind"), [(-1, "cut short"), (-21000, "cut short"), (5, "too long")])
def test_wrong_size_names_file_and_sizes(tmp_path, change, kind):
    made.cifar10(tmp_path)
    file = tmp_path / "data_batch_2.bin"
    content = file.read_bytes() + b"12345"
    file.write_bytes(content[: 7 * 3073 + change])
    with pytest.raises(
        DataError, match=rf"data_batch_2\.bin: expected 21,511 bytes .*found {21511 + change:,}.*{kind}"
    ):
        cifar10.load(tmp_path, records=7)


@pytest.mark.parametrize("write", [made.write_binary, made.write_python])
def test_wrong_label_is_named_with_its_place(tmp_path, write):
    pixels, labels = made.cifar10(tmp_path, write)
    labels[3, 4] = 11
    write(tmp_path, pixels, labels)
    with pytest.raises(DataError, match=r"data_batch_4\S*: image 4 has the label 11, expected 0 to 9 \(1 of 7"):
        cifar10.load(tmp_path, records=7)


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("owned",)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({b"data": Malicious()}, r"posix\.mkdir|nt\.mkdir"),
        ({b"data": np.zeros((7, 3072), np.float32), b"labels": [0] * 7}, "'f4'"),
        ({b"data": np.array([{}], object), b"labels": [0]}, "'O8'"),
        ({b"data": np.zeros((7, 9), np.uint8), b"labels": [0] * 7}, r"data is \(7, 9\), expected \(7, 3072\)"),
        ({b"data": np.zeros((7, 3072), np.uint8), b"labels": [0] * 6}, "labels are 6, expected a list of 7"),
        ({b"data": np.zeros((7, 3072), np.uint8), b"labels": ["1"] * 7}, "whole numbers"),
        ({b"data": np.zeros((7, 3072), np.uint8)}, "labels are NoneType"),
        ({}, "data is NoneType"),
        ([1], "holds a list, expected a dict"),
    ],
)
def test_other_pickles_are_refused(tmp_path, monkeypatch, content, what):
    monkeypatch.chdir(tmp_path)
    made.cifar10(tmp_path, made.write_python)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, 2))
    with pytest.raises(DataError, match=f"data_batch_1.*({what})"):
        cifar10.load(tmp_path, records=7)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "payload",
    [
        b'cbuiltins\neval\n(S\'open("owned", "w")\'\ntR.',
        b"cnumpy\nload\n(S'x'\ntR.",
        b"c_codecs\nencode\n(V00\nS'hex'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
        b"not a pickle",
        b"",
    ],
)
def test_handwritten_pickles_are_refused(tmp_path, monkeypatch, payload):
    monkeypatch.chdir(tmp_path)
    made.cifar10(tmp_path, made.write_python)
    (tmp_path / "test_batch").write_bytes(payload)
    with pytest.raises(DataError, match=f"test_batch.*refused to read this pickle of {len(payload)} bytes"):
        cifar10.load(tmp_path, records=7)
    assert not (tmp_path / "owned").exists()


def test_truncated_pickle(tmp_path):
    made.cifar10(tmp_path, made.write_python)
    file = tmp_path / "data_batch_5"
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(DataError, match=r"data_batch_5.*refused"):
        cifar10.load(tmp_path, records=7)
    with pytest.raises(DataError, match=r"data_batch_1: expected 31,035,704 bytes, found "):
        cifar10.load(tmp_path)


def test_problems_lists_every_file(tmp_path):
    made.cifar10(tmp_path)
    assert len(cifar10.problems(tmp_path)) == 6
