"""Your own network in your own loop: train a line, walk along it, choose a point, plot and report."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

import subspaces as ss


def make_net() -> nn.Module:  # noqa: D103
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


torch.manual_seed(0)
digits = load_digits()
images = TensorDataset(torch.tensor(digits.images[:, None] / 16).float(), torch.tensor(digits.target))
train, held_out, test = random_split(images, [1000, 297, 500])
loader = DataLoader(train, batch_size=50, shuffle=True, drop_last=True)
held_out, test = DataLoader(held_out, batch_size=100), DataLoader(test, batch_size=100)

family = ss.Subspace(make_net, ss.Line())
optimizer = torch.optim.SGD(family.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for _ in range(20):
    for x, y in loader:
        loss = F.cross_entropy(family(x), y) + family.penalty(beta=1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

evaluation = ss.evaluate(family, test=test, validation=held_out, statistics=loader, name="my line")
print(evaluation.table())
print(f"one network, the midpoint: {evaluation['midpoint'].accuracy:.1%}; two: {evaluation['pair'].accuracy:.1%}")
alpha = evaluation.best(by="nll", on="validation")
network = ss.recalibrate(family.at(alpha), loader).eval()
evaluation.plot("along", "along.png")
evaluation.report("report.html")
evaluation.save("evaluation.json")
