"""Where the vertices of a subspace start: each from a draw of its own, or all from one point with offsets between them.

A line and a layerwise simplex of three vertices are trained from independent vertices (a factory), and from one point
(init="point") with offsets of 0, 0.03, 0.1 and 0.3 of the length of each weight, with clean labels and with 40 % of
them random. A row says how good the midpoint is, how accurate the ensemble of two points near the first two vertices
is, and how far the vertices are from each other (the mean over pairs).

    python benchmarks/starts.py [--dataset digits] [--seeds 0 1 2] [--json FILE]
    python benchmarks/starts.py --dataset mnist --data DIR --json FILE
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from own_loop import Images, Record, Setting, load, measure, options, setting_of, train
from timing import command

import subspaces as ss

SHAPES: dict[str, tuple[ss.Shape, bool, list[Any]]] = {  # layerwise or not, and the points of the ensemble
    "line": (ss.Line(), False, [0.1, 0.9]),
    "simplex of 3, layerwise": (ss.Simplex(3), True, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]),
}
STARTS: dict[str, dict[str, Any]] = {
    "independent": {},
    **{f"one point, offset {offset:g}": {"init": "point", "offset": offset} for offset in (0.0, 0.03, 0.1, 0.3)},
}


def row(shape: str, start: str, images: Images, setting: Setting, seed: int) -> dict[str, Any]:
    """Train one family and return what it is like."""
    kind, layerwise, points = SHAPES[shape]
    torch.manual_seed(seed)
    family = ss.Subspace(setting.network, kind, layerwise, seed=seed, **STARTS[start])
    before = apart(family)
    loss = train(family, images, setting, seed)
    found = {
        **measure(family.midpoint(), images),
        "pair": measure(family.ensemble(points), images)["accuracy"],
        "loss": loss,
    }
    return {**found, **apart(family), **{f"{name} at the start": value for name, value in before.items()}}


def apart(family: ss.Subspace) -> dict[str, float]:
    """Return the distance and the squared cosine of two vertices, in the mean over pairs."""
    found = family.distances()
    pairs = ~torch.eye(family.shape.vertices, dtype=torch.bool)
    return {"l2": float(found.l2[pairs].mean()), "cos2": float(found.cos2[pairs].mean())}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.4], help="shares of random labels")
    given = parser.parse_args(arguments)
    setting = setting_of(given)
    record = Record(given, setting, command())
    levels = {noise: load(given.dataset, given.data, setting.images, noise) for noise in given.noise}
    for seed, noise, shape, start in product(given.seeds, given.noise, SHAPES, STARTS):
        told = {"seed": seed, "label_noise": noise, "shape": shape, "start": start}
        record.add({**told, **row(shape, start, levels[noise], setting, seed)})


if __name__ == "__main__":
    main()
