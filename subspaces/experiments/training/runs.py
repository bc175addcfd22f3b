"""A run folder: everything that one training leaves behind, and what it needs to go on.

config.json          the recipe
environment.json     versions, commit, hardware and settings of each start
log.jsonl            one line per epoch
state.safetensors    the newest checkpoint
kept.safetensors     the checkpoint that other runs start from, where one is to be kept
family.safetensors   the trained family, or what the method made of it (written last but one)
trained.safetensors  the trained subspace, where the method keeps one point of it as its family
result.json          the final numbers (written last: the run is finished), and the checksums of the families

Every file, and every line of the log, has a checksum inside, which is compared whenever it is read.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from subspaces.core import storage
from subspaces.evaluation.files import append_line, environment, read_lines
from subspaces.experiments import locks
from subspaces.experiments.locks import Stop
from subspaces.experiments.training import run_files
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.run_files import RunError
from subspaces.networks.factories import is_factory

__all__ = ["Run", "RunError", "free"]

LOCK, CONFIG, ENVIRONMENT, LOG, RESULT = ".lock", "config.json", "environment.json", "log.jsonl", "result.json"
FAMILY, TRAINED, STATE, KEPT = (f"{name}.safetensors" for name in ("family", "trained", "state", "kept"))
FILES = (CONFIG, ENVIRONMENT, LOG, STATE, FAMILY, RESULT)
ANEW = "put an unchanged copy back, or remove the folder {} to train anew"


class Run:
    """The folder of one recipe with one seed."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self.family_file = folder / FAMILY
        self.trained_file = folder / TRAINED  # the subspace that was trained, where the family is one point of it
        self._from_folder = False  # whether the recipe was read from there, and not named by the caller
        self._remedy = ANEW.format(folder)
        self._state_remedy = f"remove it to train {folder.name} from its beginning"

    @classmethod
    def under(cls, out: str | os.PathLike[str], recipe: Recipe) -> "Run":
        """Return the run of a recipe below `out`, named by the recipe and the hash of its fields."""
        return cls(Path(out) / f"{recipe.name}-seed{recipe.seed}-{recipe.key}", recipe)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Run":
        """Return the run in an existing folder, whatever that is called."""
        path = Path(folder)
        remedy = ANEW.format(path)
        if not run_files.there(path / CONFIG, remedy):
            lost = any((path / name).exists() for name in FILES)
            raise RunError(f"{path} is not a run folder: it has no config.json{f'; {remedy}' if lost else ''}")
        try:
            run = cls(path, Recipe.from_dict(run_files.read_json(path / CONFIG, None, remedy)))
        except (ValueError, TypeError) as error:
            raise RunError(f"{path / CONFIG} is not a recipe: {error}") from None
        run._from_folder = True
        return run

    @staticmethod
    def begun(folders: Iterable[str | os.PathLike[str]]) -> list[Path]:
        """Return the folders without those that hold nothing but the lock, and the log, of a run that never started."""
        found = {path: os.listdir(path) if path.is_dir() else ["none"] for path in map(Path, folders)}
        return [path for path, names in found.items() if {n for n in names if not n.endswith(".partial")} - {LOCK, LOG}]

    def check_trusted(self, trust: bool) -> None:
        """Refuse to call a network factory that only the folder names, unless it is trusted."""
        network = self.recipe.network
        if self._from_folder and not trust and is_factory(network):
            module, _, factory = network.partition(":")
            raise RunError(
                f"{self.folder}: it names the network {network!r}, and to build it would import module {module!r} and "
                f"call {factory!r}: pass --trust (trust=True) if you trust it"
            )

    # What is there

    @property
    def finished(self) -> bool:
        """Whether the run has its result."""
        return (self.folder / RESULT).is_file() and self.family_file.is_file()

    def _is_there(self, name: str) -> bool:
        return run_files.there(self.folder / name, self._remedy)

    def _read(self, name: str) -> dict[str, Any]:
        return run_files.read_json(self.folder / name, self.recipe.key, self._remedy)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        run_files.write_json(self.folder / name, content, self.recipe.key)

    def _read_result(self) -> dict[str, Any]:
        if not self.finished:
            raise RunError(f"{self.folder} is not finished: train it first")
        return self._read(RESULT)

    @property
    def result(self) -> dict[str, Any]:
        """The final numbers."""
        return {name: value for name, value in self._read_result().items() if name not in ("lines", "families")}

    @property
    def family_checksum(self) -> str:
        """The checksum of the family that the result is of, which the file must have."""
        with run_files.as_run_error(self.family_file, self._remedy):
            found = storage.read_header(self.family_file).get("checksum")
        self._check_checksum(self.family_file, found)
        return str(found)

    def _check_checksum(self, path: Path, found: str | None) -> None:
        expected = self._read_result()["families"].get(path.name)
        if found != expected:
            raise run_files.damaged(path, f"its checksum is {found}, and result.json names {expected}", self._remedy)

    def check_family(self, path: Path) -> None:
        """Refuse a family's file that is not, number by number, what the result was written with."""
        if path != self.family_file and path.name not in self._read_result()["families"]:
            return  # most methods keep one file
        try:
            header = run_files.read_tensors(path, None, self._remedy)[0]
        except FileNotFoundError as error:
            raise RunError(f"{error}: {self._remedy}") from None
        self._check_checksum(path, header["checksum"])

    def starts(self) -> list[dict[str, Any]]:
        """Return the environment of each start of the run."""
        if not self._is_there(ENVIRONMENT) and not self.finished:
            return []
        return list(self._read(ENVIRONMENT)["starts"])

    def check(self) -> None:
        """Refuse an existing folder of another recipe, and a finished one with a file that is not as it was written."""
        for name in (RESULT, FAMILY, STATE):
            self._is_there(name)  # what cannot be looked at, such as on a disk that is away, is not lost
        config = self.folder / CONFIG
        if config.is_file():
            found = Recipe.from_dict(run_files.read_json(config, None, self._remedy))
            if found.key != self.recipe.key:
                what = f"a run of another configuration, {found.key} and not {self.recipe.key}"
                raise RunError(f"{self.folder} is {what}: choose another --out or remove the folder")
        if self.finished:
            self._read(CONFIG)
            self.starts()
            self.log()
            for path in (self.family_file, self.trained_file):
                self.check_family(path)

    # The log

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log, also of a run that another process trains at this moment."""
        ended = self._is_there(RESULT)
        lines = self._read(RESULT)["lines"] if ended else self._lines_at_checkpoint()  # before the log, which may grow
        return self._read_log(lines, whole=ended)

    def _read_log(self, lines: int, whole: bool = True) -> list[dict[str, Any]]:
        """Return the lines of the log, which are at least so many, and not more of the `whole`."""
        path = self.folder / LOG
        with run_files.as_run_error():
            rows = read_lines(path, self._remedy) if self._is_there(LOG) else []
        if len(rows) < lines or (whole and len(rows) > lines):
            why = f"it has {len(rows)} lines, and had {lines} when the run was last saved"
            raise run_files.damaged(path, why, self._remedy)
        for epoch, row in enumerate(rows, 1):
            if (row.pop("recipe", None), row.get("epoch")) != (self.recipe.key, epoch):
                raise run_files.damaged(path, f"line {epoch} is of another run or epoch", self._remedy)
        return rows

    def _lines_at_checkpoint(self) -> int:
        """Return how many lines the log had at the checkpoint, by its header alone; 0 without one."""
        path = self.folder / STATE
        if not run_files.there(path, self._state_remedy):
            return 0
        try:
            return int(json.loads(storage.read_header(path)["progress"])["lines"])
        except FileNotFoundError:  # it has just been dropped: the run has ended
            return 0
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # of which a `DamageError` is one
            raise run_files.damaged(path, error, self._state_remedy) from None

    def _synced_lines(self) -> int:
        """Bring the log to the disk before something counts on it, and return how many lines it has."""
        path = self.folder / LOG
        if not path.is_file():
            return 0
        with storage.naming(path), open(path, "rb+") as file:
            os.fsync(file.fileno())
        return path.read_bytes().count(b"\n")

    def append_log(self, row: Mapping[str, Any]) -> None:
        """Add one line to the log."""
        append_line(self.folder / LOG, {**row, "recipe": self.recipe.key})

    def begin_log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a log with these lines in place of the one that is there."""
        (self.folder / LOG).unlink(missing_ok=True)
        for row in rows:
            self.append_log(row)

    # Training

    def start(self, execution: Execution, processes: int = 1) -> None:
        """Make the folder, and note this start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.finished and self._is_there(RESULT):  # of a family that is gone
            (self.folder / RESULT).unlink()
        if not (self.folder / CONFIG).is_file():
            self._write(CONFIG, self.recipe.to_dict())
        starts = [*self.starts(), environment(dataclasses.asdict(execution), processes)]
        self._write(ENVIRONMENT, {"starts": starts})

    def save_checkpoint(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Write the state of training, and where the log is at that moment."""
        header = {"progress": json.dumps({**progress, "lines": self._synced_lines()})}
        run_files.write_tensors(self.folder / STATE, tensors, header, self.recipe.key)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return tensors and progress of the newest checkpoint, or of the run to start from; None if there is none."""
        path, start = self.folder / STATE, self.recipe.start_from
        if path.is_file():
            header, tensors = run_files.read_tensors(path, self.recipe.key, self._state_remedy)
            return tensors, json.loads(header["progress"])
        if not start:
            return None
        path = self.folder.parent / start / KEPT
        if not path.exists():
            raise RunError(f"{path} is not there: train that run first, with --keep-epoch")
        header, tensors = run_files.read_tensors(path, None, ANEW.format(path.parent))
        rows = json.loads(header["log"])
        if len(rows) >= self.recipe.epochs:
            raise RunError(f"{path} has {len(rows)} epochs behind it: expected less than {self.recipe.epochs}")
        return tensors, {"epoch": len(rows), "started": rows}

    def reset_log(self, progress: Mapping[str, Any] | None) -> None:
        """Go back to the log at a checkpoint: its lines, those of the run that it starts from, or none."""
        if progress is None or "started" in progress:
            self.begin_log(progress["started"] if progress else [])
            return
        if self._is_there(LOG):
            path = self.folder / LOG
            os.truncate(path, sum(map(len, path.read_bytes().splitlines(keepends=True)[: progress["lines"]])))
        self._read_log(progress["lines"])

    def keep_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Write the state at this moment for runs that start from it, with the log so far."""
        run_files.write_tensors(self.folder / KEPT, tensors, {"log": json.dumps(self.log())}, self.recipe.key)

    def finish(self, result: Mapping[str, Any], families: Mapping[str, str]) -> None:
        """Write the result with the checksums of its families, which finishes the run, and drop the checkpoint."""
        self._write(RESULT, {**result, "lines": self._synced_lines(), "families": dict(families)})
        (self.folder / STATE).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove the checkpoint of a finished run: its process was killed before it could."""
        if (self.folder / STATE).is_file():
            with suppress(OSError, RunError), self.attempt() as holder:  # where it is read alone, it can stay
                if holder is None and self.finished:
                    (self.folder / STATE).unlink(missing_ok=True)

    # Sharing

    @contextmanager
    def attempt(self) -> Iterator[str | None]:
        """Keep other processes out of the folder and yield None, or else who is in it; remove it if no run began."""
        with locks.made(self.folder), locks.attempt(self.folder / LOCK) as holder:
            if holder == f"process {os.getpid()}":  # for which we would wait for ever
                raise RunError(f"{self.folder} is in use by {holder}")
            try:
                yield holder
            finally:
                if holder is None and not self.begun([self.folder]):
                    shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder; refuse one that is in use."""
        with self.attempt() as holder:
            if holder is not None:
                raise RunError(f"{self.folder} is in use by {holder}")
            yield

    def holder(self) -> str | None:
        """Return who is in the folder, which is not made for that."""
        if not (self.folder / LOCK).exists():
            return None
        with self.attempt() as holder:
            return holder


def free(runs: Sequence[Run], told: set[str], stop: Stop) -> tuple[list[Run], dict[Run, str]]:
    """Return which runs that are not finished nobody holds, and who holds the others; wait until there is one."""
    while True:
        stop.raise_if_stopped()
        held = {run: holder for run in runs if not run.finished and (holder := run.holder()) is not None}
        found = [run for run in runs if not run.finished and run not in held]
        if found or not held:
            return found, held
        locks.wait({run.folder.name: holder for run, holder in held.items()}, "training", told, stop)
