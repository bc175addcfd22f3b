"""The greedy soup (Wortsman et al., 2022): vertices whose average is as good on held-out examples as without them."""

import math
from collections.abc import Callable, Sequence

Merit = Callable[[tuple[int, ...]], float]
"""Of the uniform average of some vertices: the higher, the better."""


def greedy(vertices: Sequence[int], merit: Merit) -> tuple[int, ...]:
    """Return the vertices that are kept: from the best on, each with which the average does not get worse.

    A vertex that is no number alone is not added to others, and neither is one with which their average is none.
    """
    alone = {vertex: merit((vertex,)) for vertex in vertices}
    ranked = sorted((vertex for vertex in alone if alone[vertex] > -math.inf), key=lambda vertex: -alone[vertex])
    first, *others = ranked or list(alone)[:1]  # equals stay in their order
    kept: tuple[int, ...] = (first,)
    reached = alone[first]
    for vertex in others:
        tried = tuple(sorted((*kept, vertex)))
        found = merit(tried)
        if found >= reached:
            kept, reached = tried, found
    return kept
