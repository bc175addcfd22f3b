# %% [markdown]
# # Choose a point, export and serve
#
# A network is trained on upright digits and a copy of it fine-tuned on digits that are turned by 40 degrees. The straight
# line between the two is a family. The new domain lies in between: digits that are turned by any angle up to 20 degrees.
# This notebook chooses a point with few labelled examples, exports that network as ONNX, runs it without PyTorch, and
# from the command line.

# %%
import copy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
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
train, labelled, choose, test = torch.randperm(len(images)).split([1000, 100, 100, 597])


def turned(x, degrees):
    """Return images turned, each by its own angle."""
    angle = torch.deg2rad(degrees)
    zero = torch.zeros_like(angle)
    rows = torch.stack([angle.cos(), angle.sin(), zero, -angle.sin(), angle.cos(), zero], 1).view(-1, 2, 3)
    return F.grid_sample(x, F.affine_grid(rows, list(x.shape), align_corners=False), align_corners=False)


by_40 = turned(images, torch.full((len(images),), 40.0))
domain = turned(images, 20 * torch.rand(len(images)))  # any angle from 0 to 20 degrees

figure, axes = plt.subplots(2, 8, figsize=(6, 1.7), layout="constrained")
for column, index in enumerate(test[:8]):
    for row, shown in enumerate((images, domain)):
        axes[row, column].imshow(shown[index, 0], cmap="gray_r")
        axes[row, column].set_axis_off()
plt.show()


# %%
def fit(network, x, y, steps):
    """Train a network with SGD, on batches of 50."""
    optimizer = torch.optim.SGD(network.train().parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        some = torch.randint(len(x), (50,))
        optimizer.zero_grad()
        F.cross_entropy(network(x[some]), y[some]).backward()
        optimizer.step()
    return network.eval()


upright = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
fit(upright, images[train], labels[train], 600)
tuned = fit(copy.deepcopy(upright), by_40[labelled], labels[labelled], 200)
family = ss.Subspace.from_modules([upright, tuned], ss.Line()).eval()

# %% [markdown]
# ## Choose a point for the new domain
#
# `select` measures 21 points on a hundred labelled examples of the new domain, none of which was trained on. It leaves
# the midpoint only where a gain is certain, and says what gain to expect on new examples.

# %%
selection = family.select([(domain[choose], labels[choose])], by="nll")
print(selection)

# %% [markdown]
# On the test images, which took no part in the choice, the whole line for comparison:


# %%
def accuracy(network, x):
    """Return the percentage of test images that a network has right."""
    with torch.no_grad():
        return 100 * (network(x[test]).argmax(1) == labels[test]).double().mean().item()


alphas = [step / 20 for step in range(21)]
along = {
    name: [accuracy(family.at(alpha), x) for alpha in alphas]
    for name, x in {"the new domain": domain, "upright": images, "turned by 40°": by_40}.items()
}

# %% tags=["gallery"]
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for (name, values), line in zip(along.items(), ("-", "--", ":"), strict=True):
    axes.plot(alphas, values, line, label=name)
axes.axvline(selection.alpha, color="black", linewidth=0.8, label="selected")
axes.set(xlabel="α: from upright (0) to fine-tuned (1)", ylabel="test accuracy (%)")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Export it
#
# One file holds the network at the chosen point with a softmax behind it. It is run and compared with the network before
# it is written; a card in Markdown lies beside it.

# %%
names = [str(digit) for digit in range(10)]
file = ss.export(family, "digits.onnx", point=selection.alpha, example=domain[:16], classes=names, progress=False)
print(file, f"{Path(file).stat().st_size / 1000:.0f} kB")
print("\n".join(Path("digits.onnx.md").read_text().splitlines()[:12]))

# %% [markdown]
# ## Serve it
#
# onnxruntime needs neither this package nor PyTorch:

# %%
session = onnxruntime.InferenceSession("digits.onnx", providers=["CPUExecutionProvider"])
x = domain[test].numpy()
(probabilities,) = session.run(["probabilities"], {"images": x})
with torch.no_grad():
    expected = family.at(selection.alpha)(domain[test]).softmax(1).numpy()
served = 100 * (probabilities.argmax(1) == labels[test].numpy()).mean()
largest = np.abs(probabilities - expected).max()
print(f"{len(x)} images, {served:.1f} % right; the same as the network to 1e-5: {largest < 1e-5}")

# %% [markdown]
# From the command line, for arrays and image files:

# %%
np.save("digits.npy", x[:5])
print("right would be", ", ".join(map(str, labels[test[:5]].tolist())))

# %% [sh]
# subspaces predict digits.onnx digits.npy --top 2

# %% [markdown]
# ## What was seen

# %%
ends, chosen = (along["the new domain"][place] for place in (0, -1)), family.at(selection.alpha)
before, after = ends
halfway = along["the new domain"][10]
gain = "none computed" if selection.gain is None else f"{selection.gain:.3f} ± {selection.error:.3f}"
Markdown(f"""
- Chosen was α = {selection.alpha:.2f}, from {selection.examples} labelled examples. The gain in NLL over the midpoint
  to expect on new examples is {gain}.
- On the {len(test)} test images of the new domain the network before fine-tuning has {before:.1f} % right, the one after
  it {after:.1f} %, half-way {halfway:.1f} %, and the chosen point **{accuracy(chosen, domain):.1f} %**.
- On upright digits the chosen point has {accuracy(chosen, images):.1f} % right, the fine-tuned network
  {along["upright"][-1]:.1f} %.
- The exported file has {served:.1f} % of the same images right, in onnxruntime.
""")
