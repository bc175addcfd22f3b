import io

import made
import numpy as np
import pytest
import torch

from subspaces.experiments.data import DataError, ResidentLoader, tiny_imagenet


def load(root, **counts):
    return tiny_imagenet.load(root, **{"classes": 3, "per_class": 2, "validation": 4, **counts})


@pytest.mark.parametrize("place", ["", "tiny-imagenet-200"])
def test_published_layout(tmp_path, place):
    wnids = made.tiny_imagenet(tmp_path / place)
    data = load(tmp_path)
    assert data.train.images.shape == (6, 3, 64, 64)
    assert data.test.images.shape == (4, 3, 64, 64)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test.labels.tolist() == [0, 1, 2, 0]
    values = data.train.images.double().mean((1, 2, 3))
    torch.testing.assert_close(values, torch.tensor([0, 10, 40, 50, 80, 90]).double(), atol=1.5, rtol=0)
    assert torch.equal(data.train.images[0, 0], data.train.images[0, 2])  # a grey file has three channels
    assert data.classes[sorted(wnids).index(wnids[0])] == "goldfish, Carassius auratus"
    assert data.classes[sorted(wnids).index(wnids[1])] == wnids[1]  # words.txt does not have it


def test_decoded_once_and_mapped(tmp_path, monkeypatch):
    made.tiny_imagenet(tmp_path)
    first, steps = None, []
    first = load(tmp_path, progress=lambda *step: steps.append(step))
    assert steps == [("decoding images", 6, 6), ("decoding images", 4, 4)]
    monkeypatch.setattr(tiny_imagenet, "decode", None)
    second = load(tmp_path)
    assert torch.equal(first.train.images, second.train.images)
    assert not list(tmp_path.glob("**/*.partial"))
    second.train.images[0] = 77  # in this process's memory only
    assert not torch.equal(load(tmp_path).train.images, second.train.images)
    assert isinstance(np.load(tmp_path / "subspaces-train.npy", mmap_mode="r"), np.memmap)


def test_validation_images_have_the_labels_of_their_lines(tmp_path):
    """In whatever order and of whatever classes the lines come."""
    wnids = sorted(made.tiny_imagenet(tmp_path))
    lines = [(3, 2), (1, 2), (0, 0), (2, 2)]  # image and class
    text = "".join(f"val_{image}.JPEG\t{wnids[label]}\t0\t0\t62\t62\n" for image, label in lines)
    (tmp_path / "val" / "val_annotations.txt").write_text(text)
    data = load(tmp_path)
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
    expected = load(tmp_path).train.images.clone()
    cache = tmp_path / "subspaces-train.npy"
    content = damage(cache.read_bytes())
    cache.unlink()
    cache.write_bytes(content)
    assert torch.equal(load(tmp_path).train.images, expected)


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    made.tiny_imagenet(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert load(tmp_path).train.images.shape == (6, 3, 64, 64)
    assert not list(tmp_path.glob("*.npy"))


def test_words_are_optional(tmp_path):
    wnids = made.tiny_imagenet(tmp_path)
    (tmp_path / "words.txt").unlink()
    assert load(tmp_path).classes == tuple(sorted(wnids))


def test_resident(tmp_path):
    made.tiny_imagenet(tmp_path)
    data = load(tmp_path)
    loader = ResidentLoader(data.train, batch=6, mean=data.mean, std=data.std, shuffle=False)
    x, _ = loader.take(6)
    expected = (data.train.images.double() / 255 - torch.tensor(data.mean).view(3, 1, 1)) / torch.tensor(data.std).view(
        3, 1, 1
    )
    torch.testing.assert_close(x.double(), expected, atol=1e-5, rtol=0)


def change(root, what):
    image = next((root / "train").glob("*/images/*.JPEG"))
    annotations = root / "val" / "val_annotations.txt"
    if what == "truncated":
        image.write_bytes(image.read_bytes()[:200])
    elif what == "not an image":
        image.write_bytes(b"text")
    elif what == "size":
        made.image(image, made.flat(0, (32, 64, 3)), format="JPEG")
    elif what == "missing":
        image.unlink()
    elif what == "label":
        annotations.write_text(annotations.read_text().replace("val_2.JPEG\tn09", "val_2.JPEG\tn5"))
    elif what == "lines":
        annotations.write_text("\n".join(annotations.read_text().splitlines()[:3]))
    elif what == "classes":
        (root / "wnids.txt").write_text("n09\nn08\n")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("truncated", r"\.JPEG: 200 bytes that are not a whole image"),
        ("not an image", r"\.JPEG: 4 bytes that are not a whole image"),
        ("size", "64 × 32 pixels, expected 64 × 64"),
        ("missing", "images: expected 2 images, found 1"),
        ("label", r"val_annotations\.txt, line 3: the label 'n5' is not in wnids\.txt"),
        ("lines", r"val_annotations\.txt: expected 4 lines, found 3"),
        ("classes", r"wnids\.txt: 2 classes, expected 3"),
    ],
)
def test_damaged(tmp_path, what, message):
    made.tiny_imagenet(tmp_path)
    change(tmp_path, what)
    with pytest.raises(DataError, match=message):
        load(tmp_path)
    assert not list(tmp_path.glob("**/*.partial"))


def test_missing_parts(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no wnids\.txt, train, .*subspaces data get tiny-imagenet"):
        load(tmp_path)
    made.tiny_imagenet(tmp_path)
    (tmp_path / "wnids.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"found no wnids\.txt in"):
        load(tmp_path)


def test_a_validation_image_that_is_not_there(tmp_path):
    made.tiny_imagenet(tmp_path)
    (tmp_path / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(FileNotFoundError, match=r"val_1\.JPEG"):
        load(tmp_path)


def test_problems(tmp_path):
    made.tiny_imagenet(tmp_path)
    assert tiny_imagenet.problems(tmp_path) == [f"{tmp_path / 'wnids.txt'}: 3 classes, expected 200: get it again"]
