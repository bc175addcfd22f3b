"""MC-dropout: a network with dropout asked several times, each time without other parts of it.

p(y | x) = 1/n sum_i softmax(f(x; theta * mask_i)), with batch norm as at test time (Gal and Ghahramani, 2016).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from subspaces import streams
from subspaces.evaluation.predictor import Answers, Predictor
from subspaces.networks.dropout import dropping


def answers(predictor: Predictor, weights: Any, passes: int, seed: int) -> dict[str, Iterable[Answers]]:
    """Return what a network with these weights says each time; members are the passes."""
    (network,) = predictor.prepare([weights])
    return {split: _passes(predictor, network, split, passes, seed) for split in predictor.splits}


def _passes(predictor: Predictor, network: nn.Module, split: str, passes: int, seed: int) -> Iterator[Answers]:
    for number, batch in enumerate(predictor.batches(split)):
        with dropping(network):
            yield predictor.ask([network] * passes, batch, streams.number(seed, "dropout", number))
