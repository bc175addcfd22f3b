# %% [markdown]
# # Calibration and noisy labels
#
# Two fifths of the training labels are replaced by random ones; test labels are right. A network that is trained for
# long enough learns the wrong labels by heart. The midpoint of a simplex of networks does so less, at the same number
# of training steps. Both are compared here on scikit-learn's digits, with clean labels too, and with what is simpler,
# and better where there are clean held-out images: stopping early.

# %%
import copy

import matplotlib.pyplot as plt
import pandas as pd
import torch
from IPython.display import Markdown
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import subspaces as ss

digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)  # [1797, 1, 8, 8]
labels = torch.tensor(digits.target)


def make_net():
    """Return a new network."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)),
    )


def split(seed, noise):
    """Return training, held-out and test examples, with random labels for a share of the training images."""
    torch.manual_seed(seed)
    train, held_out, test = torch.randperm(len(images)).split([1000, 297, 500])
    given = labels[train].clone()
    wrong = torch.rand(len(train)) < noise
    given[wrong] = torch.randint(10, (int(wrong.sum()),))
    return (images[train], given), (images[held_out], labels[held_out]), (images[test], labels[test])


# %% [markdown]
# ## Train
#
# One loop for a network and for a family. `layerwise=True` draws one α for each layer, which is best for a midpoint. For
# the network the loop also keeps the weights of the epoch that is best on the held-out images: early stopping.


# %%
def fit(network, x, y, held_out=None, epochs=40):
    """Train with SGD and a cosine schedule; return a copy of the best epoch on held-out images, if there are some."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best, stopped = 0.0, None
    for _ in range(epochs):
        network.train()
        for some in torch.randperm(len(x)).split(100):
            loss = F.cross_entropy(network(x[some]), y[some])
            if isinstance(network, ss.Subspace):
                loss = loss + network.penalty(beta=1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        network.eval()
        if held_out is not None:
            with torch.no_grad():
                right = (network(held_out[0]).argmax(1) == held_out[1]).double().mean().item()
            if right > best:
                best, stopped = right, copy.deepcopy(network)
    return stopped


# %% [markdown]
# ## Measure
#
# Every network is measured on the same 500 test images. ECE is the expected calibration error, in the last columns
# after temperature scaling: the logits are divided by one number that is fitted on the held-out images. Three seeds, paired: a seed has the
# same images, the same wrong labels and the same number of steps for all.

# %%
found, evaluations = [], {}
for noise in (0.0, 0.4):
    for seed in range(3):
        train, held_out, test = split(seed, noise)
        network, family = make_net(), ss.Subspace(make_net, ss.Simplex(3), layerwise=True)
        stopped = fit(network, *train, held_out)
        fit(family, *train)
        measured = {"one network": network, "one network, stopped early": stopped, "simplex: midpoint": family}
        for name, each in measured.items():
            options = {"statistics": list(zip(train[0].split(250), train[1].split(250), strict=True))}
            options |= {"triangle": 0, "answers": ["midpoint"]} if each is family else {}
            evaluation = ss.evaluate(each, test=[test], validation=[held_out], name=name, progress=False, **options)
            evaluations[noise, seed, name] = evaluation
            row = evaluation["midpoint"]
            scaled = row.scaled["ece"]
            found.append([noise, seed, name, 100 * row.accuracy, row.nll, 100 * row.ece, 100 * scaled])

columns = ["noise", "seed", "network", "accuracy %", "NLL", "ECE %", "ECE % after scaling"]
table = pd.DataFrame(found, columns=columns)
means = table.drop(columns="seed").groupby(["noise", "network"], sort=False).agg(["mean", "std"])
print(means.round(2).to_string())

# %%
figure, panels = plt.subplots(1, 2, figsize=(6, 2.2), layout="constrained")
for axes, (noise, rows) in zip(panels, table.groupby("noise"), strict=True):
    for number, (_, each) in enumerate(rows.groupby("network", sort=False)):
        axes.plot(each["accuracy %"], [-number] * len(each), "o", alpha=0.6)
    axes.set_yticks([0, -1, -2], rows["network"].unique())
    axes.set(title=f"{100 * noise:.0f} % random labels", xlabel="test accuracy (%)", ylim=(-2.5, 0.5))
panels[1].tick_params(labelleft=False)
plt.show()

# %% [markdown]
# ## How sure, and how often right
#
# A reliability diagram has the accuracy of the predictions of each confidence. On the diagonal a network is calibrated.
# Shown is seed 0 with 40 % random labels. The midpoint has learned that labels are often wrong, and is less sure than it
# is right; the network is the other way round.

# %% tags=["gallery"]
shown = [evaluations[0.4, 0, name] for name in ("one network", "simplex: midpoint")]
figure = ss.plot("reliability", shown)
figure.set_dpi(160)
figure

# %% [markdown]
# ## What was seen


# %%
def mean(noise, network, column):
    """Return a mean over the seeds."""
    return means.loc[(noise, network), (column, "mean")]


def paired(noise, column):
    """Return the differences of midpoint and network, seed by seed, as text."""
    wide = table[table.noise == noise].pivot(index="seed", columns="network", values=column)
    return ", ".join(f"{value:+.1f}" for value in wide["simplex: midpoint"] - wide["one network"])


one, early, middle = "one network", "one network, stopped early", "simplex: midpoint"
Markdown(f"""
With **40 % random labels**, mean of three seeds:

- accuracy: {mean(0.4, one, "accuracy %"):.1f} % for one network, **{mean(0.4, middle, "accuracy %"):.1f} %** for the
  midpoint of the simplex, {mean(0.4, early, "accuracy %"):.1f} % for the network stopped early. Midpoint minus network,
  seed by seed: {paired(0.4, "accuracy %")} points.
- ECE: {mean(0.4, one, "ECE %"):.1f} %, {mean(0.4, middle, "ECE %"):.1f} % and {mean(0.4, early, "ECE %"):.1f} %; after
  temperature scaling {mean(0.4, one, "ECE % after scaling"):.1f} %, {mean(0.4, middle, "ECE % after scaling"):.1f} % and
  {mean(0.4, early, "ECE % after scaling"):.1f} %.

With **clean labels**:

- accuracy: {mean(0.0, one, "accuracy %"):.1f} % for one network, {mean(0.0, middle, "accuracy %"):.1f} % for the
  midpoint, {mean(0.0, early, "accuracy %"):.1f} % for the network stopped early; midpoint minus network, seed by seed:
  {paired(0.0, "accuracy %")} points.
- NLL: {mean(0.0, one, "NLL"):.3f}, {mean(0.0, middle, "NLL"):.3f} and {mean(0.0, early, "NLL"):.3f}.

Stopping early needs held-out images with clean labels; the midpoint needs none. Three seeds of 500 images are a
demonstration, not a benchmark.
""")
