"""The published files of corrupted images: CIFAR-10-C's arrays and ImageNet-C's folders."""

from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
import torch

from subspaces.evaluation.corruptions import corrupt, names_in, published
from subspaces.experiments.data import DataError, Files, Split

CLASSES = [f"class{number}" for number in range(10)]


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """Return CIFAR-10-C's layout with six images for each severity."""
    random = np.random.default_rng(0)
    for name in ("fog", "gaussian_noise"):
        np.save(tmp_path / f"{name}.npy", random.integers(0, 256, (30, 8, 8, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.tile(random.integers(0, 10, 6), 5).astype(np.uint8))
    return tmp_path


@pytest.fixture(params=["fog", "weather/fog"])
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return ImageNet-C's layout, with and without the folder of the group."""
    for name in ("n01", "n03"):
        for number in range(2):
            made.image(tmp_path / request.param / "2" / name / f"val_{number}.JPEG", made.flat(50 + number))
    return tmp_path


def test_arrays_are_five_blocks_by_severity(arrays: Path) -> None:
    pixels, labels = np.load(arrays / "fog.npy"), np.load(arrays / "labels.npy")
    for severity in range(1, 6):
        found = published(arrays, "fog", severity, CLASSES)
        assert isinstance(found, Split)
        rows = slice(6 * (severity - 1), 6 * severity)
        assert np.array_equal(found.images.permute(0, 2, 3, 1), pixels[rows])
        assert np.array_equal(found.labels, labels[rows])
        assert found.labels.dtype == torch.int64
    found.images.zero_()  # of the copy in memory, not of the file
    assert np.array_equal(np.load(arrays / "fog.npy"), pixels)


def test_what_is_corrupted_here_can_be_read_as_published(tmp_path: Path) -> None:
    images = made.natural(4, 16)
    blocks = [corrupt(images, "contrast", severity) for severity in range(1, 6)]
    np.save(tmp_path / "contrast.npy", torch.cat(blocks).permute(0, 2, 3, 1).numpy())
    np.save(tmp_path / "labels.npy", np.tile(np.arange(4), 5))
    found = published(tmp_path, "contrast", 3, CLASSES)
    assert isinstance(found, Split)
    assert torch.equal(found.images, blocks[2])
    assert found.labels.tolist() == [0, 1, 2, 3]


def test_folders_are_labelled_by_the_place_of_their_class(folders: Path) -> None:
    found = published(folders, "fog", 2, ["n03", "n02", "n01"])
    assert isinstance(found, Files)
    assert found.labels.tolist() == [2, 2, 0, 0]
    assert [found.path(i).name for i in range(4)] == ["val_0.JPEG", "val_1.JPEG"] * 2
    assert all(found.path(i).is_file() for i in range(4))
    assert names_in(folders) == ["fog"]


def test_names_are_in_the_published_order(arrays: Path) -> None:
    assert names_in(arrays) == ["gaussian_noise", "fog"]
    assert names_in(arrays / "none") == []


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("fog", np.zeros((30, 8, 8), np.uint8), r"uint8 \(30, 8, 8\), expected uint8 \(images, height, width, 3\)"),
        ("fog", np.zeros((30, 8, 8, 3)), "float64 .* expected uint8"),
        ("fog", np.zeros((31, 8, 8, 3), np.uint8), "31 images, expected five blocks"),
        ("fog", np.zeros((0, 8, 8, 3), np.uint8), "0 images, expected five blocks"),
        ("fog", b"\x93NUMPY", "cannot be read as an array"),
        ("fog", np.array([{}], object), "cannot be read as an array"),
        ("labels", np.zeros(29, np.uint8), r"labels.npy: uint8 \(29,\), expected whole numbers \(30,\)"),
        ("labels", np.zeros(30), "float64"),
        ("labels", np.full(30, 10, np.uint8), "image 0 has the label 10, expected 0 to 9"),
        ("labels", b"", "cannot be read as an array"),
    ],
)
def test_damaged_arrays_are_refused(arrays: Path, file: str, content: Any, message: str) -> None:
    target = arrays / f"{file}.npy"
    if isinstance(content, bytes):
        target.write_bytes(content)
    else:
        np.save(target, content, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        published(arrays, "fog", 1, CLASSES)


def test_what_is_missing_is_named(arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither frost.npy .*; it holds gaussian_noise and fog"):
        published(arrays, "frost", 1, CLASSES)
    with pytest.raises(FileNotFoundError, match="it holds no corruption at all: pass the folder"):
        published(tmp_path_factory.mktemp("empty"), "frost", 1, CLASSES)
    with pytest.raises(ValueError, match="unknown corruption 'frog'"):
        published(arrays, "frog", 1, CLASSES)
    with pytest.raises(ValueError, match="severity=6"):
        published(arrays, "fog", 6, CLASSES)
    (arrays / "labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"labels\.npy: not found"):
        published(arrays, "fog", 1, CLASSES)


def test_folders_that_do_not_fit_are_refused(folders: Path) -> None:
    with pytest.raises(DataError, match=r"the class 'n03' is not among the 2 of the data set \(did you mean 'n01'\?\)"):
        published(folders, "fog", 2, ["n01", "x"])
    with pytest.raises(FileNotFoundError, match=r"3: not found, expected .*<class>/\*.JPEG"):
        published(folders, "fog", 3, ["n01", "n03"])
    (place,) = folders.rglob("n03")
    for file in place.iterdir():
        file.unlink()
    with pytest.raises(DataError, match="n03: holds no images"):
        published(folders, "fog", 2, ["n01", "n03"])
    (place.parents[1] / "1").mkdir()
    with pytest.raises(DataError, match="holds no folders"):
        published(folders, "fog", 1, ["n01", "n03"])
