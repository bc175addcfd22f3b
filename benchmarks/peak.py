"""The most memory that some work has beside what was there before: on a GPU and on a CPU by what was allocated."""

from collections.abc import Callable
from typing import Any

import torch


def above(work: Callable[[], Any], device: str) -> int:
    """Return how many bytes of tensors there were at most during the work, less those that were there before."""
    return _on_gpu(work) if device == "cuda" else _on_cpu(work)


def _on_gpu(work: Callable[[], Any]) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _on_cpu(work: Callable[[], Any]) -> int:
    """Add up what torch's allocator notes: it has no peak of its own."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as found:
        work()
    profiler: Any = found.profiler
    now = most = 0
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most
