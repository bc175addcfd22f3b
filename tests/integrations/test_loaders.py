"""A loader that is read once more leaves no trace in the loop that reads it, nor in global random numbers."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, RandomSampler

import subspaces as ss
from subspaces.experiments.data import Split
from subspaces.experiments.data.resident import ResidentLoader
from subspaces.integrations.loaders import read_apart

CPU = torch.device("cpu")


class Noisy(Dataset[Any]):
    """Numbers with noise from generators of its own, and from the global ones."""

    def __init__(self) -> None:
        self.torch = torch.Generator().manual_seed(1)
        self.numpy = np.random.default_rng(1)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        noise = self.numpy.random() + np.random.rand() + random.random()
        return index + torch.rand((), generator=self.torch).double() + torch.rand(()) + noise


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def resident() -> ResidentLoader:
    split = Split(torch.arange(8 * 16, dtype=torch.uint8).view(8, 1, 4, 4), torch.arange(8))
    return ResidentLoader(split, batch=2, mean=[0.0], std=[1.0], pad=1, flip=True)


LOADERS = {
    "shuffled": lambda: DataLoader(Noisy(), 2, shuffle=True, generator=generator()),
    "batches": lambda: DataLoader(
        Noisy(), batch_sampler=BatchSampler(RandomSampler(range(8), generator=generator()), 2, False)
    ),
    "joined": lambda: DataLoader(ConcatDataset([Noisy(), Noisy()]), 2),
    "workers": lambda: DataLoader(
        Noisy(), 2, shuffle=True, generator=generator(), num_workers=1, persistent_workers=True
    ),
    "resident": resident,
}


def numbers(loader: Any, interrupted: bool) -> torch.Tensor:
    """Return two epochs of a loader, read once more in the middle of the first."""
    found = []
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    for _ in range(2):
        for index, batch in enumerate(loader):
            found.append(batch if isinstance(batch, torch.Tensor) else batch[0])
            if index == 1 and interrupted:
                with read_apart(loader, CPU) as again:
                    assert len(list(again)) == len(loader)
    return torch.stack(found)


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_the_batches_are_the_same(make: Any) -> None:
    assert torch.equal(numbers(make(), interrupted=True), numbers(make(), interrupted=False))


def test_a_list_is_read_as_it_is_and_an_iterator_is_refused() -> None:
    with read_apart([1, 2], CPU) as again:
        assert list(again) == [1, 2]
    refused = pytest.raises(ss.UserError, match=r"which can be read only once: pass a loader.*loader=DataLoader")
    with refused, read_apart(iter([1, 2]), CPU):
        pass
