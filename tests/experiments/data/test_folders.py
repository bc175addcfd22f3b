"""Folders of images: ImageNet's and TinyImageNet's, and files and links that are damaged, huge or made to do harm."""

import io
import os
import re
import resource
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import made
import pytest
import torch
from commands import Result
from made import call, own
from PIL import Image

from subspaces.experiments.data import DataError, DataWarning, Files, check, folders, load
from subspaces.images import decoding
from subspaces.images.splits import image_files, labelled_files


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "TINY", {"train": 6, "val": 4})


# TinyImageNet


def tiny(root: Path, **options: Any) -> Any:
    return load("tiny-imagenet", root, **options)


@pytest.mark.parametrize("place", ["", "tiny-imagenet-200"])
def test_published_layout(tmp_path: Path, place: str) -> None:
    wnids = made.tiny_imagenet(tmp_path / place)
    data = tiny(tmp_path)
    assert data.train.images.shape == (6, 3, 64, 64)
    assert data.test.images.shape == (4, 3, 64, 64)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test.labels.tolist() == [0, 1, 2, 0]
    values = data.train.images.double().mean((1, 2, 3))
    torch.testing.assert_close(values, torch.tensor([0, 10, 40, 50, 80, 90]).double(), atol=1.5, rtol=0)
    values = data.test.images.double().mean((1, 2, 3))
    torch.testing.assert_close(values, torch.tensor([10, 11, 12, 13]).double(), atol=0.5, rtol=0)
    assert torch.equal(data.train.images[0, 0], data.train.images[0, 2])  # a grey file has three channels
    assert data.classes[sorted(wnids).index(wnids[0])] == "goldfish, Carassius auratus"
    assert data.classes[sorted(wnids).index(wnids[1])] == wnids[1]  # words.txt does not have it


def test_decoded_once_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.tiny_imagenet(tmp_path)
    steps = list[tuple[str, int, int]]()
    first = tiny(tmp_path, progress=lambda *step: steps.append(step))
    assert steps == [("decoding images", 6, 6), ("decoding images", 4, 4)]
    monkeypatch.setattr(decoding, "decode", None)
    second = tiny(tmp_path)
    assert torch.equal(first.train.images, second.train.images)
    assert not list(tmp_path.glob("**/*.partial"))
    second.train.images[0] = 77  # in this process's memory only
    assert not torch.equal(tiny(tmp_path).train.images, second.train.images)


IMAGE, LABELS = "train/n07/images/n07_0.JPEG", "val/val_annotations.txt"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (IMAGE, lambda content: content[:200], r"\.JPEG: 200 bytes that are not a whole image"),
        (IMAGE, lambda _: saved("JPEG"), "9 × 9 pixels, expected 64 × 64"),
        (IMAGE, None, "expected 6 images in train, found 5"),
        ("val/images/val_1.JPEG", None, r"val_1\.JPEG: cannot be opened \(No such file"),
        (LABELS, lambda text: text.replace(b"\tn09", b"\tn5"), r"the line \['val_2.JPEG', 'n5'.* no label of wnids"),
        (LABELS, lambda text: text[: text.index(b"val_3")], "expected 4 images in val, found 3"),
        ("wnids.txt", lambda _: b"n09\nn08\n", "has a folder of the class 'n07', which is not among the 2"),
        ("wnids.txt", None, r"found no folder with wnids\.txt, .*data get tiny-imagenet"),
    ],
)
def test_damaged(tmp_path: Path, name: str, change: Callable[[bytes], bytes] | None, message: str) -> None:
    made.tiny_imagenet(tmp_path)
    file = tmp_path / name
    content = file.read_bytes()
    file.unlink()
    if change is not None:
        file.write_bytes(change(content))
    with pytest.raises((DataError, FileNotFoundError), match=message):
        tiny(tmp_path)
    assert not list(tmp_path.glob("**/*.partial"))
    assert len(check("tiny-imagenet", tmp_path)) == 1


# ImageNet


