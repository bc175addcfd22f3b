"""Fine-tune to turned digits with 100 labels: plainly, as a line, and half-way back to the network before (WiSE-FT)."""

import copy
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import subspaces as ss

x, y = torch.tensor(load_digits().images[:, None] / 16).float(), torch.tensor(load_digits().target)
angle = torch.tensor([[[0.77, 0.64, 0], [-0.64, 0.77, 0]]]).expand(len(x), 2, 3)  # 40 degrees
turned = F.grid_sample(x, F.affine_grid(angle, list(x.shape), align_corners=False), align_corners=False)


def train(network: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> nn.Module:  # noqa: D103
    optimizer = torch.optim.SGD(network.train().parameters(), lr=0.1, momentum=0.9)
    for some in (torch.randint(len(x), (50,)) for _ in range(steps)):
        penalty = network.penalty(beta=1.0) if isinstance(network, ss.Subspace) else 0
        optimizer.zero_grad()
        (F.cross_entropy(network(x[some]), y[some]) + penalty).backward()
        optimizer.step()
    return network.eval()


seeds, steps = map(int, sys.argv[1:] or (5, 200))
found: dict[str, list[list[float]]] = {}
for seed in range(seeds):
    torch.manual_seed(seed)
    clean, labelled, test = torch.randperm(len(x)).split([1000, 100, len(x) - 1100])
    fit, choose = labelled[:60], [(turned[labelled[60:]], y[labelled[60:]])]
    base = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    train(base, x[clean], y[clean], 3 * steps)
    plain, fewer = (train(copy.deepcopy(base), turned[some], y[some], steps) for some in (labelled, fit))
    lines = (ss.Subspace(base, ss.Line(), offset=0.5) for _ in range(2))
    line, shorter = (
        train(each, turned[some], y[some], steps) for each, some in zip(lines, (labelled, fit), strict=True)
    )
    wise = ss.Subspace.from_modules([base, fewer], ss.Line())
    networks = {
        "before": base,
        "fine-tuned on 100": plain,
        "line on 100, midpoint": line.midpoint(),
        "line on 100, two points": line.ensemble([0.1, 0.9]),
        "fine-tuned on 60": fewer,
        "line on 60, selected on 40": shorter.at(shorter.select(choose).alpha),
        "half-way back": wise.midpoint(),
        "back as selected on 40": wise.at(wise.select(choose).alpha),
    }
    for name, network in networks.items():
        with torch.no_grad():
            right = [(network(z[test]).argmax(1) == y[test]).double().mean().item() for z in (turned, x)]
        found.setdefault(name, []).append([100 * share for share in right])
for name, rows in found.items():
    std, mean = torch.std_mean(torch.tensor(rows), 0)
    print(f"{name:28} turned {mean[0]:.1f} ± {std[0]:.1f}%   upright {mean[1]:.1f} ± {std[1]:.1f}%")
