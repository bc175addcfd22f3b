"""What a reader needs to know to repeat a measurement: versions, commit, hardware, settings."""

import os
import platform
import subprocess
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from subspaces.version import __version__

DESCRIBE = ("describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*")


def environment(execution: Mapping[str, Any], processes: int = 1) -> dict[str, Any]:
    """Return versions, commit, hardware, processes, and the settings, of which one is the device."""
    device = str(execution["device"])
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "subspaces": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hardware": torch.cuda.get_device_name(device) if device.startswith("cuda") else processor(),
        "threads": torch.get_num_threads(),
        **({"processes": processes} if processes > 1 else {}),
        "execution": dict(execution),
    }


def commit() -> str | None:
    """Return the commit of the source tree, with a plus sign if it has changed since; None outside of one.

    Where the tree is a copy, such as in a container, SUBSPACES_COMMIT says which. A repository that this package was
    only installed below is not its source tree.
    """
    if named := os.environ.get("SUBSPACES_COMMIT"):
        return named
    top = Path(__file__).resolve().parents[2]
    try:
        project = tomllib.loads((top / "pyproject.toml").read_text()).get("project", {})
        if project.get("name") != __name__.partition(".")[0]:
            return None
        found = subprocess.run(
            ["git", "--git-dir", top / ".git", "--work-tree", top, *DESCRIBE],
            cwd=top,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
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
