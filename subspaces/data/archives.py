"""Unpacking archives that may have been made to do harm.

A member may only be a file or a folder below the target: no absolute path, no "..", no link, no device.
All members are looked at before the first one is written.
"""

import stat
import tarfile
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath

from subspaces.data.dataset import DataError, Progress


def is_archive(file: Path) -> bool:
    """Whether the name says that there are other files in it."""
    return file.name.endswith((".tar.gz", ".tgz", ".tar", ".zip"))


def unpack(archive: Path, target: Path, progress: Progress | None = None) -> None:
    """Write the members of a tar or zip file below `target`, or refuse the whole archive."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        if archive.suffix == ".zip":
            _unzip(archive, target, progress)
        else:
            _untar(archive, target, progress)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        size = archive.stat().st_size
        raise DataError(f"{archive}: {size:,} bytes that are not a whole archive ({error}): get it again") from None


def _check(archive: Path, name: str, plain: bool, target: Path) -> None:
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    outside = PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in parts
    inside = (target / name).resolve().is_relative_to(target.resolve())  # not through a link that was there before
    if not plain or outside or not inside:
        what = "is a link or a device" if not plain else "lies outside of the folder to unpack to"
        raise DataError(f"{archive}: the member {name!r} {what}: refused, and nothing was unpacked")


def _untar(archive: Path, target: Path, progress: Progress | None) -> None:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            _check(archive, member.name, member.isfile() or member.isdir(), target)
        for done, member in enumerate(members, 1):
            tar.extract(member, target, filter="data")
            if progress is not None:
                progress(f"unpacking {archive.name}", done, len(members))


def _unzip(archive: Path, target: Path, progress: Progress | None) -> None:
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check(archive, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR), target)
        for done, member in enumerate(members, 1):
            packed.extract(member, target)
            if progress is not None:
                progress(f"unpacking {archive.name}", done, len(members))
