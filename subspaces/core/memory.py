"""The memory of this process: keeping it between steps, how much there is, and errors that say it ran out."""

import ctypes
import os
import sys

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of mallopt(3)
_MESSAGES = (  # torch has no error of its own for it on a CPU, nor for a worker of a DataLoader that was killed
    "DefaultCPUAllocator",
    "not enough memory",
    "out of memory",
    "Storage size calculation overflowed",
    "insufficient shared memory",
    "Cannot allocate memory",
    "killed by signal: Killed",
)


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
    return bool(mallopt(_MMAP_THRESHOLD, 1 << 30) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def ran_out(error: BaseException) -> bool:
    """Return whether an error means that memory ran out: Python's own, numpy's, a device's, or torch's on a CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def reason(error: BaseException) -> str:
    """Extract the allocator's message, in brackets."""
    lines = [line for line in str(error).splitlines() if "allocat" in line.lower() or isinstance(error, MemoryError)]
    message = lines[0].rpartition("DefaultCPUAllocator: ")[2].strip() if lines else ""
    return f" ({message[:200]})" if message else ""


def total() -> int:
    """Return how many bytes this process may have: the machine's, or what it is limited to."""
    try:
        import resource

        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ImportError, AttributeError, ValueError):  # a system that does not say
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)
