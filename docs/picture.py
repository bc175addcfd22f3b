"""Draw the picture of the README: accuracy along a line of networks, measured on the demo's setting.

python docs/picture.py docs/line.png
"""

import sys

import matplotlib.pyplot as plt
import torch

from subspaces import Ensemble, Line, Subspace
from subspaces.demo import Digits, Setting, digits, evaluate, train
from subspaces.networks import MLP

SETTING = Setting()
ALPHAS = [i / 20 for i in range(21)]
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"


def one_seed(seed: int, data: Digits) -> tuple[list[float], list[float], float, float]:
    """Return accuracy along the line, of its ensembles, of one network and of two."""
    torch.manual_seed(seed)
    first, second = (train(MLP(), data, SETTING, seed + shift, lambda: None) for shift in (0, 1000))
    family = Subspace(MLP, Line(), seed=seed)
    train(family, data, SETTING, seed, lambda: None)
    points = [evaluate(family.at(alpha), data)[0] for alpha in ALPHAS]
    pairs = [evaluate(family.ensemble([alpha, 1 - alpha]), data)[0] for alpha in ALPHAS]
    return points, pairs, evaluate(first, data)[0], evaluate(Ensemble([first, second]), data)[0]


def main(path: str) -> None:
    """Train everything and write the picture."""
    torch.set_num_threads(1)
    data = digits(SETTING.label_noise)
    points, pairs, one, two = (
        torch.tensor(column) for column in zip(*(one_seed(s, data) for s in range(SETTING.seeds)), strict=True)
    )
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for rows, colour, style, label in (
        (pairs, ORANGE, "-", "two points, α and 1−α, as an ensemble"),
        (points, BLUE, "--", "one network, at α"),
    ):
        mean, spread = rows.mean(0), rows.std(0)
        axes.plot(ALPHAS, mean, style, color=colour, label=label, linewidth=2)
        axes.fill_between(ALPHAS, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
    for value, style, label in (
        (two, "-", "two networks trained apart, as an ensemble"),
        (one, "--", "one network, trained as usual"),
    ):
        axes.axhline(float(value.mean()), color=GREY, linestyle=style, linewidth=1.2, label=label)
    axes.set(xlabel="α, the position on the line", ylabel="test accuracy, %", xlim=(0, 1))
    axes.legend(fontsize=8, loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    main(sys.argv[1])
