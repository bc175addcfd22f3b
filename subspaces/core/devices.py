"""Memory that is kept between steps, how much there is, errors that say it ran out; and CUDA graphs."""

import ctypes
import os
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of mallopt(3)
_LIMIT = 1 << 30
WARMUP = 2
R = TypeVar("R")


def keep_memory() -> bool:
    """Make the C library keep freed memory for the next step instead of giving it back; return whether it could.

    A step on a CPU frees and takes hundreds of megabytes, and each time the system hands them out anew, page
    by page: that is a tenth of the step, and more or less of it by chance.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LIMIT) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))


_WORDS = (  # of torch, which has no error of its own for it on a CPU, also where a process that reads images ended so
    "DefaultCPUAllocator",
    "not enough memory",
    "out of memory",
    "Storage size calculation overflowed",
    "insufficient shared memory",
    "Cannot allocate memory",
    "killed by signal: Killed",
)


def ran_out(error: BaseException) -> bool:
    """Return whether an error means that memory ran out: Python's own, numpy's, a device's, or torch's on a CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


def reason(error: BaseException) -> str:
    """Extract the allocator's message, in brackets."""
    lines = [line for line in str(error).splitlines() if "allocat" in line.lower() or isinstance(error, MemoryError)]
    said = lines[0].rpartition("DefaultCPUAllocator: ")[2].strip() if lines else ""
    return f" ({said[:200]})" if said else ""


def total() -> int:
    """Return how many bytes this process may have: the machine's, or what it is limited to."""
    try:
        import resource

        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ImportError, AttributeError, ValueError):  # a system that does not say
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


def captured(
    work: Callable[[], R],
    device: torch.device,
    stream: torch.cuda.Stream | None = None,
    warm_up: Callable[[], None] | None = None,
    kernels: int = 10,
) -> tuple[torch.cuda.CUDAGraph, R]:
    """Record work as a CUDA graph, which costs one launch from then on; return it and what the work returns.

    That is tensors, which a replay fills anew.

    Args:
        work: waits for nothing, and changes only tensors that stay where they are.
        device: where it runs.
        stream: on which it is recorded; by default on a new one.
        warm_up: runs before, so that nothing is made or measured for the first time while it is recorded; by default
            the work itself, twice.
        kernels: how many of its kernels cuDNN tries in that time; 0 for all.
    """
    stream = stream or torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    graph = torch.cuda.CUDAGraph()
    cudnn = torch.backends.cudnn
    kept = {"deterministic": cudnn.deterministic, "allow_tf32": cudnn.allow_tf32}
    with cudnn.flags(enabled=True, benchmark=True, benchmark_limit=kernels, **kept):
        with torch.cuda.stream(stream):
            for run in [work] * WARMUP if warm_up is None else [warm_up]:
                run()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            result = work()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph, result
