"""A loader that is read once more leaves no trace, whoever reads it at the time."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, RandomSampler, WeightedRandomSampler

from subspaces.experiments.data.dataset import Split
from subspaces.experiments.data.resident import ResidentLoader
from subspaces.integrations.loaders import read_apart


class Noisy(Dataset[Any]):
    """Numbers with noise from generators of its own."""

    def __init__(self) -> None:
        self.torch = torch.Generator().manual_seed(1)
        self.numpy = np.random.default_rng(1)
        self.old = np.random.RandomState(1)
        self.python = random.Random(1)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        noise = self.numpy.random() + self.old.rand() + self.python.random()
        return index + torch.rand((), generator=self.torch).double() + noise


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def resident() -> ResidentLoader:
    split = Split(torch.arange(8 * 16, dtype=torch.uint8).view(8, 1, 4, 4), torch.arange(8))
    return ResidentLoader(split, batch=2, mean=[0.0], std=[1.0], pad=1, flip=True)


LOADERS = {
    "shuffled": lambda: DataLoader(Noisy(), 2, shuffle=True, generator=generator()),
    "sampler": lambda: DataLoader(Noisy(), 2, sampler=WeightedRandomSampler([1.0] * 8, 8, generator=generator())),
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
    for _ in range(2):
        for index, batch in enumerate(loader):
            found.append(batch if isinstance(batch, torch.Tensor) else batch[0])
            if index == 1 and interrupted:
                with read_apart(loader) as again:
                    assert len(list(again)) == len(loader)
                    assert len(list(again)) == len(loader)
    return torch.stack(found)


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_the_batches_are_the_same(make: Any) -> None:
    assert torch.equal(numbers(make(), interrupted=True), numbers(make(), interrupted=False))


def test_an_iterator_is_refused() -> None:
    with (
        pytest.raises(TypeError, match=r"which can be read only once: pass a loader.*loader=DataLoader"),
        read_apart(iter([1, 2])),
    ):
        pass


def test_what_is_no_loader_of_torch_is_read_as_it_is() -> None:
    with read_apart([1, 2]) as again:
        assert list(again) == [1, 2]
