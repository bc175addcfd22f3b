# %% [markdown]
# # The landscape between my checkpoints
#
# Three networks of one architecture, trained separately: what lies between them? This notebook looks at the straight line
# between two of them and at the plane through all three, and says what batch norm has to do with it. With checkpoints of
# your own, load three modules in place of the three that are trained here.

# %%
import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import subspaces as ss

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)  # [1797, 1, 8, 8]
labels = torch.tensor(digits.target)
train, test = torch.randperm(len(images)).split([1000, 797])
batches = list(zip(images[train].split(250), labels[train].split(250), strict=True))


def make_net():
    """Return a new network."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)),
    )


def fit(network, epochs=20):
    """Train a network or a family with SGD and a cosine schedule."""
    optimizer = torch.optim.SGD(network.train().parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for some in train[torch.randperm(len(train))].split(50):
            loss = F.cross_entropy(network(images[some]), labels[some])
            if isinstance(network, ss.Subspace):
                loss = loss + network.penalty(beta=1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return network.eval()


def error(network):
    """Return the percentage of test images that a network has wrong."""
    with torch.no_grad():
        return 100 * (network(images[test]).argmax(1) != labels[test]).double().mean().item()


networks = [fit(make_net()) for _ in range(3)]
print("errors of the three networks:", ", ".join(f"{error(each):.1f} %" for each in networks))

# %% [markdown]
# ## The straight line between two networks
#
# `from_modules` makes a family of networks that exist already. Its points are ordinary networks: `between.at(alpha)`.
# The running statistics of batch norm are not weights, and the average of two networks' statistics is not that of their
# average network. So the same line is measured twice: with state dicts averaged entry by entry, statistics too, and with
# `recalibrate`, which makes the statistics of each point anew from training images. For comparison a line is trained as
# one, with as many steps as one of the networks.


# %%
def averaged(alpha):
    """Return the average of the first two networks' state dicts as a network."""
    first, second = (each.state_dict() for each in networks[:2])
    network = make_net()
    network.load_state_dict({name: (1 - alpha) * value + alpha * second[name] for name, value in first.items()})
    return network.eval()


def recalibrated(family, alpha):
    """Return a point of a family with statistics of its own."""
    return ss.recalibrate(family.at(alpha), batches).eval()


between = ss.Subspace.from_modules(networks[:2], ss.Line())
together = fit(ss.Subspace(make_net, ss.Line()))
alphas = [step / 10 for step in range(11)]
errors = {
    "two networks, averaged statistics": [error(averaged(alpha)) for alpha in alphas],
    "two networks, recalibrated": [error(recalibrated(between, alpha)) for alpha in alphas],
    "a line trained as one, recalibrated": [error(recalibrated(together, alpha)) for alpha in alphas],
}
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for (name, values), line in zip(errors.items(), (":", "--", "-"), strict=True):
    axes.plot(alphas, values, line, label=name)
axes.set(xlabel="α", ylabel="test error (%)")
axes.legend(frameon=False)
plt.show()


# %% [markdown]
# The *barrier* is the highest error on the way above the straight line between the errors of the two ends.


# %%
def barrier(values):
    """Return how far an error rises above the straight line between its ends."""
    first, *_, last = values
    return max(each - (1 - alpha) * first - alpha * last for alpha, each in zip(alphas, values, strict=True))


for name, values in errors.items():
    print(f"{name:40} barrier {barrier(values):5.1f} points, at the midpoint {values[5]:5.1f} % wrong")
print(
    f"distance of the two networks {between.distances().l2[0, 1]:.1f}, of the ends {together.distances().l2[0, 1]:.1f}"
)

# %% [markdown]
# ## The plane through all three
#
# Three networks span a triangle, a simplex, and a plane beyond it. `evaluate(…, plane=True)` measures test error and loss
# on a grid of that plane, with batch-norm statistics made anew for every cell. Distances in the picture are distances of
# weights.

# %%
triangle = ss.Subspace.from_modules(networks, ss.Simplex(3))
evaluation = ss.evaluate(
    triangle,
    test=[(images[test], labels[test])],
    statistics=batches,
    name="three networks",
    answers=["midpoint", "vertices"],
    triangle=0,
    plane=True,
    cells=15,
    progress=False,
)

# %% tags=["gallery"]
figure = evaluation.plot("plane", metric="accuracy")
figure.set_dpi(130)
figure

# %% [markdown]
# ## What was seen

# %%
first, second, third = errors.values()
middle, vertices = evaluation["midpoint"], evaluation["vertices"]
Markdown(f"""
- Between two networks that were trained separately the test error rises by **{barrier(first):.1f} points** if their
  batch-norm statistics are averaged, and by **{barrier(second):.1f} points** if they are made anew. The weights are the
  same: {barrier(first) - barrier(second):.1f} points come from the statistics alone.
- On the line that was trained as one the error rises by {barrier(third):.1f} points; its midpoint has {third[5]:.1f} %
  wrong, that of the two networks {second[5]:.1f} %, recalibrated.
- The mean of all three networks has {100 * (1 - middle.accuracy):.1f} % wrong, recalibrated; the three networks as an
  ensemble, which averages probabilities, {100 * (1 - vertices.accuracy):.1f} %.

One architecture, one data set and one seed: other networks have other barriers. Between two networks of which one
was fine-tuned from the other, [a point can be chosen](export.ipynb).
""")
