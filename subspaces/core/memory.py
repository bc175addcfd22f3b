"""The memory of this process: keeping it between steps, and errors that say it ran out."""

import ctypes
import sys

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of mallopt(3)
_MESSAGES = (  # torch has no error of its own for it on a CPU, nor for a worker of a DataLoader that was killed
    *("DefaultCPUAllocator", "not enough memory", "out of memory", "Storage size calculation overflowed"),
    *("insufficient shared memory", "Cannot allocate memory", "killed by signal: Killed"),
)


def keep_memory() -> bool:
    """Make the C library keep freed memory for the next step instead of giving it back; return whether it could.

    A step on a CPU frees and takes hundreds of megabytes, which the system else hands out anew, page by page: a tenth
    of the step, and more or less of it by chance.

    Example:
        >>> kept = ss.keep_memory()  # once, at the beginning of a training script
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt if sys.platform.startswith("linux") else None
    except (OSError, AttributeError):  # another C library
        mallopt = None
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, 1 << 30) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def ran_out(error: BaseException) -> bool:
    """Return whether an error means that memory ran out: Python's own, numpy's, a device's, or torch's on a CPU."""
    known = isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)
    return known or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def reason(error: BaseException) -> str:
    """Return the last line of an error, which is the allocator's message, in brackets."""
    return f" ({str(error).splitlines()[-1][:200]})" if str(error) else ""
