"""Whether a subspace wants another learning rate than one network.

A vertex gets c_i times the gradient of the point that was drawn, so a step of gradient descent moves that point by
sum c_i^2 of a network's step (on average 2/3 on a line and 1/2 on a simplex of three) and the midpoint by 1/m of it.
One network, and midpoints of subspaces, are trained with the data set's learning rate times each of several factors.
The subspaces' vertices are independent, but for one line whose vertices start at one point, with an offset of 0.1.

    python benchmarks/learning_rate.py [--dataset digits] [--seeds 0 1 2] [--json FILE]
    python benchmarks/learning_rate.py --dataset cifar10 --data DIR --methods network line --seeds 0 --json FILE
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from own_loop import Images, Record, Setting, load, measure, options, setting_of, train
from timing import command
from torch import nn

import subspaces as ss

Make = Callable[[], nn.Module]
METHODS: dict[str, Callable[[Make, int], nn.Module]] = {
    "network": lambda make, seed: make(),
    "line": lambda make, seed: ss.Subspace(make, ss.Line(), seed=seed),
    "simplex": lambda make, seed: ss.Subspace(make, ss.Simplex(3), seed=seed),
    "layerwise": lambda make, seed: ss.Subspace(make, ss.Line(), layerwise=True, seed=seed),
    "point": lambda make, seed: ss.Subspace(make, ss.Line(), init="point", offset=0.1, seed=seed),
}


def row(method: str, images: Images, setting: Setting, seed: int) -> dict[str, Any]:
    """Train one network or family and return how good it is, or its midpoint."""
    torch.manual_seed(seed)
    model = METHODS[method](setting.network, seed)
    loss = train(model, images, setting, seed)
    if not math.isfinite(loss):
        return {"diverged": True}
    return {**measure(model.midpoint() if isinstance(model, ss.Subspace) else model, images), "loss": loss}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--factors", type=float, nargs="+", default=[0.25, 0.5, 1.0, 2.0, 4.0], help="of the rate")
    parser.add_argument("--noise", type=float, default=0.0, help="share of random labels")
    given = parser.parse_args(arguments)
    setting = setting_of(given)
    record = Record(given, setting, command())
    images = load(given.dataset, given.data, setting.images, given.noise)
    for seed, method, factor in product(given.seeds, given.methods, given.factors):
        told = {"seed": seed, "label_noise": given.noise, "method": method, "factor": factor}
        changed = replace(setting, rate=setting.rate * factor)
        record.add({**told, **row(method, images, changed, seed)})


if __name__ == "__main__":
    main()
