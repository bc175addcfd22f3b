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

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from subspaces.core import files, storage
from subspaces.experiments import locks
from subspaces.experiments.training import seals, trust
from subspaces.experiments.training.environment import environment
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.logs import Log
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.seals import RunError

__all__ = ["RESERVED", "Run", "RunError"]

RESERVED = {".lock", "log.jsonl"}
"""What a folder may hold before its run is started: the lock, and the log of a trunk."""
LOG, FAMILY, TRAINED, STATE = "log.jsonl", "family.safetensors", "trained.safetensors", "state.safetensors"


class Run:
    """The folder of one recipe with one seed."""

    def __init__(self, folder: Path, recipe: Recipe, signature: Any = trust.Caller) -> None:
        self.folder = folder
        self.recipe = recipe
        self._signature = signature
        self._log = Log(folder / LOG, recipe.key, self._remedy)

    @classmethod
    def under(cls, out: str | os.PathLike[str], recipe: Recipe) -> "Run":
        """Return the run of a recipe below `out`, named by the recipe and the hash of its fields."""
        return cls(Path(out) / f"{recipe.name}-seed{recipe.seed}-{recipe.key}", recipe)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Run":
        """Return the run in an existing folder."""
        path = Path(folder)
        config = path / "config.json"
        if not seals.there(config, _config_remedy(path)):
            there = any((path / name).exists() for name in (LOG, STATE, FAMILY, "result.json"))
            raise RunError(
                f"{path} is not a run folder: it has no config.json{f'; {_config_remedy(path)}' if there else ''}"
            )
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
        """Return the lines of the log, also of a run that another process trains at this moment."""
        ended, expected = self._expected_seal()  # before the log, which may grow meanwhile
        rows, found = self._log.read()
        if ended and not (self._log.whole and (found or [""])[-1] == expected):
            raise self._log.damaged("it is not the log that result.json was written with")
        if expected not in ["", *found]:
            raise self._log.damaged("it is shorter than when the checkpoint was written")
        return rows

    def _expected_seal(self) -> tuple[bool, str]:
        """Return whether the run has a result, and the seal that its log ends with, or had at its checkpoint."""
        result = self.folder / "result.json"
        if not result.is_file() and seals.there(self.folder / STATE, self._state_remedy):
            with suppress(FileNotFoundError):  # it has just been dropped: the run has ended
                return False, str(self._progress()["log"])
        if not result.is_file():
            return False, ""
        return True, str(seals.read_json(result, self.recipe.key, self._remedy).others.get(LOG, ""))

    def starts(self) -> list[dict[str, Any]]:
        """Return the environment of each start of the run."""
        path = self.folder / "environment.json"
        if not seals.there(path, self._remedy):
            if self.finished:
                raise RunError(f"{self.folder} has no environment.json: put it back, or {self._remedy}")
            return []
        found = seals.read_json(path, self.recipe.key, self._remedy).content.get("starts")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise seals.damaged(path, "it holds no list of starts", self._remedy)
        return found

    def check(self) -> None:
        """Refuse an existing folder of another recipe, and a finished one with a file that is not as it was written."""
        for path in (self.folder / "result.json", self.family_file, self.folder / STATE):
            seals.there(path, self._remedy)  # what cannot be looked at, such as on a disk that is away, is not lost
        config = self.folder / "config.json"
        if config.is_file():
            wanted = self.recipe.to_dict()
            content = seals.read_json(config, None, _config_remedy(self.folder)).content
            found = Recipe.from_dict(trust.separated(content)[0]).to_dict()
            differing = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
            if differing and differing != ["name"]:
                name = differing[0]
                raise RunError(
                    f"{self.folder} is a run of another configuration: {name} is {found.get(name)!r} there and "
                    f"{wanted.get(name)!r} here; choose another --out or remove the folder"
                )
        elif self.finished:
            raise RunError(f"{self.folder} has no config.json: {_config_remedy(self.folder)}")
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
        except (files.FileError, FileNotFoundError) as error:
            raise RunError(f"{error}, or {self._remedy}") from None
        if header["checksum"] != expected:
            self._check_belongs(path, expected)

    def start(self, execution: Execution, processes: int = 1) -> None:
        """Make the folder, or check that an existing one is of this recipe, and note this start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.check()
        result = self.folder / "result.json"
        if not self.finished and seals.there(result, self._remedy):  # of a family that is gone
            result.unlink()
        if not (self.folder / "config.json").is_file():
            seals.write_json(self.folder / "config.json", trust.signed(self.recipe), self.recipe.key)
        starts = [*self.starts(), environment(execution, processes)]
        seals.write_json(self.folder / "environment.json", {"starts": starts}, self.recipe.key)

    @contextmanager
    def attempt(self) -> Iterator[str | None]:
        """Keep other processes out of the folder and yield None, or else who is in it; see `locks.attempt`.

        A folder without a run in it is removed at the end.
        """
        with locks.made(self.folder), locks.attempt(self.folder / ".lock") as holder:
            if holder is not None:
                if holder == locks.this_process():  # for which we would wait for ever
                    raise self._in_use(holder)
                yield holder
                return
            try:
                yield None
            finally:
                if not self.begun([self.folder]):  # it was never started: leave nothing behind
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
            with suppress(OSError, RunError), self.attempt() as holder:  # where it is read alone, it can stay
                if holder is None and self.finished:
                    state.unlink(missing_ok=True)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Write the state of training, and where the log is at that moment."""
        self._log.sync()
        place = {"log_bytes": self._log.size, "log": self._log.seal}
        header = {"progress": json.dumps({**progress, **place})}
        seals.write_tensors(self.folder / STATE, tensors, header, self.recipe.key)

    def load_checkpoint(self, writes: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the newest checkpoint, after cutting the log back to it; None if there is none.

        Of several processes one `writes`, and the others read after it.
        """
        path = self.folder / STATE
        if not path.is_file():
            if writes:
                self._log.remove()
            return None
        header, tensors = seals.read_tensors(path, self.recipe.key, self._state_remedy)
        progress = seals.parse(header.get("progress", "").encode(), path, self._state_remedy)
        if writes:
            self._log.cut(int(progress["log_bytes"]), progress["log"])
        return tensors, progress

    def _progress(self) -> dict[str, Any]:
        """Return how far the checkpoint is, without its tensors."""
        path = self.folder / STATE
        try:
            progress = seals.parse(files.read_header(path).get("progress", "").encode(), path, self._state_remedy)
        except files.DamageError as error:
            raise seals.damaged(path, error, self._state_remedy) from None
        return {"log": "", **progress}

    @property
    def _state_remedy(self) -> str:
        return f"remove it to train {self.folder.name} from its beginning"

    def append_log(self, row: Mapping[str, Any]) -> None:
        """Add one line to the log."""
        self._log.append(row)

    def begin_log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a log with these lines in place of the one that is there."""
        self._log.begin(rows)

    def finish(self, result: Mapping[str, Any], families: Mapping[str, str]) -> None:
        """Write the result, which marks the run as finished, and drop the checkpoint.

        `families` are the checksums of the families' files that belong to it.
        """
        self._log.sync()
        others = {LOG: self._log.seal, **families}
        seals.write_json(self.folder / "result.json", result, self.recipe.key, others)
        (self.folder / STATE).unlink(missing_ok=True)


def _config_remedy(folder: Path) -> str:
    return f"put an unchanged copy back, or remove the folder {folder} to train anew"


def _counts(name: str) -> bool:
    """Say whether a file is more than the beginning of one that was not written to its end."""
    return not name.endswith(".partial")
