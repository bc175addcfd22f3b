"""What a reader needs to know to repeat a measurement: versions, commit, hardware, settings."""

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from subspaces.version import __version__


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
    """Return the commit of the repository that tracks this package's source, with a plus sign if it has changed since.

    None if no repository tracks it. Where the source is a copy, SUBSPACES_COMMIT says of which commit.
    """
    if named := os.environ.get("SUBSPACES_COMMIT"):
        return named
    file = Path(__file__).resolve()
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # a hook sets GIT_DIR
    how: Any = {"cwd": file.parent, "env": own, "stderr": subprocess.DEVNULL, "timeout": 10, "text": True}
    try:
        subprocess.check_output(["git", "ls-files", "--error-unmatch", file.name], **how)
        described = ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
        return str(subprocess.check_output(described, **how)).strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def processor() -> str:
    """Return the name of the CPU and the number of its cores that we may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {cores} cores"
