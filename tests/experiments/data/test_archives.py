import io
import stat
import tarfile
import zipfile

import pytest

from subspaces.experiments.data import DataError
from subspaces.experiments.data.archives import unpack


def tar(path, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for member in (named("good/file"), *members):
            member.size = 4 if member.isfile() else 0
            archive.addfile(member, io.BytesIO(b"1234") if member.isfile() else None)


def named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def test_tar(tmp_path):
    tar(tmp_path / "a.tar.gz", named("folder", tarfile.DIRTYPE), named("folder/other"))
    steps = []
    unpack(tmp_path / "a.tar.gz", tmp_path / "out", lambda *step: steps.append(step))
    assert (tmp_path / "out" / "good" / "file").read_bytes() == b"1234"
    assert (tmp_path / "out" / "folder" / "other").read_bytes() == b"1234"
    size = (tmp_path / "a.tar.gz").stat().st_size
    assert steps[-1] == ("unpacking a.tar.gz", size, size)


@pytest.mark.parametrize(
    "member",
    [
        named("../outside"),
        named("good/../../outside"),
        named("/outside"),
        named("..\\outside"),
        named("C:\\outside"),
        named("good/link", tarfile.SYMTYPE, "/etc/passwd"),
        named("good/link", tarfile.SYMTYPE, "file"),
        named("good/link", tarfile.LNKTYPE, "good/file"),
        named("device", tarfile.CHRTYPE),
        named("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name} {member.type.decode()}",
)
def test_bad_tar_is_refused_whole(tmp_path, member):
    tar(tmp_path / "a.tar.gz", member)
    with pytest.raises(DataError, match=r"a\.tar\.gz: the member .* refused, and nothing was unpacked"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_a_link_that_was_there_before_is_not_followed(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "good").symlink_to(tmp_path / "elsewhere")
    tar(tmp_path / "a.tar.gz")
    with pytest.raises(DataError, match="refused"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder/", b"")
        archive.writestr("folder/file", b"1234")
    unpack(tmp_path / "a.zip", tmp_path / "out")
    assert (tmp_path / "out" / "folder" / "file").read_bytes() == b"1234"


@pytest.mark.parametrize(("name", "mode"), [("../outside", 0), ("/outside", 0), ("link", stat.S_IFLNK)])
def test_bad_zip_is_refused_whole(tmp_path, name, mode):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("good", b"1234")
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        archive.writestr(member, b"/etc/passwd")
    with pytest.raises(DataError, match=r"a\.zip: the member .* refused"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_not_an_archive(tmp_path, name):
    (tmp_path / name).write_bytes(b"<html>")
    with pytest.raises(DataError, match=f"{name}: 6 bytes that are not a whole archive"):
        unpack(tmp_path / name, tmp_path / "out")


def test_truncated_archive(tmp_path):
    tar(tmp_path / "a.tar.gz", *[named(f"file{i}") for i in range(50)])
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="not a whole archive"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
