"""The plane through three networks that were trained separately, and the straight line between two of them."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

import subspaces as ss

torch.manual_seed(0)
digits = load_digits()
images = TensorDataset(torch.tensor(digits.images[:, None] / 16).float(), torch.tensor(digits.target))
train, test = random_split(images, [1297, 500])
loader = DataLoader(train, batch_size=50, shuffle=True, drop_last=True)
test_loader = [next(iter(DataLoader(test, batch_size=500)))]


def trained(seed: int) -> nn.Module:  # noqa: D103
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(20):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net.eval()


first, second, third = (trained(seed) for seed in range(3))
batches = list(loader)  # read once, for all cells
line = ss.Subspace.from_modules([first, second], ss.Line())
along = ss.evaluate(line, test=test_loader, statistics=batches, progress=False)
walk = along.frame[(along.frame["kind"] == "point") & (along.frame["data"] == "test")].set_index("alpha")
for alpha in (0.0, 0.5, 1.0):
    print(f"alpha = {alpha}: accuracy {walk.loc[alpha, 'accuracy']:.1%}, NLL {walk.loc[alpha, 'nll']:.3f}")
x, y = test_loader[0]
stale = line.at(0.5).eval()  # with the batch-norm statistics of the first network
print(f"alpha = 0.5, not recalibrated: accuracy {(stale(x).argmax(1) == y).float().mean():.1%}")

triangle = ss.Subspace.from_modules([first, second, third], ss.Simplex(3))
plane = ss.evaluate(triangle, test=test_loader, statistics=batches, plane=True, cells=15, plane_statistics_batches=10)
plane.plot("plane", "plane.png", metric="accuracy")
