"""The user's own images: every awkward kind of file and folder, which of them are for the test, and the cache."""

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import made
import numpy as np
import pytest
import torch
from made import own
from PIL import Image

from subspaces.experiments.data import DataError, DataWarning, check, describe, fingerprint_of, folders, load
from subspaces.experiments.data.loading import training_count
from subspaces.images import decoding


def names(split) -> list[int]:
    """The colours of images that are of one colour."""
    return split.images[:, 0, 0, 0].tolist()


def read(root: Path, **options):
    return load("folder", root, **{"image_size": 8, **options})


# Layouts


@pytest.mark.parametrize("test", ["test", "val", "valid", "validation", "Test"])
def test_two_folders(tmp_path, test):
    own(tmp_path / "train", per_class=3)
    own(tmp_path / test, per_class=2)
    data = read(tmp_path)
    assert (data.name, data.classes) == (f"{tmp_path.name} (folder)", ("a", "b"))
    assert (names(data.train), names(data.test)) == ([0, 1, 2, 40, 41, 42], [0, 1, 40, 41])
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1])
    assert data.image_shape == (3, 8, 8)


def test_classes_alone_are_divided(tmp_path):
    data = read(own(tmp_path, per_class=40))
    assert sorted(names(data.train) + names(data.test)) == [*range(80)]
    assert 8 <= len(data.test) <= 24
    assert set(data.test.labels.tolist()) == {0, 1}
    own(tmp_path / "other" / "train", per_class=40)  # of training images alone
    assert len(read(tmp_path / "other").test) in range(8, 25)
    assert read(own(tmp_path / "last", classes=("bus", "train"))).classes == ("bus", "train")