def test_imagenet(tmp_path: Path) -> None:
    made.folders(tmp_path)
    (tmp_path / "train" / "class0" / "notes.txt").write_text("")
    (tmp_path / "train" / "class0" / ".hidden.jpg").write_text("")
    (tmp_path / "train" / ".hidden").mkdir()
    data = load("imagenet", tmp_path)
    assert data.classes == ("class0", "class1", "class2")
    assert data.image_shape == (3, 224, 224)
    assert isinstance(data.train, Files)
    assert isinstance(data.test, Files)
    assert (len(data.train), len(data.test)) == (12, 6)
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.train.path(5) == tmp_path / "train" / "class1" / "train_1.JPEG"
    assert all(data.test.path(i).is_file() for i in range(6))
    held = load("imagenet", tmp_path, validation=3)
    assert (len(held.train), len(held.validation or ())) == (9, 3)
    parts: list[Any] = [held.train, held.validation]
    found = {part.path(i): label for part in parts for i, label in enumerate(part.labels.tolist())}
    assert {path: f"class{label}" for path, label in found.items()} == {path: path.parent.name for path in found}
    assert len(found) == 12
    shutil.rmtree(tmp_path / "val" / "class0")  # the labels are those of training
    assert load("imagenet", tmp_path).test.labels.tolist() == [1, 1, 2, 2]


def test_check_reads_every_file_of_imagenet(tmp_path: Path) -> None:
    made.folders(tmp_path)
    assert check("imagenet", tmp_path) == []
    (tmp_path / "train" / "class1" / "train_2.JPEG").write_bytes(b"x")
    (tmp_path / "val" / "class0" / "val_1.JPEG").write_bytes(b"")
    Image.new("L", (60_000, 2)).save(tmp_path / "val" / "class2" / "strip.png")
    wrong = [re.sub(r".*/(\w+\.\w+): ", r"\1: ", line) for line in check("imagenet", tmp_path)]
    assert wrong == [
        "train_2.JPEG: 1 bytes that are not a whole image (of no known format): get it again",
        "val_1.JPEG: 0 bytes that are not a whole image (of no known format): get it again",
        "strip.png: 7,680,000 × 256 pixels, more than 100,000,000: scale it down or cut it",
    ]


@pytest.mark.parametrize(
    ("folder", "error", "message"),
    [
        (None, FileNotFoundError, r"no folder train in .*/train/<class>/\*\.JPEG.*data get imagenet"),
        ("train/class9", DataError, "class9: holds no images: put files there that end in .*, or remove it"),
        ("val/class7", DataError, "the class 'class7', which is not among the 3 of the data set .did you mean"),
    ],
)
def test_what_is_missing(tmp_path: Path, folder: str | None, error: type[Exception], message: str) -> None:
    if folder is not None:
        made.folders(tmp_path)
        (tmp_path / folder).mkdir()
    with pytest.raises(error, match=message):
        load("imagenet", tmp_path)


# Links, pipes and names


def checked(root: Path) -> Result:
    return call("data", "check", "folder", "--data", root)


def test_pipes_and_devices_are_named_and_left_out(tmp_path: Path) -> None:
    root = own(tmp_path)
    os.mkfifo(root / "a" / "x.png")
    os.symlink("/dev/zero", root / "b" / "zero.jpg")
    os.mkfifo(root / "beside.png")
    result = checked(root)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"wrong: {name}: not a regular file" for name in ("a/x.png", "b/zero.jpg")]
    for cache in list(root.glob(".subspaces*")):
        cache.unlink()
        os.mkfifo(cache)
    with pytest.warns(DataWarning, match="2 of 8"):
        assert len(load("folder", root).train) == 4


