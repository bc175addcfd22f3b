"""How many runs are trained at once on a GPU: as many as was asked for, or as fit into its memory.

A run is let in when there is a place, and takes its first steps: what the device has given away by then is what it
needs. The next is let in if the free memory is twice the most that one has needed, for evaluations need some too.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from subspaces.training.execution import Execution

SPARE = 2  # times what a run needs must be free for one more


def fits(free: int, needs: Sequence[int]) -> bool:
    """Say whether one more run fits into so many free bytes, where those before it have needed so many each."""
    return free >= SPARE * max(needs, default=0)


class Places:
    """The places of one device. On a CPU all that take turns have one."""

    def __init__(self, execution: Execution) -> None:
        self.device = torch.device(execution.device)
        self.measured = self.device.type == "cuda" and execution.at_once is None
        self.most = execution.at_once
        self.needs: list[int] = []

    def free(self, running: int) -> bool:
        """Say whether there is a place beside so many runs; the first always has one."""
        if running == 0 or not (self.measured or self.most):
            return True
        if self.most is not None:
            return running < self.most
        return fits(torch.cuda.mem_get_info(self.device)[0], self.needs)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Measure what a run needs that is let in here and takes its first steps."""
        before = self._given()
        yield
        self.needs.append(self._given() - before)

    def shared(self, size: int) -> None:
        """Leave so many bytes out of what the last run needs: it shares them with all that follow."""
        self.needs[-1] -= size

    def leave(self) -> None:
        """Give the memory of a run that is done back to the device."""
        if self.measured:
            gc.collect()
            torch.cuda.empty_cache()

    def _given(self) -> int:
        return torch.cuda.memory_reserved(self.device) if self.measured else 0
