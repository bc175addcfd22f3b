"""Memory that a training process keeps between steps."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of mallopt(3)
_LIMIT = 1 << 30


def keep_memory() -> bool:
    """Make the C library keep freed memory for the next step instead of giving it back; say whether it could.

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