def test_links_are_followed_to_each_folder_once(tmp_path: Path) -> None:
    root = own(tmp_path / "root")
    for number, target in enumerate(("/", tmp_path, root, root / "a", "self")):  # what holds the folder, or nothing
        os.symlink(target, root / "a" / f"link{number}")
    os.symlink("link.png", root / "b" / "link.png")
    os.symlink("loop", root / "loop")
    made.image(root / "a" / "own" / "0.png", made.flat(100, (8, 8, 3)))
    os.symlink(root / "a" / "own", root / "a" / "another")
    made.image(tmp_path / "store" / "0.png", made.flat(200, (8, 8, 3)))
    os.symlink(tmp_path / "store", root / "a" / "store")  # elsewhere, as many keep their images
    for i in range(40):  # 2^40 ways
        (tmp_path / "store" / f"d{i}").mkdir()
        for name in ("x", "y"):
            os.symlink(tmp_path / "store" / f"d{i + 1}", tmp_path / "store" / f"d{i}" / name)
    found = [os.fsdecode(path) for path in labelled_files(root, ("a", "b")).paths]
    of_a = ["a/0.png", "a/1.png", "a/2.png", "a/own/0.png", "a/store/0.png"]
    assert found == [*of_a, "b/0.png", "b/1.png", "b/2.png", "b/link.png"]
    assert [line.split(": ")[1] for line in checked(root).stdout.splitlines()] == ["b/link.png"]
    assert image_files(tmp_path / "store") == ["0.png"]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def permitted(path: str) -> Any:
        if str(path).endswith("locked"):  # which the superuser could read
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    (own(tmp_path) / "a" / "locked").mkdir()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", permitted)
    result = checked(tmp_path)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "Permission denied" in result.stderr
    assert "locked" in result.stderr


def test_names_that_are_no_text_or_reach_the_terminal(tmp_path: Path) -> None:
    bad = "x\x1b]0;owned\x07\u202e[red]\n"
    root = own(tmp_path / "r\x1b[2J", ("a", bad, os.fsdecode(b"\xff")))
    assert len(load("folder", root).classes) == 3
    (root / bad / "broken\x1b[31m.png").write_bytes(b"x")
    (root / bad / os.fsdecode(b"no\xff text.png")).write_bytes(b"x")
    for result in (
        checked(root),
        call("train", "folder-standard", "--data", root, "--epochs", "1", "--out", tmp_path / "\x1b", "--seeds", "x"),
        call("data", "check", "folder", "--data", root / "nowhere"),
    ):
        assert result.exit_code
        assert all(line.isprintable() for line in result.output.splitlines()), result.output
    assert r"broken\x1b[31m.png" in checked(root).stdout


def test_tables_show_names_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    from subspaces.cli import printing

    filled = printing.table("name", title="a\x1b[2J title")
    filled.add_row("class\x1b[31m\u202e\udcff é 日本")
    printing.show(filled)
    output = capsys.readouterr().out
    assert all(line.isprintable() for line in output.splitlines())
    assert r"class\x1b[31m\u202e\udcff é 日本" in output
    assert r"a\x1b[2J title" in output


# Files


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")


def saved(kind: str, change: Callable[[bytes], bytes] = lambda content: content) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9)).save(buffer, kind)
    return change(buffer.getvalue())


def taller_frame(content: bytes) -> bytes:
    place = content.index(b",\0\0\0\0\t\0\t\0") + 8  # the height of the first frame
    return content[: place - 1] + b"\r" + content[place:]


HOSTILE: dict[str, bytes] = {
    "huge.png": png(2**31 - 1, 2**31 - 1),
    "large.png": png(4_000, 3_999),  # within the limit, and not there
    "counts.tif": b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 273, 4, 2**32 - 1, 8) + b"\0\0\0\0",
    "text.png": saved("PNG")[:33] + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8))) + saved("PNG")[33:],
    "frame.gif": saved("GIF", taller_frame),
    "empty.png": b"",
    "short.jpg": saved("JPEG")[:200],
    "program.png": saved("EPS"),  # PostScript would be run by another program
}


@contextmanager
def memory_for(more: int) -> Iterator[None]:
    """Limit what this process may take beside what it has."""
    held = resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.filterwarnings("ignore")  # Pillow's
@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_promise_more_than_they_hold(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name])
    with memory_for(1 << 30):
        for read in (decoding.decode, lambda path: decoding.square(path, 64)):
            with pytest.raises(DataError) as error:
                read(tmp_path / name)
            assert len(str(error.value).replace(str(tmp_path), "")) < 200
            assert "emory" not in str(error.value)
