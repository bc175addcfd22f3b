"""Corruptions: the same in every batch and on every device, and worse with severity."""

from pathlib import Path

import pytest
import torch
from made import natural
from torch import Tensor

from subspaces.evaluation.corruptions import CORRUPTIONS, GROUPS, SEVERITIES, corrupt
from subspaces.evaluation.corruptions.catalogue import PARAMETERS

PUBLISHED = [
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    *("speckle_noise", "gaussian_blur", "spatter", "saturate"),
]
CERTAIN = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
CERTAIN |= {"gaussian_blur", "saturate"}
"""Corruptions without random numbers."""
every = pytest.mark.parametrize("name", PUBLISHED)


def damage(images: Tensor, name: str, severity: int) -> float:
    return (corrupt(images, name, severity).float() - images).abs().mean().item()


def test_the_catalogue_has_the_published_order_groups_and_parameters() -> None:
    assert list(CORRUPTIONS) == list(PARAMETERS) == PUBLISHED
    assert [sum(each.group == group for each in CORRUPTIONS.values()) for group in GROUPS] == [3, 4, 3, 5, 4]
    for corruption in CORRUPTIONS.values():
        assert {side: len(five) for side, five in corruption.parameters.items()} == {32: 5, 64: 5, 224: 5}
        assert corruption.label.lower().replace(" ", "_") == corruption.name
    assert CORRUPTIONS["gaussian_noise"].parameter(5, 32, 32) == 0.10
    sides = {8: 32, 28: 32, 48: 32, 96: 64, 128: 64, 160: 224, 299: 224}
    assert {side: CORRUPTIONS["fog"].parameter(3, side, side) for side in sides} == {
        side: PARAMETERS["fog"][nearest][2] for side, nearest in sides.items()
    }


@every
@pytest.mark.parametrize(("side", "channels"), [(8, 1), (8, 3), (28, 1), (28, 3), (32, 1), (32, 3), (64, 3), (224, 3)])
def test_batches_of_every_size_give_the_same_images(name: str, side: int, channels: int) -> None:
    images = natural(2 if side > 64 else 4, side, channels)
    whole = corrupt(images, name, 3, seed=7, first=4)
    assert (whole.dtype, whole.shape) == (torch.uint8, images.shape)
    assert torch.equal(whole[1:], corrupt(images[1:], name, 3, seed=7, first=5))
    other = corrupt(images[:1], name, 3, seed=8, first=4)
    assert torch.equal(other, whole[:1]) == (name in CERTAIN)


@every
def test_each_image_has_its_own_random_numbers(name: str) -> None:
    images = natural(1, 32).expand(7, -1, -1, -1)
    whole = corrupt(images, name, 2)
    assert torch.equal(whole, corrupt(images, name, 2, seed=0))
    assert torch.equal(whole[1:], whole[:-1]) == (name in CERTAIN)


def test_chunks_inside_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    images = natural(7, 16)
    whole = [corrupt(images, name, 4) for name in PUBLISHED]
    monkeypatch.setattr("subspaces.evaluation.corruptions.catalogue.CHUNK", {"cpu": 3 * 16 * 16})
    assert all(torch.equal(corrupt(images, name, 4), each) for name, each in zip(PUBLISHED, whole, strict=True))


RISING = set(PUBLISHED) - {"glass_blur", "motion_blur", "frost", "elastic_transform", "pixelate", "spatter", "saturate"}


@pytest.mark.parametrize("name", sorted(RISING))
def test_a_higher_severity_does_more_damage(name: str) -> None:
    found = [damage(natural(32, 32), name, severity) for severity in SEVERITIES]
    assert found == sorted(set(found))


def test_grey_images_are_like_three_equal_channels() -> None:
    grey = natural(2, 32, 1)
    for name in ("brightness", "contrast", "fog", "defocus_blur", "pixelate", "motion_blur", "zoom_blur", "glass_blur"):
        coloured = corrupt(grey.expand(-1, 3, -1, -1), name, 5)
        assert torch.equal(coloured[:, :1], coloured[:, 1:2])
        assert torch.equal(corrupt(grey, name, 5), coloured[:, :1])
    for name in ("snow", "jpeg_compression"):
        coloured = corrupt(grey.expand(-1, 3, -1, -1), name, 5).float().mean(1, keepdim=True)
        assert (corrupt(grey, name, 5) - coloured).abs().max() <= 1


