"""Folders and files that somebody sent: nothing in them stops the program, fills the memory or reaches the terminal."""

import io
import os
import resource
import signal
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import made
import numpy as np
import pytest
from commands import Result
from made import call, own
from PIL import Image
from subspaces.images.listing import image_files, labelled_files

from subspaces.experiments.data import DataError, DataWarning, load
from subspaces.images import decoding
from subspaces.images.decoding import DAMAGED, read_arrays

SECONDS = 20  # that no test needs, unless something waits for ever
OVERRIDE, ESCAPE = "\u202e", "\x1b"


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def checked(root: Path) -> Result:
    return call("data", "check", "folder", "--data", root)


def test_pipes_and_devices_are_named_and_left_out(tmp_path: Path) -> None:
    root = own(tmp_path)
    os.mkfifo(root / "a" / "x.png")
    os.symlink("/dev/zero", root / "b" / "zero.jpg")
    os.mkfifo(root / "beside.png")
    result = checked(root)
    assert result.exit_code == 1
    lines = ["wrong: a/x.png: not a regular file", "wrong: b/zero.jpg: not a regular file"]
    assert result.stdout.splitlines() == lines
    for cache in list(root.glob(".subspaces*")):
        cache.unlink()
        os.mkfifo(cache)
    with pytest.warns(DataWarning, match="2 of 8"):
        assert len(load("folder", root).train) == 4


def test_links_between_folders_are_walked_once(tmp_path: Path) -> None:
    root = own(tmp_path)
    for i in range(40):  # 2^40 ways
        (root / "a" / f"d{i}").mkdir()
        made.image(root / "a" / f"d{i}" / "0.png", made.flat(100 + i, (8, 8, 3)))
        for name in ("x", "y"):
            os.symlink(root / "a" / f"d{i + 1}", root / "a" / f"d{i}" / name)
    assert len(image_files(root / "a")) == 3 + 40


def test_links_to_what_holds_the_folder_or_to_nothing(tmp_path: Path) -> None:
    root = own(tmp_path / "root")
    for number, target in enumerate(("/", tmp_path, root, root / "a", "self")):
        os.symlink(target, root / "a" / f"link{number}")
    os.symlink("link.png", root / "b" / "link.png")
    os.symlink("loop", root / "loop")
    made.image(tmp_path / "store" / "0.png", made.flat(200, (8, 8, 3)))
    os.symlink(tmp_path / "store", root / "a" / "store")  # elsewhere, as many keep their images
    found = labelled_files(root, ("a", "b"))
    paths = [os.fsdecode(path) for path in found.paths]
    assert paths == ["a/0.png", "a/1.png", "a/2.png", "a/store/0.png", "b/0.png", "b/1.png", "b/2.png", "b/link.png"]
    assert [line.split(": ")[1] for line in checked(root).stdout.splitlines()] == ["b/link.png"]


def test_names_reach_the_terminal_as_escapes(tmp_path: Path) -> None:
    bad = f"x{ESCAPE}]0;owned\x07{OVERRIDE}[red]\n"
    root = own(tmp_path / f"r{ESCAPE}[2J", ("a", bad))
    (root / bad / f"broken{ESCAPE}[31m.png").write_bytes(b"x")
    (root / bad / os.fsdecode(b"no\xff text.png")).write_bytes(b"x")
    for result in (
        checked(root),
        call("train", "folder-standard", "--data", root, "--epochs", "1", "--out", tmp_path / ESCAPE, "--seeds", "x"),
        call("data", "check", "folder", "--data", root / "nowhere"),
    ):
        assert result.exit_code
        assert all(line.isprintable() for line in result.output.splitlines()), result.output
    assert r"broken\x1b[31m.png" in checked(root).stdout


