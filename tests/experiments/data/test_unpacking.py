"""Archives that are cut short, altered, or made to fill the disk: nothing of them is left, and nothing is lost."""

import gzip
import io
import os
import struct
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from subspaces.experiments.data import DataError, archives
from subspaces.experiments.data.archives import unpack

MEGABYTE = 1 << 20


def make(path: Path, files: dict[str, bytes]) -> Path:
    """Write a tar or zip file with these members."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                packed.writestr(name, content)
    else:
        with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


FILES = {f"folder/{index}": os.urandom(3000) for index in range(20)}
kinds = pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])


@kinds
def test_half_an_archive_leaves_nothing_and_loses_nothing(tmp_path, name):
    archive, target = make(tmp_path / name, FILES), tmp_path / "out"
    (target / "folder").mkdir(parents=True)
    before = {"folder/0": b"of an earlier time", "folder/own": b"not of the archive", "other": b"data set"}
    for path, content in before.items():
        (target / path).write_bytes(content)
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a whole archive"):
        unpack(archive, target)
    assert tree(target) == before
    archive.write_bytes(whole)
    unpack(archive, target)
    assert tree(target) == {**before, **FILES}


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    archive = make(tmp_path / "a.zip", FILES)
    (tmp_path / ".a.zip.killed.partial" / "folder").mkdir(parents=True)
    unpack(archive, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.zip", "folder"}


def test_of_two_that_unpack_at_once_neither_takes_the_others_files(tmp_path):
    archive, seen = make(tmp_path / "a.zip", FILES), []
    second = threading.Thread(target=unpack, args=(archive, tmp_path / "out"))

    def progress(what: str, done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            second.start()
            second.join(0.2)  # it waits for us
            assert second.is_alive()

    unpack(archive, tmp_path / "out", progress)
    assert tree(tmp_path / "out").keys() >= FILES.keys()
    second.join()
    assert {name: content for name, content in tree(tmp_path / "out").items() if content} == FILES


@kinds
def test_what_fails_at_the_last_moment_leaves_nothing(tmp_path, name, monkeypatch):
    archive = make(tmp_path / name, FILES)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "_place", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])  # a plain tar has checksums of its headers alone
def test_a_flipped_byte_is_noticed_wherever_it_is(tmp_path, name):
    archive = make(tmp_path / name, {"one": os.urandom(5000), "two": b"text " * 3000})
    whole = archive.read_bytes()
    unpack(archive, tmp_path / "right")
    expected = tree(tmp_path / "right")
    noticed = 0
    for place in range(12, len(whole), len(whole) // 60):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        archive.write_bytes(damaged)
        target = tmp_path / f"out{place}"
        try:
            unpack(archive, target)
        except DataError:
            noticed += 1
            assert tree(target) == {}
        else:  # a byte that means nothing, such as the time in a header of a zip file
            assert {key: value for key, value in tree(target).items() if key in expected} == expected
    assert noticed > 45


def test_the_checksum_at_the_end_of_a_gzip_is_read(tmp_path):
    archive = make(tmp_path / "a.tar.gz", {"one": b"1234"})
    content = bytearray(archive.read_bytes())
    content[-8] ^= 1
    archive.write_bytes(content)
    with pytest.raises(DataError, match="not a whole archive"):
        unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {}


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_bomb_is_refused_by_its_ratio(tmp_path, name):
    archive = make(tmp_path / name, {f"zeros{index}": bytes(MEGABYTE) for index in range(4)})
    with pytest.raises(DataError, match=r"more than 100 times its size.*--limit-gb"):
        unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {}
    unpack(archive, tmp_path / "out", limit=5 * MEGABYTE)  # who says how much may come is not asked for the ratio
    assert len(tree(tmp_path / "out")) == 4


@kinds
def test_a_limit_of_the_total(tmp_path, name):
    archive = make(tmp_path / name, FILES)
    with pytest.raises(DataError, match=r"unpack to more than 50,000:.*--limit-gb"):
        unpack(archive, tmp_path / "out", limit=50_000)
    assert tree(tmp_path / "out") == {}
    unpack(archive, tmp_path / "out", limit=200_000)
    assert tree(tmp_path / "out") == FILES


def test_the_default_lets_the_published_data_sets_through():
    cifar10, tiny = 170_052_171, 248_100_043
    assert archives.allowed(cifar10, None) > 186_000_000
    assert archives.allowed(tiny, None) > 1_800_000_000
    assert archives.allowed(10**12, None) == archives.LIMIT


def test_a_zip_that_lies_about_its_sizes(tmp_path):
    archive = make(tmp_path / "a.zip", {"zeros": bytes(4 * MEGABYTE)})
    content = archive.read_bytes()
    lie = content.replace(struct.pack("<I", 4 * MEGABYTE), struct.pack("<I", 100))
    assert lie != content
    archive.write_bytes(lie)
    with pytest.raises(DataError):
        unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {}


def test_a_tar_that_lies_about_its_sizes(tmp_path):
    member = tarfile.TarInfo("huge")
    member.size = 8 << 40
    (tmp_path / "a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with pytest.raises(DataError):
        unpack(tmp_path / "a.tar", tmp_path / "out")
    assert tree(tmp_path / "out") == {}


def test_a_header_that_is_itself_the_bomb(tmp_path):
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, 64 * MEGABYTE
    with gzip.open(tmp_path / "a.tar.gz", "wb", 1) as packed:
        packed.write(member.tobuf(tarfile.PAX_FORMAT))
        for _ in range(8):
            packed.write(bytes(MEGABYTE))
    with pytest.raises(DataError, match="more than 100 times its size"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_a_sparse_member_is_refused(tmp_path):
    member = tarfile.TarInfo("sparse")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"00000000000\0"
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header[:512])
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(DataError, match=r"'sparse'.*refused"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


@kinds
def test_a_file_where_the_archive_has_a_folder_is_refused_beforehand(tmp_path, name):
    archive, target = make(tmp_path / name, {"a": b"1", **FILES}), tmp_path / "out"
    target.mkdir()
    (target / "folder").write_bytes(b"a file")
    with pytest.raises(DataError, match=r"a folder where .*/folder is none"):
        unpack(archive, target)
    assert tree(target) == {"folder": b"a file"}


def test_a_name_that_is_both_a_file_and_a_folder(tmp_path):
    archive = make(tmp_path / "a.tar.gz", {"a": b"1", "a/b": b"2"})
    with pytest.raises(DataError, match="not a whole archive"):
        unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {}


def test_an_encrypted_zip_is_an_error_of_the_archive(tmp_path):
    archive = make(tmp_path / "a.zip", {"one": b"1234"})
    content = bytearray(archive.read_bytes())
    for mark, offset in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        content[content.find(mark) + offset] |= 1
    archive.write_bytes(content)
    with pytest.raises(DataError, match="not a whole archive"):
        unpack(archive, tmp_path / "out")
