"""Data sets from their publishers: fetched, compared with the checksums, unpacked and checked."""

import os
import shutil
import warnings
from pathlib import Path

from subspaces.errors import ArgumentError, DataError
from subspaces.evaluation.display import Progress
from subspaces.experiments.data.folders import DataWarning, broken_files
from subspaces.experiments.data.loading import SOURCES, check_name_and_root, load
from subspaces.images.splits import Files
from subspaces.text import nearest


def get(name: str, root: str | os.PathLike[str], progress: Progress | None = None) -> Path:
    """Fetch a data set from its publisher and unpack it below `root`; what is there and right is left alone.

    Args:
        name: of the data set.
        root: the folder, made if need be; pass it to `load` afterwards.
        progress: is called with what is being done, how much of it is done, and of how much (0: not known).
    """
    if name not in SOURCES:
        raise ArgumentError(f"no data set is called {name!r}: {nearest(str(name), SOURCES)}")
    source, folder = SOURCES[name], Path(root).expanduser()
    if source.instructions:
        raise DataError(f"{name} cannot be fetched, because {source.instructions}")
    if not source.files or not check(name, folder):
        return folder
    target = folder / source.folder
    for url, md5 in source.files.items():
        file = _fetched(url, md5, target, progress)
        if file.name.endswith((".tar.gz", ".zip")):
            shutil.unpack_archive(file, target, filter=None if file.suffix == ".zip" else "data")
    if remaining := check(name, folder, progress):
        raise DataError(f"{name} was fetched to {target}, but: {'; '.join(remaining)}; move that out of the way")
    return folder


def _fetched(url: str, md5: str, target: Path, progress: Progress | None) -> Path:
    """Return the file of that address, downloaded unless it is there and right."""
    import pooch  # type: ignore[import-untyped]

    name = url.rpartition("/")[2]
    files = pooch.create(target, "", registry={name: f"md5:{md5}"}, urls={name: url}, retry_if_failed=3)
    bar = None if progress is None else _Bar(name, progress)
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        return Path(files.fetch(name, downloader=pooch.HTTPDownloader(bar, chunk_size=1 << 20, timeout=60)))
    except ValueError as error:  # another checksum
        raise DataError(f"{url}: {error}") from None
    except OSError as error:
        if error.errno is not None:  # of the disk
            raise
        raise ConnectionError(f"{url}: {error}: run the same command again later") from None
    finally:
        logger.setLevel(level)


class _Bar:
    """A progress bar as pooch moves it."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name, self.progress, self.total, self.done = name, progress, 0, 0

    def update(self, count: int) -> None:
        self.done += count
        self.progress(self.name, min(self.done, self.total), self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...


def check(name: str, root: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> list[str]:
    """Return what is wrong with the files below `root`, a sentence each; nothing is wrong if it is empty."""
    wrong = list[str]()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DataWarning)
        try:
            data = load(name, root, progress=progress)
            for split in (data.train, data.test):
                if isinstance(split, Files):
                    wrong += broken_files([split.path(index) for index in range(len(split))], progress)
        except (FileNotFoundError, DataError) as error:
            wrong.append(str(error))
    return [reason for each in said for reason in getattr(each.message, "reasons", ())] + wrong


def absent(name: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """Return why the files of a data set are not there, with what fetches them; None if they are, right or wrong."""
    try:
        SOURCES[name].find(check_name_and_root(name, root))
    except FileNotFoundError as error:
        return str(error)
    return None


def describe(name: str, root: str | os.PathLike[str] | None = None) -> str:
    """Return a sentence about what is below `root`: counts, classes and where."""
    data = load(name, root)
    where = "from scikit-learn" if name == "digits" else f"in {check_name_and_root(name, root)}"
    return (
        f"{data.name}: {len(data.train):,} training and {len(data.test):,} test images of "
        f"{' × '.join(map(str, data.image_shape))} in {len(data.classes):,} classes, {where}"
    )
