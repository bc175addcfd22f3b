"""Unpacking archives that may have been made to do harm, or that are not whole.

A member may only be a file or a folder below the target: no absolute path, no "..", no link, no device.
Everything is unpacked into a hidden folder first, and put in place when the whole archive has been read and its
checksums are right: half an archive leaves nothing behind. What may come of it is limited, and counted as it
comes, because the sizes in an archive are what its maker says.
"""

import errno
import gzip
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, NamedTuple

from subspaces.experiments import locks
from subspaces.experiments.data.dataset import DataError, Progress

LIMIT = 10 * 10**9
"""Bytes that an archive may unpack to; the largest that is fetched, Tiny ImageNet, has less than a billion."""
RATIO = 100
"""How many times its own size an archive may unpack to; images are compressed already, and come to about 1."""
SMALL = 1 << 20  # bytes that any archive may unpack to
CHUNK = 1 << 20
BLOCK = 512  # bytes that a member counts for beside its content, as in a tar
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, struct.error, EOFError, ValueError)
_UNREADABLE = (NotImplementedError, RuntimeError)  # what zipfile says of unknown compressions and of passwords
_NUMBERS = (errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)  # a place before the file; a file that is a folder


def is_archive(file: Path) -> bool:
    """Whether the name says that there are other files in it."""
    return file.name.endswith((".tar.gz", ".tgz", ".tar", ".zip"))


def unpack(archive: Path, target: Path, progress: Progress | None = None, *, limit: int | None = None) -> None:
    """Write the members of a tar or zip file below `target`, or refuse the whole archive.

    Args:
        archive: the file.
        target: the folder, made if need be; what else is in it stays.
        progress: is called with how many of the archive's bytes are done.
        limit: bytes that may come of it; by default LIMIT, and no more than RATIO times the archive's size.
    """
    target.mkdir(parents=True, exist_ok=True)
    with locks.waited(target / f".{archive.name}.lock"):  # of two processes one unpacks, and the other after it
        _unpack(archive, target, progress, limit)


def _unpack(archive: Path, target: Path, progress: Progress | None, limit: int | None) -> None:
    size = archive.stat().st_size
    for left in target.glob(f".{archive.name}.*.partial"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{archive.name}.", suffix=".partial", dir=target))
    members = _zipped if archive.suffix == ".zip" else _tarred
    try:
        for member in members(archive, _Budget(archive, limit)):
            _check(archive, member, target)
            _write(folder / member.name, member.content)
            if progress is not None:
                progress(f"unpacking {archive.name}", min(member.done, size), size)
        _check_free(archive, folder, target)
        _place(folder, target)
    except DataError:
        raise
    except (*_DAMAGED, *_UNREADABLE, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, _DAMAGED) and error.errno not in _NUMBERS:
            raise
        raise DataError(f"{archive}: {size:,} bytes that are not a whole archive ({error}): get it again") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if progress is not None:
        progress(f"unpacking {archive.name}", size, size)


def allowed(size: int, limit: int | None) -> int:
    """Return how many bytes may come of an archive of that size."""
    return min(LIMIT, max(RATIO * size, SMALL)) if limit is None else limit


class _Budget:
    """Counts what has come of an archive, and refuses more than is allowed."""

    def __init__(self, archive: Path, limit: int | None) -> None:
        self.archive, self.taken = archive, 0
        size = archive.stat().st_size
        self.most = allowed(size, limit)
        ratio = f", more than {RATIO} times its size" if limit is None and self.most < LIMIT else ""
        self.refusal = f"{archive}: {size:,} bytes that unpack to more than {self.most:,}{ratio}"

    def take(self, count: int) -> None:
        self.taken += count
        if self.taken > self.most:
            raise DataError(
                f"{self.refusal}: refused, and nothing was unpacked; if you trust it, allow more with --limit-gb"
            )


class _Counted:
    """A stream of which no more is read than the budget allows."""

    def __init__(self, stream: Any, budget: _Budget) -> None:
        self.stream, self.budget = stream, budget

    def read(self, size: int = CHUNK) -> bytes:
        found: bytes = self.stream.read(min(size, CHUNK))
        self.budget.take(len(found))
        return found


class _Member(NamedTuple):
    name: str
    plain: bool  # a file or a folder
    content: _Counted | IO[bytes] | None  # of a file
    done: int  # bytes of the archive


def _tarred(archive: Path, budget: _Budget) -> Iterator[_Member]:
    """Yield the members as they come, so that the file is read once, and to its end, where its checksum is."""
    with archive.open("rb") as file:
        stream: Any = _Counted(file if archive.suffix == ".tar" else gzip.GzipFile(fileobj=file), budget)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            while (member := tar.next()) is not None:
                plain = member.isdir() or (member.isreg() and not member.issparse())
                content = tar.extractfile(member) if plain and member.isreg() else None
                yield _Member(member.name, plain, content, file.tell())
        while stream.read():
            pass


def _zipped(archive: Path, budget: _Budget) -> Iterator[_Member]:
    """Yield the members; where their headers already promise too much, none of them."""
    done = 0
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
        budget.take(promised := sum(BLOCK + member.file_size for member in members))
        budget.taken -= promised
        for member in members:
            plain = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
            done += member.compress_size
            budget.take(BLOCK)
            if member.is_dir() or not plain:
                yield _Member(member.filename, plain, None, done)
            else:
                with packed.open(member) as content:
                    yield _Member(member.filename, plain, _Counted(content, budget), done)


def _check(archive: Path, member: _Member, target: Path) -> None:
    name, place = member.name, target / member.name
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    outside = PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in parts or "\0" in name
    what = "is a link or a device" if not member.plain else "lies outside of the folder to unpack to" if outside else ""
    if not what and not place.resolve().is_relative_to(target.resolve()):  # through a link that was there before
        what = "lies outside of the folder to unpack to"
    if what:
        raise DataError(f"{archive}: the member {name!r} {what}: refused, and nothing was unpacked")


def _check_free(archive: Path, folder: Path, target: Path) -> None:
    """Refuse, before anything is moved, files where there are folders and the other way round."""
    for entry in folder.rglob("*"):
        place = target / entry.relative_to(folder)
        if place.exists() and place.is_dir() != entry.is_dir():
            kind = "folder" if entry.is_dir() else "file"
            raise DataError(
                f"{archive}: has a {kind} where {place} is none: nothing was unpacked; move that out of the way"
            )


def _write(path: Path, content: _Counted | IO[bytes] | None) -> None:
    """Write a file, or make a folder where there is no content."""
    if content is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as file:
            while block := content.read(CHUNK):
                file.write(block)
    except OSError as error:  # that of a full disk names no file
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def _place(folder: Path, target: Path) -> None:
    """Move what a folder holds to the target: whole where nothing is there, else file by file."""
    for entry in sorted(folder.iterdir()):
        place = target / entry.name
        if entry.is_dir() and place.is_dir():
            _place(entry, place)
        else:
            os.replace(entry, place)
