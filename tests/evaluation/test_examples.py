"""Images that change along a subspace: which, and what a record keeps of them."""

import base64
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subspaces.evaluation.rows import Examples, choose, pictures, small_pictures


def examples(images: torch.Tensor) -> Examples:
    k = len(images)
    return Examples(
        split="test",
        alphas=[0.0, 0.5],
        size=list(images.shape[1:]),
        images=base64.b64encode(images.numpy().tobytes()).decode(),
        labels=list(range(k)),
        indices=list(range(k)),
        predicted=[[0] * k] * 2,
        confidence=[[0.5] * k] * 2,
    )


@pytest.mark.parametrize("shape", [(0, 1, 4, 5), (1, 3, 4, 5), (48, 1, 8, 8)])
def test_pictures_are_the_images_that_were_kept(shape: tuple[int, ...]) -> None:
    images = torch.randint(256, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    found = pictures(examples(images))
    assert found.dtype == torch.uint8
    assert torch.equal(found, images)


def test_small_pictures_of_any_numbers_are_stretched_and_others_are_left_out() -> None:
    images = torch.randn(5, 3, 8, 9, generator=torch.Generator().manual_seed(2))
    found = small_pictures(images)
    assert found is not None
    for image, picture in zip(images.double().numpy(), found.numpy(), strict=True):
        low, high = image.min(), image.max()
        assert np.abs(255 * (image - low) / (high - low) - picture).max() <= 0.5 + 1e-9
        assert (picture.min(), picture.max()) == (0, 255)
    whole = torch.randint(256, (2, 1, 64, 64), dtype=torch.uint8)
    assert torch.equal(small_pictures(whole), whole)  # type: ignore[arg-type]
    assert torch.equal(small_pictures(torch.ones(2, 1, 4, 4)), torch.zeros(2, 1, 4, 4).byte())  # type: ignore[arg-type]
    for other in (torch.zeros(2, 4, 8, 8), torch.zeros(2, 1, 64, 65)):
        assert small_pictures(other) is None


@given(st.integers(1, 5), st.integers(1, 30), st.integers(0, 10**6), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_the_choice_is_that_of_sorted_tuples(p: int, n: int, seed: int, limit: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    predicted = torch.randint(4, (p, n), generator=generator)
    confidence = torch.randint(1, 4, (p, n), generator=generator) / 4  # sums are exact, ties are common
    columns, sure = predicted.t().tolist(), confidence.sum(0).tolist()
    keys = [
        (-len(set(column)), -sum(a != b for a, b in itertools.pairwise(column)), -sure[index], index)
        for index, column in enumerate(columns)
    ]
    expected = [key[-1] for key in sorted(keys) if key[0] < -1][:limit]
    assert choose(predicted, confidence, limit).tolist() == expected
