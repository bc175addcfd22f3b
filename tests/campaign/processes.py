"""Commands in processes of their own, as from a shell: 3 s each, for what a warm process cannot show."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from campaign import plants
from campaign.warm import SECONDS, Ended, Kill

MAIN = "import sys; sys.argv[0] = 'subspaces'; from subspaces.cli import main; main()"


def process(argv: Sequence[str], folder: Path, kill: Kill | None = None) -> Ended:
    """Run `subspaces ARGV` in a process of its own, as from a shell; a signal comes so long after its first output."""
    begin = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", plants.again() + MAIN, *argv],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        process_group=0,
    ) as running:
        assert running.stdout is not None
        start, hung = "", False
        if kill is not None:
            start = running.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(kill.after)
            running.send_signal(kill.number)
        try:
            out, err = running.communicate(timeout=3 * SECONDS)
        except subprocess.TimeoutExpired:
            hung = True
            running.kill()
            out, err = running.communicate()
    return Ended(running.returncode, start + out, err, time.monotonic() - begin, hung)
