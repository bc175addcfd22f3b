"""A run folder: everything that one training leaves behind, and what it needs to go on.

config.json          the recipe
environment.json     versions, commit, hardware and settings of each start
log.jsonl            one line per epoch
state.safetensors    the newest checkpoint
family.safetensors   the trained family, or what the method made of it (written last but one)
trained.safetensors  the trained subspace, where the method keeps one point of it as its family
result.json          the final numbers (written last: the run is finished)
"""

import dataclasses
import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from subspaces import files
from subspaces.training.config import Execution, Recipe
from subspaces.version import __version__

RESERVED = {".lock", "log.jsonl"}
"""What a folder may hold before its run is started: the lock, and the log of a trunk."""


class RunError(RuntimeError):
    """A run folder that cannot be used."""


class Run:
    """The folder of one recipe with one seed."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder = folder
        self.recipe = recipe

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
        try:
            return cls(path, Recipe.from_dict(_read_json(path / "config.json", dict)))
        except ValueError as error:
            raise RunError(f"{path / 'config.json'} is not a recipe: {error}") from None

    @staticmethod
    def begun(folders: Iterable[str | os.PathLike[str]]) -> list[Path]:
        """Return the folders without those that a killed process had reserved for runs it never started."""
        paths = [Path(folder) for folder in folders]
        return [path for path in paths if not path.is_dir() or set(os.listdir(path)) - RESERVED]

    @property
    def finished(self) -> bool:
        """Whether the run has its result."""
        return (self.folder / "result.json").is_file() and self.family_file.is_file()

    @property
    def family_file(self) -> Path:
        """The trained family."""
        return self.folder / "family.safetensors"

    @property
    def trained_file(self) -> Path:
        """The subspace that was trained, where the family is one point of it."""
        return self.folder / "trained.safetensors"

    @property
    def result(self) -> dict[str, Any]:
        """The final numbers."""
        if not self.finished:
            raise RunError(f"{self.folder} is not finished: train it first")
        result: dict[str, Any] = _read_json(self.folder / "result.json", dict)
        return result

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        path = self.folder / "log.jsonl"
        lines = path.read_bytes().splitlines() if path.is_file() else []
        return [_parsed(line, dict, f"line {number} of {path}") for number, line in enumerate(lines, 1)]

    def check(self) -> None:
        """Refuse an existing folder of another recipe, and a finished one whose family cannot be read."""
        config = self.folder / "config.json"
        if config.is_file():
            wanted = self.recipe.to_dict()
            found = {**_added_later(), **_read_json(config, dict)}
            differing = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
            if differing and differing != ["name"]:
                name = differing[0]
                raise RunError(
                    f"{self.folder} is a run of another configuration: {name} is {found.get(name)!r} there and "
                    f"{wanted.get(name)!r} here; choose another --out or remove the folder"
                )
        if self.finished:
            try:
                with safe_open(self.family_file, framework="pt"):
                    pass
            except SafetensorError as error:
                raise self._damaged(self.family_file, error) from None

    def _damaged(self, path: Path, error: Exception) -> RunError:
        return RunError(f"{path} is damaged ({error}): remove the folder {self.folder} to train anew")

    def start(self, execution: Execution) -> None:
        """Make the folder, or check that an existing one is of this recipe, and note this start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.check()
        for partial in self.folder.glob(".*.partial"):  # of a process that was killed while it wrote
            partial.unlink()
        if not (self.folder / "config.json").is_file():
            files.write_json(self.folder / "config.json", self.recipe.to_dict())
        starts = self.folder / "environment.json"
        earlier = _read_json(starts, list) if starts.is_file() else []
        files.write_json(starts, [*earlier, environment(execution)])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder; the lock ends with the process, however it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunError(f"{self.folder} is in use by process {file.read().strip() or '?'}") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            try:
                yield
            finally:
                if not (self.folder / "config.json").is_file():  # it was never started: leave nothing behind
                    with suppress(OSError):
                        for name in RESERVED:
                            (self.folder / name).unlink(missing_ok=True)
                        self.folder.rmdir()

    def save_checkpoint(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Write the state of training and how long the log is at that moment."""
        log = self.folder / "log.jsonl"
        if log.is_file():  # on the disk before the state that counts on it
            with open(log, "rb+") as file:
                os.fsync(file.fileno())
        header = json.dumps({**progress, "log_bytes": log.stat().st_size if log.is_file() else 0})
        files.write(self.folder / "state.safetensors", safetensors.torch.save(stored(tensors), {"progress": header}))

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the newest checkpoint, after cutting the log back to it; None if there is none."""
        path = self.folder / "state.safetensors"
        log = self.folder / "log.jsonl"
        if not path.is_file():
            log.unlink(missing_ok=True)
            return None
        try:
            with safe_open(path, framework="pt") as file:
                progress = json.loads((file.metadata() or {})["progress"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            log_bytes = int(progress["log_bytes"])
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise self._damaged(path, error) from None
        if (log.stat().st_size if log.is_file() else 0) < log_bytes:
            raise RunError(
                f"{log} is shorter than when the checkpoint was written: remove the folder {self.folder} to train anew"
            )
        if log.is_file():
            os.truncate(log, log_bytes)
        return tensors, progress

    def append_log(self, row: Mapping[str, Any]) -> None:
        """Add one line to the log."""
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, which marks the run as finished, and drop the checkpoint."""
        files.write_json(self.folder / "result.json", dict(result))
        (self.folder / "state.safetensors").unlink(missing_ok=True)


def stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return dense copies on the CPU, as a file takes them."""
    return {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}


def _added_later() -> dict[str, Any]:
    """Return the fields that an older configuration may lack, at their defaults."""
    return {entry.name: entry.default for entry in dataclasses.fields(Recipe) if entry.metadata.get("later")}


def _read_json(path: Path, kind: type) -> Any:
    return _parsed(path.read_bytes(), kind, str(path))


def _parsed(content: bytes, kind: type, where: str) -> Any:
    """Return JSON that must be a dict or a list."""
    try:
        value = json.loads(content)
        if not isinstance(value, kind):
            raise ValueError(f"expected a {kind.__name__}, found a {type(value).__name__}")
    except ValueError as error:
        raise RunError(f"{where} is damaged ({error}): remove the run's folder to train anew") from None
    return value


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
