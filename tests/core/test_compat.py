"""Private names of torch: all are there in this version, and without one of them the rest works."""

import subprocess
import sys

from torch import nn

from subspaces.core import _compat


def test_this_version_has_all_names():
    assert _compat.private("_C._functorch.is_functorch_wrapped_tensor") is _compat.is_transformed
    assert _compat.private("_C._functorch.is_batchedtensor") is _compat.is_batched
    assert _compat.private("_C.of._nothing", 3) == 3
    assert _compat.watch_checkpoints(lambda function: function, lambda: None)
    assert _compat.SpectralNorm
    assert hasattr(nn.GRU(2, 2), "_flat_weight_refs")


def test_importing_changes_nothing_of_torch():
    code = """
import torch.utils.checkpoint as c
before = {name: id(value) for name, value in vars(c).items()}, id(c.CheckpointFunction.apply.__func__)
import subspaces
assert before == ({name: id(value) for name, value in vars(c).items()}, id(c.CheckpointFunction.apply.__func__))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


WITHOUT = """
import torch
gone = (
    (torch._C._functorch, "is_functorch_wrapped_tensor"), (torch._C._functorch, "is_batchedtensor"),
    (torch._C, "_current_graph_task_id"), (torch.nn.utils.parametrizations, "_SpectralNorm"),
)
kept = [getattr(module, name) for module, name in gone]
for module, name in gone:
    delattr(module, name)
import subspaces as ss
for (module, name), value in zip(gone, kept):  # torch itself uses them
    setattr(module, name, value)
make = lambda: torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 2))
family = ss.Subspace(make, ss.Simplex(3))
loss = family(torch.randn(4, 3)).sum() + family.penalty()
loss.backward()
"""


def test_without_private_names_the_rest_works():
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT], check=True)
