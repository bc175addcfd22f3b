"""Learning rates as functions of the epoch, set once per epoch.

Each takes (epoch, epochs, peak) with epoch from 0 to epochs - 1 and returns the learning rate; none
knows a fixed number of epochs.
"""

import math
from collections.abc import Callable

Schedule = Callable[[int, int, float], float]

SWA_START = 0.75
SWA_RATE = 0.5  # of the peak


def cosine(position: float) -> float:
    """Return half a cosine wave: 1 at position 0, 0 at position 1."""
    return 0.5 * (1 + math.cos(math.pi * position))


def warmup_cosine(epoch: int, epochs: int, peak: float, warmup: int = 5) -> float:
    """Rise to the peak in equal steps over `warmup` epochs, then fall along half a cosine."""
    if epoch < warmup:
        return peak * (epoch + 1) / warmup
    return peak * cosine((epoch - warmup) / max(1, epochs - warmup))


def constant(epoch: int, epochs: int, peak: float) -> float:
    """Stay at the peak."""
    return peak


def snapshot(epoch: int, epochs: int, peak: float, cycles: int = 6) -> float:
    """Fall from the peak to nearly 0 in each of `cycles` equal parts (Huang et al., 2017)."""
    start, end = _cycle(epoch, snapshot_checkpoints(epochs, cycles))
    return peak * cosine((epoch - start) / (end - start))


def swa_cyclic(epoch: int, epochs: int, peak: float, m: int = 3, warmup: int = 5) -> float:
    """Cosine to nearly 0 at three quarters, then m - 1 cycles from half the peak to 0 (Izmailov et al., 2018)."""
    checkpoints = swa_checkpoints(epochs, m)
    if epoch < checkpoints[0]:
        return warmup_cosine(epoch, checkpoints[0], peak, warmup)
    start, end = _cycle(epoch, checkpoints)
    return SWA_RATE * peak * (1 - (epoch + 1 - start) / (end - start))


def swa_constant(epoch: int, epochs: int, peak: float, warmup: int = 5) -> float:
    """Rise to the peak, stay for half of the training, move in a line to half the peak at three quarters, stay."""
    start, turn = 0.5 * epochs, SWA_START * epochs
    if epoch < warmup:
        return peak * (epoch + 1) / warmup
    share = min(1.0, max(0.0, (epoch - start) / (turn - start)))
    return peak * (1 - share * (1 - SWA_RATE))


def swa_checkpoints(epochs: int, m: int) -> list[int]:
    """Return after how many epochs the m checkpoints are taken: first at three quarters, last at the end."""
    start = round(SWA_START * epochs)
    if m < 2 or epochs - start < m - 1:
        raise ValueError(
            f"{m} checkpoints in {epochs} epochs: expected at least 2, and an epoch between any two of them"
        )
    return [start + (epochs - start) * i // (m - 1) for i in range(m)]


def snapshot_checkpoints(epochs: int, cycles: int) -> list[int]:
    """Return after how many epochs each cycle ends."""
    if not 1 <= cycles <= epochs:
        raise ValueError(f"{cycles} cycles in {epochs} epochs: expected at least 1, and an epoch for each")
    return [epochs * (i + 1) // cycles for i in range(cycles)]


def _cycle(epoch: int, ends: list[int]) -> tuple[int, int]:
    """Return start and end of the cycle that the epoch lies in."""
    start = max((end for end in ends if end <= epoch), default=0)
    return start, min(end for end in ends if end > epoch)


SCHEDULES: dict[str, Schedule] = {
    "warmup-cosine": warmup_cosine,
    "constant": constant,
    "snapshot": snapshot,
    "swa-cyclic": swa_cyclic,
    "swa-constant": swa_constant,
}
