"""Stop on Ctrl-C and SIGTERM, at a moment that suits the work."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(Exception):  # noqa: N818
    """The work was asked to stop, and what was done is kept."""


class Stop:
    """Says whether a signal has asked to stop."""

    signal: int | None = None

    def raise_if_stopped(self) -> None:
        """Stop if that was asked for."""
        if self.signal is not None:
            raise Stopped(signal.Signals(self.signal).name)


@contextmanager
def stop_on_signals(patient: bool = False) -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request; a second one acts at once.

    `patient`: it does not, for those who are asked again and again, as torchrun and Ray do.
    """
    stop = Stop()
    previous: dict[int, Any] = {}

    def request(number: int, frame: object) -> None:
        stop.signal = number
        for known, handler in previous.items() if not patient else ():
            signal.signal(known, handler)

    try:
        for wanted in (signal.SIGINT, signal.SIGTERM):
            previous[wanted] = signal.signal(wanted, request)
    except ValueError:  # not in the main thread: signals are someone else's business
        previous.clear()
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
