"""Folders of images that somebody sent: nothing in them stops the program, fills the memory or reaches the terminal."""

import inspect
import io
import os
import resource
import shutil
import signal
import socket
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import made
import pytest
from made import call, own
from PIL import Image
from typer.testing import Result

from subspaces.experiments.data import DataError, DataWarning, check, fingerprint_of, load
from subspaces.images import decoding, listing
from subspaces.images.reading import open_regular

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


# What is no regular file


def test_pipes_sockets_and_devices_are_passed_over(tmp_path: Path) -> None:
    root = own(tmp_path)
    os.mkfifo(root / "a" / "x.png")
    os.symlink(root / "a" / "x.png", root / "b" / "linked.png")
    os.symlink("/dev/zero", root / "b" / "zero.jpg")
    os.mkfifo(root / "beside.png")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(os.path.relpath(root / "a" / "s.png"))
        result = checked(root)
    assert result.exit_code == 0, result.output
    assert "4 other files passed over" in result.stdout
    assert call("train", "folder-standard", "--data", root, "--dry-run").exit_code in (0, 2)


def test_what_becomes_a_pipe_later_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x\.png: a pipe, expected a regular file"):
        open_regular(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"a pipe, expected a regular file$"):
        decoding.decode(tmp_path / "x.png")
    with pytest.raises(DataError, match="a folder, expected"):
        open_regular(tmp_path)


@pytest.mark.parametrize("name", ["wnids.txt", "words.txt", "val/val_annotations.txt", "train/n07/images/n07_0.JPEG"])
def test_pipes_in_published_layouts(tmp_path: Path, name: str) -> None:
    made.tiny_imagenet(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert call("data", "check", "tiny-imagenet", "--data", tmp_path).exit_code == 1


def test_a_pipe_among_the_images_of_imagenet(tmp_path: Path) -> None:
    made.folders(tmp_path)
    os.mkfifo(tmp_path / "train" / "class0" / "0.JPEG")
    assert any("0.JPEG: a pipe" in problem for problem in check("imagenet", tmp_path))


def test_pipes_in_place_of_caches(tmp_path: Path) -> None:
    root = own(tmp_path)
    before = fingerprint_of(root)
    load("folder", root)
    for cache in list(root.glob(".subspaces*")):
        cache.unlink()
        os.mkfifo(cache)
    assert fingerprint_of(root) == before
    assert len(load("folder", root).train) == 4
    made.folders(tmp_path / "imagenet")
    os.mkfifo(tmp_path / "imagenet" / ".subspaces-train.npz")
    assert len(load("imagenet", tmp_path / "imagenet").train) == 12


# Links


def test_links_between_folders_are_walked_once(tmp_path: Path) -> None:
    root = own(tmp_path)
    for i in range(40):  # 2^40 ways
        (root / "a" / f"d{i}").mkdir()
        made.image(root / "a" / f"d{i}" / "0.png", made.flat(100 + i, (8, 8, 3)))
        for name in ("x", "y"):
            os.symlink(root / "a" / f"d{i + 1}", root / "a" / f"d{i}" / name)
    paths = [entry.path for entry in listing.find(root).entries]
    assert len(paths) == 3 + 40 + 3
    assert [path for path in paths if path.count("/") > 2] == []


def test_links_between_classes_do_not_multiply(tmp_path: Path) -> None:
    count = 60
    for i in range(count):
        made.image(tmp_path / f"c{i:02}" / "deeper" / "0.png", made.flat(i, (8, 8, 3)))
        if i:
            os.symlink(tmp_path / f"c{i - 1:02}" / "deeper", tmp_path / f"c{i:02}" / "deeper" / "next")
    found = listing.find(tmp_path)
    assert {entry.label for entry in found.entries} == set(range(count))
    assert count <= len(found.entries) <= 2 * count


def test_links_to_what_holds_the_folder(tmp_path: Path) -> None:
    root = own(tmp_path / "root")
    for number, target in enumerate(("/", tmp_path, root, root / "a", root / "b", "self")):
        os.symlink(target, root / "a" / f"link{number}")
    os.symlink("link.png", root / "b" / "link.png")
    os.symlink("loop", root / "loop")
    made.image(tmp_path / "store" / "0.png", made.flat(200, (8, 8, 3)))
    os.symlink(tmp_path / "store", root / "a" / "store")  # elsewhere, as many keep their images
    paths = [entry.path for entry in listing.find(root).entries]
    expected = [f"a/{i}.png" for i in range(3)] + [f"a/link4/{i}.png" for i in range(3)] + ["a/link4/link.png"]
    expected += [*(f"b/{i}.png" for i in range(3)), "b/link.png", "a/store/0.png"]
    assert sorted(paths) == sorted(expected)
    result = checked(root)
    assert result.exit_code == 1
    assert [line.split(": ")[1] for line in result.stdout.splitlines()] == ["a/link4/link.png", "b/link.png"]


def test_folders_in_each_other_deeper_than_calls_may_be(tmp_path: Path) -> None:
    root, limit = own(tmp_path), sys.getrecursionlimit()
    deep = root / "a" / "/".join(["d"] * 250)
    deep.mkdir(parents=True)
    made.image(deep / "deep.png", made.flat(9, (8, 8, 3)))
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        paths = [entry.path for entry in listing.find(root).entries]
    finally:
        sys.setrecursionlimit(limit)
    assert os.path.relpath(deep / "deep.png", root) in paths


# Names


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
    for file in (root / bad).iterdir():
        file.write_bytes(b"x")
    wrong = checked(root).stdout
    assert all(line.isprintable() for line in wrong.splitlines())
    assert r"\x1b]0;owned\x07\u202e[red]" in wrong.replace("\\\\", "\\")


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
        shutil.copy(next((source / "class1").iterdir()), source / "class1" / os.fsdecode(b"\xfe.JPEG"))
    data = load("imagenet", tmp_path / "imagenet")
    assert (len(data.train), data.train.path(0).is_file()) == (13, True)
    assert call("data", "check", "imagenet", "--data", tmp_path / "imagenet").exit_code == 1


def test_two_classes_of_one_name_are_refused(tmp_path: Path) -> None:
    root = own(tmp_path, ("a", os.fsdecode(b"\xff"), os.fsdecode(b"\xfe")))
    with pytest.raises(DataError, match=r"several folders are called '�'.*rename"):
        load("folder", root)


def test_names_that_differ_in_case_are_other_classes(tmp_path: Path) -> None:
    assert load("folder", own(tmp_path, ("a", "A"))).classes == ("A", "a")


def test_thousands_of_classes(tmp_path: Path) -> None:
    made.image(tmp_path / "one.png", made.flat(1, (8, 8, 3)))
    root = tmp_path / "root"
    for i in range(1500):
        (root / f"{i:04}").mkdir(parents=True)
        for j in range(1 + (i > 0)):
            os.link(tmp_path / "one.png", root / f"{i:04}" / f"{j}.png")
    with pytest.warns(DataWarning, match="the test has no images of the class '0000'"):
        data = load("folder", root, image_size=8)
    assert (len(data.train), len(data.test)) == (1500, 1499)


# Files


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def bmp(width: int, height: int, content: bytes) -> bytes:
    """A BMP of run lengths."""
    palette = bytes(4 * 256)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(content), 0, 0, 256, 0)
    return (
        b"BM"
        + struct.pack("<IHHI", 54 + len(palette) + len(content), 0, 0, 54 + len(palette))
        + header
        + palette
        + content
    )


