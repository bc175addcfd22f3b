"""How many runs are trained at once on a GPU: as many as was asked for, or as fit into its memory.

A run that is let in takes its first steps, and what the device has given away for them is what it needs. It will grow:
it captures a graph for several steps, for single ones and for the last batch of an epoch, and it is evaluated.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from subspaces.experiments.training.execution import Execution

GROWTH = 3  # times what its first steps take is kept free for every run


def fitting(room: int, needs: Sequence[int]) -> int:
    """Return how many runs fit into so many bytes, where the first steps of some have taken so many each."""
    return max(1, room // (GROWTH * max(1, *needs)))


class Places:
    """The places of one device. On a CPU all that take turns have one."""

    def __init__(self, execution: Execution) -> None:
        self.device = torch.device(execution.device)
        self.most = execution.at_once
        self.measured = self.device.type == "cuda" and self.most is None
        self.needs: list[int] = []
        self.leave()
        self.room = torch.cuda.mem_get_info(self.device)[0] if self.measured else 0

    def free(self, running: int) -> bool:
        """Say whether there is a place beside so many runs; the first always has one."""
        if self.measured:
            return running < (fitting(self.room, self.needs) if self.needs else 1)
        return self.most is None or running < self.most

    @contextmanager
    def taken(self, runs: int = 1) -> Iterator[None]:
        """Measure what each of some runs needs that are let in here and take their first steps."""
        before = self._given()
        yield
        self.needs.append((self._given() - before) // runs)

    def shared(self, size: int, runs: int = 1) -> None:
        """Leave so many bytes aside: they were not for the last runs alone, but are shared with all that follow."""
        self.needs[-1] -= size // runs
        self.room -= size

    def leave(self) -> None:
        """Give the memory of runs that are done back to the device."""
        if self.measured:
            gc.collect()
            torch.cuda.empty_cache()

    def _given(self) -> int:
        return torch.cuda.memory_reserved(self.device) if self.measured else 0
