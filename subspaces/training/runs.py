"""A run folder: everything that one training leaves behind, and what it needs to go on.

config.json          the recipe, and the user's signature where that names a factory of networks
environment.json     versions, commit, hardware and settings of each start
log.jsonl            one line per epoch
state.safetensors    the newest checkpoint
family.safetensors   the trained family, or what the method made of it (written last but one)
trained.safetensors  the trained subspace, where the method keeps one point of it as its family
result.json          the final numbers (written last: the run is finished), and which log and family they belong to

Every file is sealed (`seals`), and its seal is checked whenever it is read.
"""

import dataclasses
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces import files, locks, storage
from subspaces.training import seals, trust
from subspaces.training.config import Execution, Recipe
from subspaces.training.seals import RunError
from subspaces.version import __version__

__all__ = ["RESERVED", "Run", "RunError", "commit", "environment", "processor"]

RESERVED = {".lock", "log.jsonl"}
"""What a folder may hold before its run is started: the lock, and the log of a trunk."""
LOG, FAMILY, TRAINED, STATE = "log.jsonl", "family.safetensors", "trained.safetensors", "state.safetensors"


class Run:
    """The folder of one recipe with one seed."""

    def __init__(self, folder: Path, recipe: Recipe, signature: Any = trust.Caller) -> None:
        self.folder = folder
        self.recipe = recipe
        self._signature = signature
        self._last_seal: str | None = None  # of the log, while it is written

    @classmethod
    def under(cls, out: str | os.PathLike[str], recipe: Recipe) -> "Run":
        """Return the run of a recipe below `out`, named by the recipe and the hash of its fields."""
        return cls(Path(out) / f"{recipe.name}-seed{recipe.seed}-{recipe.key}", recipe)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Run":
        """Return the run in an existing folder."""
        path = Path(folder)
        if not (path / "config.json").is_file():
            raise RunError(f"{path} is not a run folder: it has no config.json")
        config = path / "config.json"
        found = seals.read_json(config, None, _config_remedy(path))
        try:
            fields, signature = trust.separated(found.content)
            recipe = Recipe.from_dict(fields)
        except (ValueError, TypeError) as error:
            raise RunError(f"{config} is not a recipe: {error}") from None
        named = re.search(r"-seed\d+-([0-9a-f]{10})$", path.resolve().name)  # a folder may have any other name
        for key, what in ((found.run, "its seal"), (named[1] if named else recipe.key, "the folder's name")):
            if key != recipe.key:
                why = f"its fields have the key {recipe.key}, and {what} says {key}"
                raise seals.damaged(config, why, _config_remedy(path))
        return cls(path, recipe, signature)

    @staticmethod
    def begun(folders: Iterable[str | os.PathLike[str]]) -> list[Path]:
        """Return the folders without those that a killed process had reserved for runs it never started."""
        paths = [Path(folder) for folder in folders]
        return [path for path in paths if not path.is_dir() or {*filter(_counts, os.listdir(path))} - RESERVED]

    def check_invited(self) -> None:
        """Refuse to build a network that only the folder names, unless this user trained it."""
        if self._signature is not trust.Caller and not trust.may_build(self.recipe, self._signature):
            raise RunError(f"{self.folder}: {trust.question(self.recipe)}")

    @property
    def finished(self) -> bool:
        """Whether the run has its result."""
        return (self.folder / "result.json").is_file() and self.family_file.is_file()

    @property
    def family_file(self) -> Path:
        """The trained family."""
        return self.folder / FAMILY

    @property
    def trained_file(self) -> Path:
        """The subspace that was trained, where the family is one point of it."""
        return self.folder / TRAINED

    @property
    def _remedy(self) -> str:
        return f"remove the folder {self.folder} to train anew"

    def _sealed_result(self) -> seals.Sealed:
        if not self.finished:
            raise RunError(f"{self.folder} is not finished: train it first")
        return seals.read_json(self.folder / "result.json", self.recipe.key, self._remedy)

    @property
    def result(self) -> dict[str, Any]:
        """The final numbers."""
        return self._sealed_result().content

    @property
    def family_checksum(self) -> str:
        """The checksum of the family that the result is of, which the file must have."""
        expected = self._sealed_result().others.get(FAMILY, "none")
        self._check_belongs(self.family_file, expected)
        return expected

    def _check_belongs(self, path: Path, expected: str | None) -> None:
        """Refuse the file of a family with another checksum than the result names."""
        try:
            found = files.read_header(path).get("checksum")
        except files.DamageError as error:
            raise seals.damaged(path, error, self._remedy) from None
        if found != expected:
            raise seals.damaged(path, f"its checksum is {found}, and result.json names {expected}", self._remedy)

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log; the last words of a process that was killed are left out."""
        rows, found = self._sealed_log()
        if self.finished and (found or [""])[-1] != self._sealed_result().others.get(LOG):
            why = "it is not the log that result.json was written with"
            raise seals.damaged(self.folder / LOG, why, self._remedy)
        if not self.finished and (self.folder / STATE).is_file() and self._progress()["log"] not in ["", *found]:
            why = "it is shorter than when the checkpoint was written"
            raise seals.damaged(self.folder / LOG, why, self._remedy)
        return rows

    def _sealed_log(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the whole lines of the log, and their seals."""
        path = self.folder / LOG
        content = path.read_bytes() if path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        return seals.read_lines(whole.splitlines(), path, self.recipe.key, self._remedy)

    def starts(self) -> list[dict[str, Any]]:
        """Return the environment of each start of the run."""
        path = self.folder / "environment.json"
        if not path.is_file():
            if self.finished:
                raise RunError(f"{self.folder} has no environment.json: put it back, or {self._remedy}")
            return []
        found = seals.read_json(path, self.recipe.key, self._remedy).content.get("starts")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise seals.damaged(path, "it holds no list of starts", self._remedy)
        return found

    def check(self) -> None:
        """Refuse an existing folder of another recipe, and a finished one with a file that is not as it was written."""
        config = self.folder / "config.json"
        if config.is_file():
            wanted = self.recipe.to_dict()
            content = seals.read_json(config, None, _config_remedy(self.folder)).content
            found = {**_added_later(), **trust.separated(content)[0]}
            differing = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
            if differing and differing != ["name"]:
                name = differing[0]
                raise RunError(
                    f"{self.folder} is a run of another configuration: {name} is {found.get(name)!r} there and "
                    f"{wanted.get(name)!r} here; choose another --out or remove the folder"
                )
        if self.finished:
            self.starts()
            self.log()
            for path in (self.family_file, self.trained_file):
                self.check_family(path)

    def check_family(self, path: Path) -> None:
        """Refuse a family's file that is not, number by number, what the result was written with."""
        expected = self._sealed_result().others.get(path.name)
        if expected is None and path != self.family_file:
            return  # most methods keep one file
        try:
            header = storage.read(path)[0]
        except (storage.FileError, FileNotFoundError) as error:
            raise RunError(f"{error}, or {self._remedy}") from None
        if header["checksum"] != expected:
            self._check_belongs(path, expected)

    def start(self, execution: Execution) -> None:
        """Make the folder, or check that an existing one is of this recipe, and note this start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.check()
        for partial in self.folder.glob(".*.partial"):  # of a process that was killed while it wrote
            partial.unlink()
        if not (self.folder / "config.json").is_file():
            seals.write_json(self.folder / "config.json", trust.signed(self.recipe), self.recipe.key)
        starts = [*self.starts(), environment(execution)]
        seals.write_json(self.folder / "environment.json", {"starts": starts}, self.recipe.key)

    @contextmanager
    def attempt(self) -> Iterator[str | None]:
        """Keep other processes out of the folder and yield None, or else who is in it; see `locks.attempt`.

        A folder without a run in it is removed at the end.
        """
        with files.made(self.folder), locks.attempt(self.folder / ".lock") as holder:
            if holder is not None:
                if holder.ours:  # for which we would wait for ever
                    raise self._in_use(holder.name)
                yield holder.name
                return
            try:
                yield None
            finally:
                if not (self.folder / "config.json").is_file():  # it was never started: leave nothing behind
                    with suppress(OSError):
                        files.sweep(self.folder)
                        for name in RESERVED:
                            (self.folder / name).unlink(missing_ok=True)
                        self.folder.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder; refuse one that is in use."""
        with self.attempt() as holder:
            if holder is not None:
                raise self._in_use(holder)
            yield

    def _in_use(self, holder: str) -> RunError:
        return RunError(f"{self.folder} is in use by {holder}")

    def holder(self) -> str | None:
        """Return who is in the folder, which is not made for that."""
        if not (self.folder / ".lock").exists():
            return None
        with self.attempt() as holder:
            return holder

    def tidy(self) -> None:
        """Remove the checkpoint of a finished run: its process was killed before it could."""
        state = self.folder / "state.safetensors"
        if state.is_file():
            with self.attempt() as holder:
                if holder is None and self.finished:
                    state.unlink(missing_ok=True)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Write the state of training, and where the log is at that moment."""
        log = self.folder / LOG
        if log.is_file():  # on the disk before the state that counts on it
            with open(log, "rb+") as file:
                os.fsync(file.fileno())
        place = {"log_bytes": log.stat().st_size if log.is_file() else 0, "log": self._seal_so_far()}
        header = {"progress": json.dumps({**progress, **place})}
        seals.write_tensors(self.folder / STATE, tensors, header, self.recipe.key)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the newest checkpoint, after cutting the log back to it; None if there is none."""
        path, log = self.folder / STATE, self.folder / LOG
        if not path.is_file():
            self._last_seal = ""
            log.unlink(missing_ok=True)
            return None
        remedy = f"remove it to train {self.folder.name} from its beginning"
        header, tensors = seals.read_tensors(path, self.recipe.key, remedy)
        progress = seals.parse(header.get("progress", "").encode(), path, remedy)
        if (log.stat().st_size if log.is_file() else 0) < int(progress["log_bytes"]):
            raise seals.damaged(log, "it is shorter than when the checkpoint was written", self._remedy)
        if log.is_file():
            os.truncate(log, int(progress["log_bytes"]))
        self._last_seal = None
        if self._seal_so_far() != progress["log"]:
            raise seals.damaged(log, "it is not the log that the checkpoint was written with", self._remedy)
        return tensors, progress

    def _progress(self) -> dict[str, Any]:
        """Return how far the checkpoint is, without its tensors."""
        path, remedy = self.folder / STATE, f"remove it to train {self.folder.name} from its beginning"
        try:
            progress = seals.parse(files.read_header(path).get("progress", "").encode(), path, remedy)
        except files.DamageError as error:
            raise seals.damaged(path, error, remedy) from None
        return {"log": "", **progress}

    def _seal_so_far(self) -> str:
        """Return the seal of the log's last line, or nothing."""
        if self._last_seal is None:
            self._last_seal = (self._sealed_log()[1] or [""])[-1]
        return self._last_seal

    def append_log(self, row: Mapping[str, Any]) -> None:
        """Add one line to the log."""
        line, seal = seals.sealed_line(row, self.recipe.key, self._seal_so_far())
        files.append(self.folder / LOG, line)
        self._last_seal = seal

    def begin_log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a log with these lines in place of the one that is there."""
        lines, seal = [], ""
        for row in rows:
            line, seal = seals.sealed_line(row, self.recipe.key, seal)
            lines.append(line)
        files.write(self.folder / LOG, *lines)
        self._last_seal = seal

    def finish(self, result: Mapping[str, Any], families: Mapping[str, str]) -> None:
        """Write the result, which marks the run as finished, and drop the checkpoint.

        `families` are the checksums of the families' files that belong to it.
        """
        others = {LOG: self._seal_so_far(), **families}
        seals.write_json(self.folder / "result.json", result, self.recipe.key, others)
        (self.folder / STATE).unlink(missing_ok=True)


def _config_remedy(folder: Path) -> str:
    return f"put an unchanged copy back, or remove the folder {folder} to train anew"


def _counts(name: str) -> bool:
    """Say whether a file is more than the beginning of one that was not written to its end."""
    return not name.endswith(".partial")


def _added_later() -> dict[str, Any]:
    """Return the fields that an older configuration may lack, at their defaults."""
    return {entry.name: entry.default for entry in dataclasses.fields(Recipe) if entry.metadata.get("later")}


def environment(execution: Execution) -> dict[str, Any]:
    """Return what a reader needs to know to repeat a run: versions, commit, hardware, settings."""
    gpu = execution.device.startswith("cuda")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "subspaces": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hardware": torch.cuda.get_device_name(execution.device) if gpu else processor(),
        "threads": torch.get_num_threads(),
        "execution": dataclasses.asdict(execution),
    }


def commit() -> str | None:
    """Return the commit of the source tree, with a plus sign if it has changed since; None outside of one.

    Where the tree is a copy, such as in a container, SUBSPACES_COMMIT says which.
    """
    if named := os.environ.get("SUBSPACES_COMMIT"):
        return named
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def processor() -> str:
    """Return the name of the CPU and the number of its cores that we may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {cores} cores"