def test_an_image_stays_where_it_is_when_others_come(tmp_path):
    own(tmp_path, per_class=40)
    before = set(names(read(tmp_path).test))
    for i in range(60, 70):
        made.image(tmp_path / "a" / f"{i}.png", made.flat(100 + i, (8, 8, 3)))
    after = read(tmp_path)
    assert before <= set(names(after.test))
    assert set(names(after.test)) - before <= set(range(160, 170))
    assert set(names(read(tmp_path, seed=1).test)) != set(names(after.test))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_classes_are_on_both_sides_where_they_can_be(tmp_path, count):
    own(tmp_path, per_class=20)
    own(tmp_path, per_class=count, classes=("few",))
    untested = pytest.warns(DataWarning, match="the test has no images of 1 of the classes: few")
    for seed in range(5):
        with nullcontext() if count > 1 else untested:
            data = read(tmp_path, seed=seed)
        assert 2 in data.train.labels
        assert (2 in data.test.labels) == (count > 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: shutil.rmtree(root / "b"), "has one class, 'a': expected a folder for each of two"),
        (lambda root: (root / "c").mkdir(), "c: holds no images: put files there that end in"),
        (lambda root: [shutil.rmtree(root / name) for name in "ab"], "found no folders of images"),
        (lambda root: [(root / name / "1.png").unlink() for name in "ab"], "no image is left for the test"),
        (
            lambda root: [own(root / "train", "ab"), own(root / "test", "abc")],
            "a folder of the class 'c', which is not",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::subspaces.experiments.data.DataWarning")
def test_what_is_no_data_set(tmp_path, change, message):
    change(own(tmp_path, per_class=2))
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    assert message in check("folder", tmp_path)[-1]


# Files


def test_names_of_every_kind(tmp_path):
    own(tmp_path, classes=("Rose é", "blå klocka", "日本"), per_class=4)
    (tmp_path / "Rose é" / "deeper" / "still").mkdir(parents=True)
    made.image(tmp_path / "Rose é" / "deeper" / "still" / "0.JPG", made.flat(200))
    os.symlink(tmp_path / "日本" / "0.png", tmp_path / "日本" / "link.png")
    os.symlink(tmp_path / "Rose é" / "deeper", tmp_path / "blå klocka" / "linked")
    made.image(tmp_path / "日本" / ".hidden.png", made.flat(1))
    made.image(tmp_path / ".thumbnails" / "1.png", made.flat(1))
    (tmp_path / "日本" / "notes.txt").write_text("not an image")
    (tmp_path / "README").write_text("not an image")
    data = read(tmp_path)
    assert data.classes == ("Rose é", "blå klocka", "日本")
    assert torch.cat([data.train.labels, data.test.labels]).bincount().tolist() == [5, 5, 5]
    assert "in 3 classes" in describe("folder", tmp_path)


COLOUR = Image.new("RGB", (12, 12), (250, 100, 30))
PALETTE = COLOUR.quantize(2)
CLEAR = COLOUR.copy()
CLEAR.putalpha(0)
MODES: dict[str, tuple[Image.Image, dict[str, int], list[int]]] = {
    "one.jpg": (COLOUR, {"quality": 100}, [250, 100, 30]),
    "one.avif": (COLOUR, {"quality": 100}, [250, 100, 30]),
    "grey.png": (COLOUR.convert("L"), {}, [137, 137, 137]),
    "black.png": (Image.new("1", (12, 12)), {}, [0, 0, 0]),
    "palette.png": (PALETTE, {}, [250, 100, 30]),
    "sixteen.png": (Image.fromarray(np.full((12, 12), 200 * 257, np.uint16)), {}, [200, 200, 200]),
    "clear.png": (CLEAR, {}, [255, 255, 255]),
    "opaque.png": (Image.new("LA", (12, 12), (40, 255)), {}, [40, 40, 40]),
    "clear palette.png": (PALETTE, {"transparency": PALETTE.tobytes()[0]}, [255, 255, 255]),
    "print.tiff": (Image.new("CMYK", (12, 12), (0, 0, 0, 255)), {}, [0, 0, 0]),
}


@pytest.mark.parametrize("name", MODES)
def test_modes(tmp_path, name):
    image, options, expected = MODES[name]
    image.save(tmp_path / name, **options)
    found = decoding.square(tmp_path / name, 8)
    assert (found.shape, found.dtype) == ((8, 8, 3), np.uint8)
    assert np.abs(found.reshape(-1, 3).astype(int) - expected).max() <= 2


def test_the_centre_is_taken_and_the_camera_believed(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255  # the centre square
    wide[:, 10:15, 1] = 0
    made.image(tmp_path / "wide.png", wide)
    found = decoding.square(tmp_path / "wide.png", 10)
    assert np.array_equal(found, wide[:, 10:20])
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    made.image(tmp_path / "turned.png", wide, exif=exif)
    assert np.array_equal(decoding.square(tmp_path / "turned.png", 10), np.rot90(wide, -1)[10:20])


def test_broken_files_are_named_and_left_out(tmp_path, monkeypatch):
    def locking(opening):
        def locked(path, *options, **more):
            if Path(path).name == "locked.png":  # which the superuser could read
                raise PermissionError(13, "Permission denied", str(path))
            return opening(path, *options, **more)

        return locked

    monkeypatch.setattr(Image, "open", locking(Image.open))
    monkeypatch.setattr(folders, "open", locking(open), raising=False)
    a, b = (own(tmp_path, per_class=6) / name for name in "ab")
    (a / "text.png").write_text("text")
    (a / "empty.jpg").write_bytes(b"")
    (b / "short.png").write_bytes((a / "1.png").read_bytes()[:-30])
    os.symlink(tmp_path / "nowhere.png", b / "away.png")
    Image.new("F", (9, 9)).save(b / "floats.tiff")
    Image.new("1", (10_000, 10_001)).save(b / "large.png")
    made.image(b / "locked.png", made.flat(1))
    with pytest.warns(DataWarning, match=r"7 of 19 image files in .* cannot be read .*empty\.jpg.*data check folder"):
        data = read(tmp_path)
    assert len(data.train) + len(data.test) == 12
    with pytest.warns(DataWarning, match="7 of 19"):  # from the cache too
        again = read(tmp_path)
    assert torch.equal(data.train.images, again.train.images)
    assert ":19:" in fingerprint_of(tmp_path)
    wrong = check("folder", tmp_path)
    known = [
        "away.png: cannot be opened (No such file",
        "locked.png: cannot be opened (Permission denied)",
        "short.png",
    ]
    known += ["text.png: 4 bytes", "empty.jpg: 0 bytes", "floats.tiff", "large.png: 10,000 × 10,001 pixels, more than"]
    assert len(wrong) == len(known)
    assert all(sum(name in each for each in wrong) == 1 for name in known)


# The cache


def test_decoded_once_until_something_changes(tmp_path, monkeypatch):
    own(tmp_path, per_class=6)
    steps = []
    first = read(tmp_path, progress=lambda *step: steps.append(step))
    assert steps == [("decoding images", 12, 12)]
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "square", None)
        second = read(tmp_path)
    assert torch.equal(first.train.images, second.train.images)
    assert (first.mean, first.std) == (second.mean, second.std)
    made.image(tmp_path / "a" / "new.png", made.flat(99, (8, 8, 3)))
    third = read(tmp_path)
    assert 99 in names(third.train) + names(third.test)
    assert len(list(tmp_path.glob(".subspaces-*-*"))) == 2  # of this size the newest alone
    assert read(tmp_path, image_size=16).image_shape == (3, 16, 16)
    assert len(list(tmp_path.glob(".subspaces-*-*"))) == 4
    assert not list(tmp_path.glob("*partial*"))


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *[(kind, damage) for kind in ("npy", "json") for damage in (lambda c: c[:-1], lambda c: b"", lambda c: b"[]")],
        ("npy", lambda c: c.replace(b"(12, 8, 8, 3)", b"(4, 24, 8, 3)")),
        ("npy", lambda c: c.replace(b"|u1", b"|i1")),
    ],
)
def test_a_damaged_cache_is_made_again(tmp_path, kind, damage):
    expected = read(own(tmp_path, per_class=6)).train.images.clone()
    (cache,) = tmp_path.glob(f".subspaces-*-*.{kind}")
    content = cache.read_bytes()
    cache.unlink()
    cache.write_bytes(damage(content))
    partial = cache.with_name(f".{cache.name}.0123abcd.partial")  # of a process that was killed
    partial.write_bytes(b"x")
    assert torch.equal(read(tmp_path).train.images, expected)
    assert cache.read_bytes() == content
    assert not partial.exists()


