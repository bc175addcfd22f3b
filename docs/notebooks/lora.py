# %% [markdown]
# # Fine-tuning with LoRA as a simplex
#
# LoRA adds small trainable matrices to a frozen network. A family is made of what is trainable, so that a simplex of
# three adapters costs three times the adapter's weights and nothing of the network's. The model is a vision transformer
# that is built from a config and trained here for a few seconds on scikit-learn's digits; then it is fine-tuned to digits
# that are turned by 40 degrees, with 100 labels. Nothing is downloaded.
#
# Do not expect a gain: on this task one adapter is more accurate, as the numbers at the end show. What the notebook shows
# is how it is done, and that the midpoint of a simplex of adapters is an ordinary adapter, which merges into the model.

# %%
import copy

import matplotlib.pyplot as plt
import pandas as pd
import peft
import torch
from IPython.display import Markdown
from sklearn.datasets import load_digits
from torch.nn import functional as F
from transformers import ViTConfig, ViTForImageClassification

import subspaces as ss

digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)  # [1797, 1, 8, 8]
labels = torch.tensor(digits.target)
angle = torch.tensor([[[0.77, 0.64, 0], [-0.64, 0.77, 0]]]).expand(len(images), 2, 3)  # 40 degrees
turned = F.grid_sample(images, F.affine_grid(angle, list(images.shape), align_corners=False), align_corners=False)


def fit(network, x, y, steps, rate):
    """Train what is trainable in a network or a family with AdamW."""
    network.train()
    optimizer = torch.optim.AdamW([each for each in network.parameters() if each.requires_grad], lr=rate)
    for _ in range(steps):
        some = torch.randint(len(x), (50,))
        loss = F.cross_entropy(network(pixel_values=x[some]).logits, y[some])
        if isinstance(network, ss.Subspace):
            loss = loss + network.penalty(beta=1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def measured(network, x, y):
    """Return accuracy in percent, and the NLL."""
    with torch.no_grad():
        logits = network(pixel_values=x).logits
    return 100 * (logits.argmax(1) == y).double().mean().item(), F.cross_entropy(logits, y).item()


# %% [markdown]
# ## The model before
#
# Sixteen patches of 2 × 2 pixels, two layers, 32 channels.

# %%
torch.manual_seed(0)
train, rest = torch.randperm(len(images)).split([1000, 797])
config = ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    num_labels=10,
)
base = fit(ViTForImageClassification(config), images[train], labels[train], 300, 3e-3)
for name, x in {"upright": images, "turned": turned}.items():
    print(f"{name:8} {measured(base, x[rest], labels[rest])[0]:.1f} %")

# %% [markdown]
# ## Adapters of rank 4, one and a simplex of three
#
# `ss.Subspace(model, ss.Simplex(3))` starts three adapters at the one that peft has made, and sets them a little apart.
# The base is frozen, and so it is shared by all points. Each seed has 100 labelled images of its own, and 697 others to
# test on.


# %%
def with_adapter():
    """Return the model with a LoRA adapter on attention and MLP, and a head that is trained as a whole."""
    lora = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "fc1", "fc2"], modules_to_save=["classifier"]
    )
    return peft.get_peft_model(copy.deepcopy(base), lora)


rows = []
for seed in range(3):
    torch.manual_seed(seed)
    labelled, test = rest[torch.randperm(len(rest))].split([100, 697])
    plain, family = with_adapter(), ss.Subspace(with_adapter(), ss.Simplex(3), seed=seed)
    for network in (plain, family):
        fit(network, turned[labelled], labels[labelled], 100, 3e-3)
    networks = {"before": base, "one adapter": plain, "simplex: midpoint": family.midpoint().eval()}
    for index in range(3):
        corner = [float(index == each) for each in range(3)]
        networks[f"simplex: vertex {index + 1}"] = family.at(corner).eval()
    for name, network in networks.items():
        accuracy, nll = measured(network, turned[test], labels[test])
        rows.append([seed, name, accuracy, nll, measured(network, images[test], labels[test])[0]])

weights = sum(each.numel() for each in plain.parameters() if each.requires_grad)
frozen = sum(each.numel() for each in plain.parameters() if not each.requires_grad)
print(f"{frozen:,} frozen weights; {weights:,} trained ones in one adapter, {3 * weights:,} in the simplex")

# %%
table = pd.DataFrame(rows, columns=["seed", "network", "turned: accuracy %", "turned: NLL", "upright: accuracy %"])
means = table.drop(columns="seed").groupby("network", sort=False).agg(["mean", "std"])
print(means.round(2).to_string())

# %% tags=["gallery"]
figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
shown = means["turned: accuracy %"].drop("before").iloc[::-1]
axes.errorbar(shown["mean"], range(len(shown)), xerr=shown["std"], fmt="o", capsize=3)
axes.set_yticks(range(len(shown)), list(shown.index))
axes.set(xlabel="accuracy on turned digits (%), mean and standard deviation of three seeds")
axes.grid(axis="x", alpha=0.4)
plt.show()

# %% [markdown]
# ## The midpoint is an ordinary adapter
#
# It merges into the model, after which neither peft nor this package is needed; `save_pretrained` would write it as an
# adapter of peft's.

# %%
midpoint = family.midpoint().eval()
with torch.no_grad():
    expected = midpoint(pixel_values=turned[test]).logits
    merged = midpoint.merge_and_unload()
    same = torch.allclose(merged(pixel_values=turned[test]).logits, expected, atol=1e-4)
print(f"{type(merged).__name__}, the same logits as the midpoint: {same}")

# %% [markdown]
# ## What was seen

# %%
wide = table.pivot(index="seed", columns="network", values="turned: accuracy %")
differences = ", ".join(f"{each:+.1f}" for each in wide["simplex: midpoint"] - wide["one adapter"])
on = means["turned: accuracy %"]["mean"]
vertices = [on[f"simplex: vertex {index}"] for index in (1, 2, 3)]
Markdown(f"""
- On turned digits the model has {on["before"]:.1f} % right before fine-tuning, {on["one adapter"]:.1f} % with one adapter
  and **{on["simplex: midpoint"]:.1f} %** at the midpoint of the simplex: means of three seeds. Midpoint minus one
  adapter, seed by seed: {differences} points.
- The vertices of the simplex have {min(vertices):.1f} to {max(vertices):.1f} %.
- Their NLL is {means.loc["one adapter", ("turned: NLL", "mean")]:.3f} with one adapter and
  {means.loc["simplex: midpoint", ("turned: NLL", "mean")]:.3f} at the midpoint.
- On upright digits, which fine-tuning forgets, one adapter has
  {means.loc["one adapter", ("upright: accuracy %", "mean")]:.1f} % right and the midpoint
  {means.loc["simplex: midpoint", ("upright: accuracy %", "mean")]:.1f} %.

With three seeds, a difference that changes its sign from seed to seed, or is within their spread, shows nothing. What a
family of adapters is for is choosing: [a point for a new domain](export.ipynb), or the coefficients of several trained
adapters, with `subspaces.integrations.peft.family_of_adapters`.
""")
