"""Learning rates as functions of the epoch, set once per epoch.

Each takes (epoch, epochs, peak, m) with epoch from 0 to epochs - 1 and returns the learning rate; none
knows a fixed number of epochs. m is the number of checkpoints, where there are any.
"""

import math
from collections.abc import Callable

Schedule = Callable[..., float]

SWA_START = 0.75
SWA_RATE = 0.5  # of the peak
FGE_START = 0.8
FGE_RATES = (0.5, 0.005)  # of the peak: where a cycle begins and where a member is taken


def cosine(position: float) -> float:
    """Return half a cosine wave: 1 at position 0, 0 at position 1."""
    return 0.5 * (1 + math.cos(math.pi * position))


def warmup_cosine(epoch: int, epochs: int, peak: float, m: int = 1, warmup: int = 5) -> float:
    """Rise to the peak in equal steps over `warmup` epochs, then fall along half a cosine."""
    if epoch < warmup:
        return peak * (epoch + 1) / warmup
    return peak * cosine((epoch - warmup) / max(1, epochs - warmup))


def constant(epoch: int, epochs: int, peak: float, m: int = 1) -> float:
    """Stay at the peak."""
    return peak


def snapshot(epoch: int, epochs: int, peak: float, m: int = 6) -> float:
    """Fall from the peak to nearly 0 in each of m equal parts (Huang et al., 2017)."""
    start, end = _cycle(epoch, snapshot_checkpoints(epochs, m))
    return peak * cosine((epoch - start) / (end - start))


def swa_cyclic(epoch: int, epochs: int, peak: float, m: int = 3, warmup: int = 5) -> float:
    """Cosine to nearly 0 at three quarters, then m - 1 of them from half the peak (Izmailov et al., 2018)."""
    checkpoints = swa_checkpoints(epochs, m)
    if epoch < checkpoints[0]:
        return warmup_cosine(epoch, checkpoints[0], peak, warmup=_short(warmup, checkpoints[0]))
    start, end = _cycle(epoch, checkpoints)
    return SWA_RATE * peak * cosine((epoch - start) / (end - start))


def swa_constant(epoch: int, epochs: int, peak: float, m: int = 3, warmup: int = 5) -> float:
    """Rise to the peak, stay for half of the training, move in a line to half the peak at three quarters, stay."""
    start, turn, first = 0.5 * epochs, SWA_START * epochs, round(SWA_START * epochs)
    warmup = _short(warmup, first)
    if epoch < warmup:
        return peak * (epoch + 1) / warmup
    if epoch >= first:
        return SWA_RATE * peak
    share = min(1.0, max(0.0, (epoch - start) / (turn - start)))
    return peak * (1 - share * (1 - SWA_RATE))


def fge(epoch: int, epochs: int, peak: float, m: int = 6, warmup: int = 5) -> float:
    """Cosine to nearly 0 at four fifths, then short triangles around m low points (Garipov et al., 2018).

    A triangle falls in a line from half the peak to a hundredth of that, where a member is taken, and rises
    again. Training ends with the last member, at the low point of the last triangle.
    """
    turns = _fge_turns(epochs, m)
    if epoch < turns[0]:
        return warmup_cosine(epoch, turns[0], peak, warmup=_short(warmup, turns[0]))
    start, end = _cycle(epoch, turns)
    share = (epoch + 1 - start) / (end - start)
    falling = turns.index(start) % 2 == 0
    high, low = FGE_RATES
    return peak * (high + (low - high) * (share if falling else 1 - share))


def fge_checkpoints(epochs: int, m: int) -> list[int]:
    """Return after how many epochs the m members are taken: at the low points of the triangles."""
    return _fge_turns(epochs, m)[1::2]


def _fge_turns(epochs: int, m: int) -> list[int]:
    """Return where the rate turns: the start, a low point, a high point, …, the last low point."""
    start, sides = round(FGE_START * epochs), 2 * m - 1
    if m < 1 or epochs - start < sides:
        raise ValueError(
            f"{m} members in the last {epochs - start} of {epochs} epochs: expected at least 1, and an epoch for each "
            f"side of their triangles, {max(1, sides)} in all"
        )
    return [start + (epochs - start) * i // sides for i in range(sides + 1)]


def swa_checkpoints(epochs: int, m: int) -> list[int]:
    """Return after how many epochs the m checkpoints are taken: first at three quarters, last at the end."""
    start = round(SWA_START * epochs)
    if m < 2 or epochs - start < m - 1:
        raise ValueError(
            f"{m} checkpoints in {epochs} epochs, of which the last {epochs - start} are theirs: expected at least 2, "
            "and an epoch between any two of them"
        )
    return [start + (epochs - start) * i // (m - 1) for i in range(m)]


def snapshot_checkpoints(epochs: int, cycles: int) -> list[int]:
    """Return after how many epochs each cycle ends."""
    if not 1 <= cycles <= epochs:
        raise ValueError(f"{cycles} cycles in {epochs} epochs: expected at least 1, and an epoch for each")
    return [epochs * (i + 1) // cycles for i in range(cycles)]


def _short(warmup: int, epochs: int) -> int:
    """Return a warm-up of at most half of so many epochs, so that the rate has come down at their end."""
    return min(warmup, epochs // 2)


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
    "fge": fge,
}
CHECKPOINTS: dict[str, Callable[[int, int], list[int]]] = {
    "snapshot": snapshot_checkpoints,
    "swa-cyclic": swa_checkpoints,
    "swa-constant": swa_checkpoints,
    "fge": fge_checkpoints,
}
