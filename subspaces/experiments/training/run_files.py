"""The files of a run folder: JSON and tensors, each with a checksum of its content inside.

A checksum is of the content alone: a file that was renamed or moved is still itself. It finds damage, not malice. The
entry `recipe` is the key of the run that a file is of: one of another run would give its numbers without an error.
"""

import errno
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from subspaces.core import storage
from subspaces.errors import UserError
from subspaces.evaluation import files as json_files


class RunError(UserError, RuntimeError):
    """A run folder that cannot be used."""


def damaged(path: Path, why: object, remedy: str) -> RunError:
    """Return the error about a file that is not as it was written."""
    return RunError(f"{path} is damaged ({why}): {remedy}")


@contextmanager
def as_run_error(path: Path | None = None, remedy: str = "") -> Iterator[None]:
    """Raise the errors about damaged files as those about runs."""
    try:
        yield
    except storage.FileError as error:
        raise RunError(str(error)) from None
    except storage.DamageError as error:
        raise damaged(path or Path(), error, remedy) from None


def there(path: Path, remedy: str) -> bool:
    """Say whether a file is there; a folder, a pipe or a link to nothing in its place is damage."""
    try:
        found = stat.S_ISREG(path.stat().st_mode)  # asked once: another process may write or remove it at any moment
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        if not path.is_symlink():
            return False
        found = False
    if not found:
        raise damaged(path, "it is not a file", remedy)
    return True


def write_json(path: Path, content: Mapping[str, Any], recipe: str) -> None:
    """Write a JSON file of the run with this key."""
    json_files.write_json(path, {**content, "recipe": recipe})


def read_json(path: Path, recipe: str | None, remedy: str) -> dict[str, Any]:
    """Return what `write_json` was given; `recipe` is the key that the file must have, None for any."""
    with as_run_error():
        content = json_files.read_json(path, remedy)
    _check_recipe(path, content.pop("recipe", None), recipe, remedy)
    return content


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str], recipe: str) -> None:
    """Write a safetensors file of the run with this key."""
    storage.write_tensors(path, tensors, {**header, "recipe": recipe})


def read_tensors(path: Path, recipe: str | None, remedy: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return header and tensors of a safetensors file; `recipe` is the key that it must have, None for any."""
    with as_run_error(path, remedy):
        header, tensors = storage.read_tensors(path)
        storage.check(header, tensors)
    _check_recipe(path, header.get("recipe"), recipe, remedy)
    return header, tensors


def _check_recipe(path: Path, found: object, expected: str | None, remedy: str) -> None:
    if expected is not None and found != expected:
        raise damaged(path, f"it is of the run {found}, not of {expected}", remedy)
