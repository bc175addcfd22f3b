"""The greedy soup (Wortsman et al., 2022): vertices whose average is as good on held-out examples as without them."""

from collections.abc import Callable, Sequence

Merit = Callable[[tuple[int, ...]], float]
"""Of the uniform average of some vertices: the higher, the better."""


def greedy(vertices: Sequence[int], merit: Merit) -> tuple[int, ...]:
    """Return the vertices that are kept: from the best on, each with which the average does not get worse."""
    first, *others = sorted(vertices, key=lambda vertex: -merit((vertex,)))  # equals stay in their order
    kept: tuple[int, ...] = (first,)
    reached = merit(kept)
    for vertex in others:
        tried = tuple(sorted((*kept, vertex)))
        found = merit(tried)
        if found >= reached:
            kept, reached = tried, found
    return kept
