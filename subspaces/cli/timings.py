"""`subspaces --timings COMMAND …`: where the time of a command went."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from subspaces.cli import printing
from subspaces.core import phases
from subspaces.core.phases import Timings

HELP = f"Say at the end where the time went: {'; '.join(f'{name}: {text}' for name, text in phases.MEANING.items())}."


@contextmanager
def told() -> Iterator[None]:
    """Measure the phases of a command and print them on standard error, also of one that fails."""
    before, start, compiled = phases.since_start(), time.perf_counter(), _compiling()
    with phases.measured() as timings:
        timings.add("import", before)
        try:
            yield
        finally:
            _tell_compiling_apart(timings, _compiling() - compiled)
            _show(timings, before + time.perf_counter() - start)


def _compiling() -> float:
    """Return how many seconds the compiler says it has taken in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0.0 if dynamo is None else float(dynamo.calculate_time_spent().get("total_wall_time", 0.0))


def _tell_compiling_apart(timings: Timings, seconds: float) -> None:
    """Count what the compiler took, which is within the first steps, for itself."""
    in_capture = min(seconds, timings.seconds.get("capture", 0.0))
    timings.move("capture", "compile", in_capture)
    timings.move("training", "compile", seconds - in_capture)


def _show(timings: Timings, total: float) -> None:
    listed = printing.table("phase", "seconds", "share", numbers=("seconds", "share"))
    for name, seconds in [*timings.shares(total), ("total", total)]:
        listed.add_row(name, f"{seconds:.2f}", f"{seconds / max(total, 1e-9):.0%}")
    printing.show(listed, stderr=True)