def test_where_the_folder_cannot_be_written(tmp_path, monkeypatch):
    root, access = own(tmp_path / "mine", per_class=6), os.access
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != root and access(path, mode))
    expected = read(root).train.images
    assert not list(root.glob(".subspaces*"))
    assert len(list(tmp_path.glob("cache/subspaces/mine/.subspaces*"))) == 2
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "square", None)
        assert torch.equal(read(root).train.images, expected)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert torch.equal(read(root).train.images, expected)  # in memory
    assert not list(tmp_path.glob("other/**/.subspaces*"))


def test_a_full_disk_leaves_nothing_that_is_taken_for_whole(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    own(tmp_path, per_class=6)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match=r"No space left on device: could not be written: '.*npy'"):
            read(tmp_path)
    assert not list(tmp_path.glob(".*"))
    assert len(read(tmp_path).train) > 0


def test_two_that_decode_at_once_have_the_same_images(tmp_path, monkeypatch):
    both, square = threading.Barrier(2, timeout=20), decoding.square

    def together(path, size):
        if path.parent.name + path.name == "b2.png":
            both.wait()
        return square(path, size)

    own(tmp_path)
    monkeypatch.setattr(decoding, "square", together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(read, [tmp_path] * 2)
    assert torch.equal(first.train.images, second.train.images)
    assert sorted(names(first.train) + names(first.test)) == [0, 1, 2, 40, 41, 42]
    assert len(list(tmp_path.glob(".*"))) == 2


def test_the_constants_are_those_of_the_training_images(tmp_path):
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        for i in range(8):
            made.image(tmp_path / name / f"{i}.png", random.integers(0, 256, (8, 8, 3), np.uint8))
    data = read(tmp_path, validation=3)
    seen = torch.cat([data.train.images, data.validation.images]).double() / 255
    torch.testing.assert_close(torch.tensor(data.mean).double(), seen.mean((0, 2, 3)))
    torch.testing.assert_close(torch.tensor(data.std).double(), seen.std((0, 2, 3), correction=0))


# What tells folders apart


def test_fingerprints(tmp_path):
    root = own(tmp_path / "flowers", per_class=6)
    before = fingerprint_of(root)
    assert before.startswith("flowers:12:")
    read(root)  # which keeps a cache there
    os.utime(root / "a" / "0.png", ns=(1, 1))
    root = root.rename(tmp_path / "moved")
    read(root, fingerprint=before)  # neither time nor place are content
    made.image(root / "a" / "0.png", made.flat(7, (8, 8, 3)))  # of the same size
    with pytest.raises(DataError, match=r"moved has other image files .*'flowers'"):
        read(root, fingerprint=before)
    os.utime(root / "a" / "0.png", ns=(2, 2))
    data = read(root)
    assert 7 in names(data.train) + names(data.test)
    (root / "a" / "0.png").unlink()
    with pytest.raises(DataError, match="moved has other image files"):
        read(root, fingerprint=before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 7}, "image_size=7: expected 8 to 1024 pixels"),
        ({"image_size": 1025}, "image_size=1025: expected 8 to 1024 pixels"),
        ({"fingerprint": "x"}, "fingerprint='x': expected NAME:FILES:DIGEST"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        read(own(tmp_path, per_class=6), **options)
    with pytest.raises(ValueError, match="it is for your own images, the data set 'folder'"):
        load("digits", **options)
    assert training_count("folder", tmp_path / "nowhere", 0, 0) is None
    assert training_count("folder", tmp_path, 0, 16) == len(read(tmp_path).train)
