"""The function that reads a family from a file."""

import os

from torch import nn

from subspaces.core import storage
from subspaces.core.family import Subspace
from subspaces.core.initial import Factory, GetGroups
from subspaces.core.shapes import Shape


def load(
    path: str | os.PathLike[str],
    network: nn.Module | Factory,
    shape: Shape | None = None,
    *,
    groups: GetGroups | None = None,
    verify: bool = True,
) -> Subspace:
    """Read a family back.

    Args:
        path: a file that `save` has written.
        network: a module of the same architecture, which is copied, or its factory; the family is on its device. A
            file without frozen parameters needs those of the training in it.
        shape: needed only for a shape of your own.
        groups: the function that made its optimiser groups, if the family had one.
        verify: compare the tensors with the file's checksum; False is quicker, for a file that you trust.

    Example:
        >>> ss.save(family, "family.safetensors")
        >>> family = ss.load("family.safetensors", make_net)
    """
    return storage.load_as(Subspace, path, network, shape, groups=groups, verify=verify)
