"""TinyImageNet and ImageNet's folders."""

import io
import shutil

import made
import numpy as np
import pytest
import torch

from subspaces.experiments.data import DataError, Files, check, folders, load


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(folders, "TINY", {"train": 6, "val": 4})


def tiny(root, **options):
    return load("tiny-imagenet", root, **options)


@pytest.mark.parametrize("place", ["", "tiny-imagenet-200"])
def test_published_layout(tmp_path, place):
    wnids = made.tiny_imagenet(tmp_path / place)
    data = tiny(tmp_path)
    assert data.train.images.shape == (6, 3, 64, 64)
    assert data.test.images.shape == (4, 3, 64, 64)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test.labels.tolist() == [0, 1, 2, 0]
    values = data.train.images.double().mean((1, 2, 3))
    torch.testing.assert_close(values, torch.tensor([0, 10, 40, 50, 80, 90]).double(), atol=1.5, rtol=0)
    assert torch.equal(data.train.images[0, 0], data.train.images[0, 2])  # a grey file has three channels
    assert data.classes[sorted(wnids).index(wnids[0])] == "goldfish, Carassius auratus"
    assert data.classes[sorted(wnids).index(wnids[1])] == wnids[1]  # words.txt does not have it
    (tmp_path / place / "words.txt").unlink()
    assert tiny(tmp_path).classes == tuple(sorted(wnids))


def test_decoded_once_and_mapped(tmp_path, monkeypatch):
    made.tiny_imagenet(tmp_path)
    steps = []
    first = tiny(tmp_path, progress=lambda *step: steps.append(step))
    assert steps == [("decoding images", 6, 6), ("decoding images", 4, 4)]
    monkeypatch.setattr(folders, "decode", None)
    second = tiny(tmp_path)
    assert torch.equal(first.train.images, second.train.images)
    assert not list(tmp_path.glob("**/*.partial"))
    second.train.images[0] = 77  # in this process's memory only
    assert not torch.equal(tiny(tmp_path).train.images, second.train.images)


def test_validation_images_have_the_labels_of_their_lines(tmp_path):
    """In whatever order and of whatever classes the lines come."""
    wnids = sorted(made.tiny_imagenet(tmp_path))
    lines = [(3, 2), (1, 2), (0, 0), (2, 2)]  # image and class
    text = "".join(f"val_{image}.JPEG\t{wnids[label]}\t0\t0\t62\t62\n" for image, label in lines)
    (tmp_path / "val" / "val_annotations.txt").write_text(text)
    data = tiny(tmp_path)
    assert data.test.labels.tolist() == [label for _, label in lines]
    values = data.test.images.double().mean((1, 2, 3))
    torch.testing.assert_close(values, torch.tensor([10.0 + image for image, _ in lines]).double(), atol=0.5, rtol=0)


def other_array(*shape: int, dtype: type = np.uint8) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype))
    return file.getvalue()


DAMAGES = [
    *(lambda c: c[:-100], lambda c: b"", lambda c: b"x" * 500),
    *(lambda c: other_array(5, 64, 64, 3), lambda c: other_array(6, 3, 64, 64)),
    lambda c: other_array(6, 64, 64, 3, dtype=np.int8),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_again(tmp_path, damage):
    made.tiny_imagenet(tmp_path)
    expected = tiny(tmp_path).train.images.clone()
    cache = tmp_path / "subspaces-train.npy"
    content = damage(cache.read_bytes())
    cache.unlink()
    cache.write_bytes(content)
    assert torch.equal(tiny(tmp_path).train.images, expected)


def change(root, what):
    image = next((root / "train").glob("*/images/*.JPEG"))
    annotations = root / "val" / "val_annotations.txt"
    if what == "truncated":
        image.write_bytes(image.read_bytes()[:200])
    elif what == "size":
        made.image(image, made.flat(0, (32, 64, 3)), format="JPEG")
    elif what == "missing":
        image.unlink()
    elif what == "missing test":
        (root / "val" / "images" / "val_1.JPEG").unlink()
    elif what == "label":
        annotations.write_text(annotations.read_text().replace("val_2.JPEG\tn09", "val_2.JPEG\tn5"))
    elif what == "lines":
        annotations.write_text("\n".join(annotations.read_text().splitlines()[:3]))
    elif what == "classes":
        (root / "wnids.txt").write_text("n09\nn08\n")
    elif what == "text":
        (root / "wnids.txt").write_bytes(b"\xff")
    elif what == "no list":
        (root / "wnids.txt").unlink()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("truncated", r"\.JPEG: 200 bytes that are not a whole image"),
        ("size", "64 × 32 pixels, expected 64 × 64"),
        ("missing", "expected 6 images, found 5"),
        ("missing test", r"val_1\.JPEG"),
        ("label", r"val_annotations\.txt: the line \['val_2.JPEG', 'n5'.* has no label of wnids\.txt"),
        ("lines", "expected 4 images, found 3"),
        ("classes", "has a folder of the class 'n07', which is not among the 2"),
        ("text", r"wnids\.txt: is not text in UTF-8"),
        ("no list", r"found no folder with wnids\.txt, .*data get tiny-imagenet"),
    ],
)
def test_damaged(tmp_path, what, message):
    made.tiny_imagenet(tmp_path)
    change(tmp_path, what)
    with pytest.raises((DataError, FileNotFoundError), match=message):
        tiny(tmp_path)
    assert not list(tmp_path.glob("**/*.partial"))
    assert len(check("tiny-imagenet", tmp_path)) == 1


def test_imagenet(tmp_path):
    made.folders(tmp_path)
    (tmp_path / "train" / "class0" / "notes.txt").write_text("")
    (tmp_path / "train" / ".hidden").mkdir()
    data = load("imagenet", tmp_path)
    assert data.classes == ("class0", "class1", "class2")
    assert data.image_shape == (3, 224, 224)
    assert isinstance(data.train, Files)
    assert (len(data.train), len(data.test)) == (12, 6)
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.train.path(5) == tmp_path / "train" / "class1" / "train_1.JPEG"
    assert all(data.test.path(i).is_file() for i in range(6))
    held = load("imagenet", tmp_path, validation=3, label_noise=1.0)
    assert (len(held.train), len(held.validation)) == (9, 3)
    paths = [split.path(i) for split in (held.train, held.validation) for i in range(len(split))]
    assert len(set(paths)) == 12


def test_labels_are_those_of_training_where_a_class_has_no_validation_images(tmp_path):
    made.folders(tmp_path)
    shutil.rmtree(tmp_path / "val" / "class0")
    assert load("imagenet", tmp_path).test.labels.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("made_first", "folder", "error", "message"),
    [
        (False, None, FileNotFoundError, r"no folder train in .*/train/<class>/\*\.JPEG.*data get imagenet"),
        (True, "train/class9", DataError, "class9: holds no images, expected files that end in"),
        (True, "val/class7", DataError, "the class 'class7', which is not among the 3 of the data set .did you mean"),
    ],
)
def test_what_is_missing(tmp_path, made_first, folder, error, message):
    if made_first:
        made.folders(tmp_path)
        (tmp_path / folder).mkdir()
    with pytest.raises(error, match=message):
        load("imagenet", tmp_path)
