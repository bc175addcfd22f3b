"""Image files and arrays as pixels: which files there are, reading them safely, decoding, normalising."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it, and of how much (0: not known)."""
