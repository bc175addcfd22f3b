import os
import shutil

import made
import pytest

from subspaces.experiments.data import DataError, Files, check, folders, load


def test_layout(tmp_path):
    made.folders(tmp_path)
    data = load("imagenet", tmp_path)
    assert data.classes == ("class0", "class1", "class2")
    assert data.streaming
    assert data.image_shape == (3, 224, 224)
    assert isinstance(data.train, Files)
    assert (len(data.train), len(data.test)) == (12, 6)
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.train.path(5) == tmp_path / "train" / "class1" / "train_1.JPEG"
    assert all(data.test.path(i).is_file() for i in range(6))


def test_noise_and_validation(tmp_path):
    made.folders(tmp_path)
    data = load("imagenet", tmp_path, validation=3, label_noise=1.0)
    assert (len(data.train), len(data.validation)) == (9, 3)
    paths = [split.path(i) for split in (data.train, data.validation) for i in range(len(split))]
    assert len(set(paths)) == 12


def test_scanned_once_until_something_changes(tmp_path, monkeypatch):
    made.folders(tmp_path)
    scans = []
    scan = folders.class_files
    monkeypatch.setattr(folders, "class_files", lambda *args: scans.append(args[0].name) or scan(*args))
    first = folders.load(tmp_path)
    second = folders.load(tmp_path)
    assert scans == ["train", "val"]
    assert first.train.paths.tolist() == second.train.paths.tolist()
    assert first.train.labels.tolist() == second.train.labels.tolist()
    made.image(tmp_path / "train" / "class1" / "new.png", made.flat(3))
    os.utime(tmp_path / "train" / "class1", ns=(1, 1))  # whatever the clock's resolution
    assert len(folders.load(tmp_path).train) == 13
    (tmp_path / ".subspaces-train.npz").write_bytes(b"damaged")
    assert len(folders.load(tmp_path).train) == 13
    assert scans == ["train", "val", "train", "train"]
    assert not list(tmp_path.glob("*partial*"))


def test_labels_are_those_of_training_where_a_class_has_no_validation_images(tmp_path):
    made.folders(tmp_path)
    shutil.rmtree(tmp_path / "val" / "class0")
    assert folders.load(tmp_path).test.labels.tolist() == [1, 1, 2, 2]


def test_files_are_in_their_order_however_the_disk_lists_them(tmp_path, monkeypatch):
    made.folders(tmp_path)
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: sorted(listed(folder), reverse=True))
    data = folders.load(tmp_path)
    assert [data.train.path(i).name for i in range(4)] == [f"train_{i}.JPEG" for i in range(4)]


def test_other_files_are_not_images(tmp_path):
    made.folders(tmp_path)
    (tmp_path / "train" / "class0" / "notes.txt").write_text("")
    (tmp_path / "train" / ".hidden").mkdir()
    assert len(folders.load(tmp_path).train) == 12


def test_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder train in .*/train/<class>/\*\.JPEG.*data get imagenet"):
        folders.load(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match="train: holds no folders"):
        folders.load(tmp_path)
    made.folders(tmp_path)
    (tmp_path / "train" / "class9").mkdir()
    with pytest.raises(DataError, match="class9: holds no images"):
        folders.load(tmp_path)
    (tmp_path / "train" / "class9").rmdir()
    (tmp_path / "val" / "class7").mkdir()
    with pytest.raises(DataError, match=r"has the class class7, which .*train has not"):
        folders.load(tmp_path)


def test_check_compares_with_imagenet(tmp_path, monkeypatch):
    made.folders(tmp_path)
    assert [problem.partition(": ")[2] for problem in check("imagenet", tmp_path)] == [
        "3 classes, ImageNet has 1,000",
        "12 images, ImageNet has 1,281,167",
        "6 images, ImageNet has 50,000",
    ]
    monkeypatch.setattr(folders, "IMAGENET", {"classes": 3, "train": 12, "val": 6})
    assert check("imagenet", tmp_path) == []
    (tmp_path / "val" / "class1" / "val_0.JPEG").write_bytes(b"12345")
    assert "val_0.JPEG: 5 bytes that are not a whole image" in check("imagenet", tmp_path)[0]
