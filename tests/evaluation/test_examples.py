"""Images that change along a subspace: which, and as a file."""

import dataclasses
import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subspaces.evaluation.examples import FILE, Examples, choose
from subspaces.training import seals
from subspaces.training.runs import RunError


def examples(k: int = 3, alphas: list | None = None) -> Examples:
    generator = torch.Generator().manual_seed(k)
    alphas = [0.0, 0.5, 1.0] if alphas is None else alphas
    return Examples(
        images=torch.randint(256, (k, 3, 4, 5), generator=generator, dtype=torch.uint8),
        labels=torch.arange(k),
        indices=torch.arange(k) * 7,
        predicted=torch.randint(10, (len(alphas), k), generator=generator),
        confidence=torch.rand(len(alphas), k, generator=generator),
        alphas=alphas,
        split="test",
    )


@pytest.mark.parametrize("k", [0, 1, 48])
@pytest.mark.parametrize("alphas", [[0.0], [0.0, 0.3, 1.0], [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]])
def test_what_is_written_is_read(tmp_path: Path, k: int, alphas: list) -> None:
    written = examples(k, alphas)
    written.write(tmp_path)
    found = Examples.read(tmp_path)
    assert found is not None
    for field in dataclasses.fields(Examples):
        before, after = getattr(written, field.name), getattr(found, field.name)
        if isinstance(before, torch.Tensor):
            assert after.dtype == before.dtype
            assert torch.equal(after, before)
        else:
            assert after == before
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_parts_of_larger_tensors_can_be_written(tmp_path: Path) -> None:
    whole = examples(6)
    half = dataclasses.replace(
        whole,
        images=whole.images[::2],
        labels=whole.labels[::2],
        indices=whole.indices[::2],
        predicted=whole.predicted[:, ::2],
        confidence=whole.confidence[:, ::2],
    )
    half.write(tmp_path)
    found = Examples.read(tmp_path)
    assert found is not None
    assert torch.equal(found.predicted, whole.predicted[:, ::2])
    assert torch.equal(found.images, whole.images[::2])


def test_a_folder_without_the_file_has_none(tmp_path: Path) -> None:
    assert Examples.read(tmp_path) is None


def damage(case: str, folder: Path) -> None:
    one = examples()
    names = ("images", "labels", "indices", "predicted", "confidence")
    tensors = {name: getattr(one, name) for name in names}
    header = {"alphas": "[0.0, 0.5, 1.0]", "split": "test", "family": ""}
    if case == "a tensor too few":
        del tensors["labels"]
    elif case == "no header":
        header = {}
    elif case == "an alpha too few":
        header["alphas"] = "[0.0, 0.5]"
    elif case == "half of the alphas":
        header["alphas"] = "[0.0, 0."
    elif case == "alphas of another kind":
        header["alphas"] = "3"
    elif case == "another dtype":
        tensors["images"] = tensors["images"].float()
    elif case == "an image too few":
        tensors["images"] = tensors["images"][1:].clone()
    elif case == "a label without an axis":
        tensors["labels"] = torch.tensor(3)
    path = folder / FILE
    seals.write_tensors(path, tensors, header, "0123456789")
    content = bytearray(path.read_bytes())
    if case == "a bit":
        content[-1] ^= 1
    path.write_bytes({"cut short": content[:-1], "empty": b""}.get(case, content))


@pytest.mark.parametrize(
    "case",
    [
        "cut short",
        "empty",
        "a bit",
        "a tensor too few",
        "no header",
        "an alpha too few",
        "half of the alphas",
        "alphas of another kind",
        "another dtype",
        "an image too few",
        "a label without an axis",
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, case: str) -> None:
    damage(case, tmp_path)
    with pytest.raises(RunError, match=rf"{FILE} is damaged \(.+\): remove it and evaluate anew"):
        Examples.read(tmp_path)


def test_tensors_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match=r"predicted is torch.int64 \(2, 3\): expected torch.int64 \(3, 3\)"):
        dataclasses.replace(examples(), predicted=examples().predicted[:2])
    with pytest.raises(ValueError, match=r"confidence is torch.float64"):
        dataclasses.replace(examples(), confidence=examples().confidence.double())


def test_most_classes_first_then_most_changes_then_confidence_then_the_index() -> None:
    predicted = torch.tensor(
        [
            [0, 0, 0, 0, 5, 0, 0],
            [0, 1, 1, 1, 5, 1, 1],
            [0, 0, 2, 1, 5, 1, 1],
            [0, 1, 2, 1, 5, 1, 1],
        ]
    )
    confidence = torch.full(predicted.shape, 0.5)
    assert choose(predicted, confidence).tolist() == [2, 1, 3, 5, 6]
    confidence[:, 6] = 0.9
    assert choose(predicted, confidence).tolist() == [2, 1, 6, 3, 5]
    assert choose(predicted, confidence, limit=2).tolist() == [2, 1]


def test_one_point_or_no_change_chooses_nothing() -> None:
    assert choose(torch.tensor([[1, 2, 3]]), torch.ones(1, 3)).tolist() == []
    assert choose(torch.ones(4, 3, dtype=torch.int64), torch.ones(4, 3)).tolist() == []


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"predicted has shape \(2, 3\) and confidence \(3,\): expected \[p, n\]"):
        choose(torch.ones(2, 3, dtype=torch.int64), torch.ones(3))


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