def saved(kind: str, change: Callable[[bytes], bytes] = lambda content: content, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9)).save(buffer, kind, **options)
    return change(buffer.getvalue())


def gif() -> bytes:
    frames = [Image.new("L", (9, 9), i) for i in range(5)]
    return saved("GIF", lambda c: c[:6] + b"\xff\xff\xff\xff" + c[10:], save_all=True, append_images=frames)


HOSTILE: dict[str, bytes] = {
    "huge.png": png(2**31 - 1, 2**31 - 1),
    "large.png": png(4_000, 3_999),  # within the limit, and not there
    "thin.png": png(99_999_999, 1),
    "huge.gif": gif(),
    "huge.jpg": saved(
        "JPEG", lambda c: c.replace(b"\xff\xc0\x00\x11\x08\x00\x09\x00\x09", b"\xff\xc0\x00\x11\x08\xff\xff\xff\xff")
    ),
    "huge.webp": saved("WEBP", lambda c: c[:21] + b"\xff" * 6 + c[27:], lossless=True),
    "huge.bmp": bmp(99_999_999, 1, b"\0\2\xff\xff" * 100),
    "huge.ppm": b"P6 99999999 99999999 255\n1",
    "plain.ppm": b"P3 2000 2000 255\n" + b"1 " * 1000,
    "huge.tif": saved("TIFF", lambda c: c.replace(struct.pack("<HHI", 256, 4, 1), b"")[:-30]),
    "counts.tif": b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 273, 4, 2**32 - 1, 8) + b"\0\0\0\0",
    "text.png": saved("PNG")[:33] + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8))) + saved("PNG")[33:],
    "empty.png": b"",
    "short.jpg": saved("JPEG")[:200],
    "program.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "nul.gif": b"GIF89a",
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


def test_images_wider_than_high_by_far(tmp_path: Path) -> None:
    Image.new("L", (60_000, 2), 77).save(tmp_path / "long.png")
    with memory_for(1 << 30):
        view = decoding.centre_view(decoding.decode(tmp_path / "long.png"), 256, 224)
    assert (view.shape, view.min(), view.max()) == ((224, 224, 3), 77, 77)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    root = own(tmp_path)
    (root / "a" / "locked").mkdir(mode=0)
    result = checked(root)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "locked" in result.stderr
