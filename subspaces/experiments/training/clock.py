"""Time, measured where the work is done."""

import time

import torch


class Clock:
    """Measures time where the work is done: on the device's stream, or here."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if stream is not None else []
        self.times = [time.perf_counter(), 0.0]
        if self.events:
            self.events[0].record()

    def stop(self) -> None:
        """Stop when the work that is queued so far is done."""
        self.times[1] = time.perf_counter()
        if self.events:
            self.events[1].record()

    def ready(self) -> bool:
        """Return whether the device has come to the stop."""
        return not self.events or bool(self.events[1].query())

    def seconds(self) -> float:
        """Return the time between start and stop; wait for the stop."""
        if not self.events:
            return self.times[1] - self.times[0]
        self.events[1].synchronize()
        return float(self.events[0].elapsed_time(self.events[1])) / 1000
