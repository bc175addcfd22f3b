# %% [markdown]
# # A line in ten minutes
#
# One training run usually ends in one network. Here it ends in a *line* of networks: two sets of weights, the
# endpoints, of which every point in between is a network that works. The data are scikit-learn's digits, which need no
# download; the network is a small MLP with batch norm.

# %%
import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import subspaces as ss

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)  # [1797, 1, 8, 8]
labels = torch.tensor(digits.target)
train, held_out, test = (
    TensorDataset(images[some], labels[some]) for some in torch.randperm(len(images)).split([1000, 297, 500])
)
loader = DataLoader(train, batch_size=50, shuffle=True)
held_out_loader, test_loader = DataLoader(held_out, batch_size=500), DataLoader(test, batch_size=500)


def make_net():
    """Return a new network."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)),
    )


# %% [markdown]
# ## Train the line
#
# `Subspace` calls `make_net` once for each endpoint. In train mode each call of the family draws a fresh α between 0 and
# 1 and runs the network at (1 − α) ω₁ + α ω₂. The penalty is the squared cosine between the endpoints: it keeps them
# from becoming the same network. Everything else is the loop that you know. A plain network is trained beside it, for
# the same number of steps.


# %%
def fit(network, epochs=30):
    """Train a network or a family with SGD and a cosine schedule; return the losses."""
    optimizer = torch.optim.SGD(network.train().parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(network(x), y)
            losses.append(loss.item())
            if isinstance(network, ss.Subspace):
                loss = loss + network.penalty(beta=1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return losses


network, family = make_net(), ss.Subspace(make_net, ss.Line())
losses = {"one network": fit(network), "line": fit(family)}
network.eval()
print(family.extra_repr())

# %%
figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
for name, values in losses.items():
    per_epoch = torch.tensor(values).view(-1, len(loader)).mean(1)
    axes.semilogy(range(1, len(per_epoch) + 1), per_epoch, label=name)
axes.set(xlabel="epoch", ylabel="training loss")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Take the midpoint
#
# `family.midpoint()` is an ordinary module with ordinary weights. Its batch-norm statistics come from training at random
# points and belong to none of them, so they are made anew: `recalibrate` is one pass over training batches.


# %%
def accuracy(network):
    """Return the percentage of test images that a network has right."""
    with torch.no_grad():
        x, y = test[:]
        return 100 * (network(x).argmax(1) == y).double().mean().item()


stale = family.midpoint().eval()
midpoint = ss.recalibrate(family.midpoint(), loader).eval()
print(f"midpoint, statistics of training   {accuracy(stale):.1f} %")
print(f"midpoint, recalibrated             {accuracy(midpoint):.1f} %")
print(f"one network                        {accuracy(network):.1f} %")

# %% [markdown]
# ## Walk along the line
#
# `evaluate` measures points along the line and ensembles of two of them, with statistics made anew at each point. The
# dashed curve is single networks, the solid one the ensemble of the points α and 1 − α.

# %%
evaluation = ss.evaluate(
    family, test=test_loader, validation=held_out_loader, statistics=loader, name="line", progress=False
)
print(evaluation.table())

# %% tags=["gallery"]
figure = evaluation.plot("along", metric="nll")
figure.set_dpi(160)
figure

# %% [markdown]
# The endpoints are far apart, and the way between them is a valley all the same: between two networks that were trained
# separately it would be a ridge ([the landscape between my checkpoints](landscape.ipynb)).

# %%
distances = family.distances()
print(f"distance of the endpoints {distances.l2[0, 1]:.1f}, cos² of their angle {distances.cos2[0, 1]:.4f}")

# %% [markdown]
# ## Save it
#
# One file holds both endpoints; a point of it, saved as a state dict, loads into your plain network. The evaluation is a
# file too, of which `report` makes one page to click through ([a sample](../gallery.md#a-sample-report)).

# %%
ss.save(family, "family.safetensors")
again = ss.load("family.safetensors", make_net)
plain = make_net()
plain.load_state_dict(ss.recalibrate(again.at(0.3), loader).state_dict(), strict=True)
print(f"the point 0.3 in a plain network: {accuracy(plain.eval()):.1f} %")
saved = evaluation.save("evaluation.json")

# %% [markdown]
# ## What was seen

# %%
rows = evaluation.frame.query("data == 'test' and role == 'along' and kind == 'point'")
rows = rows[(rows.alpha >= 0) & (rows.alpha <= 1)]
alone = ss.evaluate(network, test=test_loader, progress=False)["midpoint"]  # of one network: itself
pair, middle = evaluation["pair"], evaluation["midpoint"]
Markdown(f"""
- The midpoint has **{100 * middle.accuracy:.1f} %** of the 500 test images right, one plain network
  {100 * alone.accuracy:.1f} %; their NLL is {middle.nll:.3f} and {alone.nll:.3f}. Both were trained for the same
  number of steps.
- The points of the line have from {100 * rows.accuracy.min():.1f} % to {100 * rows.accuracy.max():.1f} % right.
- Before its statistics were made anew, the midpoint had {accuracy(stale):.1f} % right.
- The points 0.1 and 0.9 together, at twice the cost of a prediction, have {100 * pair.accuracy:.1f} % right, with an
  NLL of {pair.nll:.3f}.

This is one seed on a small and clean data set, on which one image is 0.2 %. Where labels are noisy the difference is
larger: [calibration and noisy labels](calibration.ipynb).
""")