def test_tables_show_names_as_escapes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from subspaces.cli import printing

    monkeypatch.setenv("COLUMNS", "100")
    filled = printing.table("name", title=f"a{ESCAPE}[2J title")
    filled.add_row(f"class{ESCAPE}[31m{OVERRIDE}\udcff é 日本")
    printing.show(filled)
    output = capsys.readouterr().out
    assert all(line.isprintable() for line in output.splitlines())
    assert r"class\x1b[31m\u202e\udcff é 日本" in output
    assert r"a\x1b[2J title" in output


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    root = own(tmp_path / "own", ("a", os.fsdecode(b"\xff")))
    assert checked(root).exit_code == 0
    made.folders(tmp_path / "imagenet")
    for part in ("train", "val"):
        source = tmp_path / "imagenet" / part
        (source / "class0").rename(source / os.fsdecode(b"\xff"))
    data = load("imagenet", tmp_path / "imagenet")
    assert (len(data.train), data.train.path(11).is_file()) == (12, True)
    assert call("data", "check", "imagenet", "--data", tmp_path / "imagenet").exit_code == 0
    own(root, (os.fsdecode(b"\xfe"),))
    with pytest.raises(DataError, match=r"several folders are called '�'.*rename"):
        load("folder", root)


# Files


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")


def saved(kind: str, change: Callable[[bytes], bytes] = lambda content: content, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9)).save(buffer, kind, **options)
    return change(buffer.getvalue())


HOSTILE: dict[str, bytes] = {
    "huge.png": png(2**31 - 1, 2**31 - 1),
    "large.png": png(4_000, 3_999),  # within the limit, and not there
    "thin.png": png(99_999_999, 1),
    "huge.jpg": saved(
        "JPEG", lambda c: c.replace(b"\xff\xc0\x00\x11\x08\x00\x09\x00\x09", b"\xff\xc0\x00\x11\x08\xff\xff\xff\xff")
    ),
    "huge.webp": saved("WEBP", lambda c: c[:21] + b"\xff" * 6 + c[27:], lossless=True),
    "huge.ppm": b"P6 99999999 99999999 255\n1",
    "plain.ppm": b"P3 2000 2000 255\n" + b"1 " * 1000,
    "counts.tif": b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 273, 4, 2**32 - 1, 8) + b"\0\0\0\0",
    "text.png": saved("PNG")[:33] + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8))) + saved("PNG")[33:],
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


def test_a_folder_of_hostile_files_is_one_line_each(tmp_path: Path) -> None:
    root = own(tmp_path)
    for name, content in HOSTILE.items():
        (root / "a" / name).write_bytes(content)
    with open(root / "a" / "sparse.png", "wb") as file:
        file.truncate(1 << 40)
    result = checked(root)
    wrong = result.stdout.splitlines()
    assert result.exit_code == 1
    assert all(line.startswith("wrong: a/") for line in wrong)
    assert any("sparse.png: 1,099,511,627,776 bytes" in line for line in wrong)
    assert any("thin.png: 99,999,999 × 1 pixels, more than 65,535 on one side" in line for line in wrong)
    assert len(wrong) >= len(HOSTILE) - 1


def test_a_damaged_frame_is_no_image_of_one_colour(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("L", (9, 9), 200).save(buffer, "GIF")
    content = bytearray(buffer.getvalue())
    content[content.index(b",\0\0\0\0\t\0\t\0") + 8] = 13  # a frame that is higher than said before
    (tmp_path / "x.gif").write_bytes(content)
    for read in (decoding.decode, lambda path: decoding.square(path, 8)):
        with pytest.raises(DataError, match="not a whole image"):
            read(tmp_path / "x.gif")


@pytest.mark.parametrize("damage", ["truncated", "objects", "bomb", "text", "pipe"])
def test_arrays_that_somebody_made(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, images=np.zeros((2, 8, 8), np.uint8))
    assert read_arrays(path)["images"].shape == (2, 8, 8)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-30])
    elif damage == "objects":
        np.savez(path, images=np.array([None]))
    elif damage == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("images.npy", "w") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (10**10, 8, 8)}
            np.lib.format.write_array_header_1_0(file, header)
    else:
        path.unlink()
        path.write_bytes(b"text") if damage == "text" else os.mkfifo(path)
    with memory_for(1 << 30), pytest.raises(DAMAGED):
        read_arrays(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    root = own(tmp_path)
    (root / "a" / "locked").mkdir(mode=0)
    result = checked(root)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "locked" in result.stderr