def test_images_that_lie_otherwise_in_memory_are_the_same_images() -> None:
    images = natural(3, 16)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(corrupt(last, "gaussian_noise", 1), corrupt(images, "gaussian_noise", 1))
    assert corrupt(images[:0], "fog", 1).shape == (0, 3, 16, 16)
    before = images.clone()
    for name in PUBLISHED:
        corrupt(images, name, 5)
    assert torch.equal(images, before)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (3, 9), (12, 20), (33, 16)])
def test_images_of_any_size_and_shape(height: int, width: int) -> None:
    images = natural(2, 40)[:, :, :height, :width]
    for name in PUBLISHED:
        for severity in (1, 3, 5):
            assert corrupt(images, name, severity).shape == images.shape


def test_numbers_are_those_of_the_seed_corruption_and_severity() -> None:
    images = torch.full((1, 3, 16, 16), 128, dtype=torch.uint8)
    noises = [corrupt(images, "gaussian_noise", 4, seed=seed).float() - 128 for seed in (0, 1)]
    noises.append(corrupt(images, "gaussian_noise", 5).float() - 128)
    noises.append(corrupt(images, "speckle_noise", 5).float() - 128)
    correlation = torch.corrcoef(torch.stack([each.flatten() for each in noises]))
    assert (correlation - torch.eye(4)).abs().max() < 0.15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "gaussian_nose"}, "unknown corruption 'gaussian_nose': did you mean 'gaussian_noise'"),
        ({"severity": 0}, "severity=0: expected at least 1 and at most 5"),
        ({"severity": 2.5}, "severity=2.5: expected an integer"),
        ({"seed": -1}, "seed=-1: expected at least 0"),
        ({"seed": 2**63}, "seed=9223372036854775808: expected at least 0 and at most 9223372036854775807"),
        ({"first": -1}, "first=-1: expected at least 0"),
        ({"images": torch.zeros(2, 3, 8, 8)}, r"torch.float32 \(2, 3, 8, 8\): expected torch.uint8 \[n, 1 or 3"),
        ({"images": torch.zeros(2, 8, 8, 3, dtype=torch.uint8)}, r"\(2, 8, 8, 3\): expected torch.uint8 \[n, 1 or 3"),
        ({"images": torch.zeros(2, 3, 0, 8, dtype=torch.uint8)}, r"\(2, 3, 0, 8\): expected torch.uint8"),
        ({"images": [1, 2]}, r"images of \[1, 2\]: expected torch.uint8"),
    ],
)
def test_errors_say_what_was_expected(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"images": natural(1, 8), "name": "fog", "severity": 1} | change
    with pytest.raises(ValueError, match=message):
        corrupt(**given)  # type: ignore[arg-type]


def test_the_page_names_each_by_its_group() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "how-to", "new-domain.md").read_text()
    section = page.partition("## Corruptions\n")[2].partition("\n## ")[0]
    groups: dict[str, list[str]] = {}
    for each in CORRUPTIONS.values():
        groups.setdefault(each.group, []).append(each.label)
    rows = [f"- {group}: {', '.join(labels)}" for group, labels in groups.items()]
    assert [line for line in section.splitlines() if line.startswith("- ")] == rows
    assert list(CORRUPTIONS) == PUBLISHED


@pytest.mark.gpu
@every
def test_a_gpu_gives_the_same_images(name: str) -> None:
    for side, n in ((8, 16), (32, 64), (64, 16), (224, 4)):
        for severity in (2, 3, 5):
            images = natural(n, side)
            here, there = (corrupt(images.to(device), name, severity) for device in ("cpu", "cuda"))
            assert there.device.type == "cuda"
            apart = (here.int() - there.cpu().int()).abs()
            assert (apart > 1).float().mean() < 1e-3
            assert apart.float().mean() < 0.01
