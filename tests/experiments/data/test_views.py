"""Random views of many images at once: their boxes, and that they show what is in these."""

import numpy as np
import pytest
import torch
from PIL import Image
from subspaces.experiments.data.views import boxes, mirrored, views

from subspaces.experiments.data import ResidentLoader, Split


def drawn(n: int) -> torch.Tensor:
    return boxes(torch.rand(4, n, generator=torch.Generator().manual_seed(0)))


def test_boxes_lie_in_the_image_and_have_the_areas_and_ratios_that_are_promised():
    left, top, width, height = drawn(20_000)
    assert min(left.min(), top.min()) >= 0
    assert max((left + width).max(), (top + height).max()) <= 1 + 1e-6
    whole = (width < 1) & (height < 1)  # no side was cut
    ratio = (width / height)[whole]
    assert 0.75 - 1e-5 <= ratio.min() < 0.76
    assert 1.32 < ratio.max() <= 4 / 3 + 1e-5
    area = width * height
    assert 0.08 - 1e-6 <= area.min() < 0.09
    assert area.max() <= 1
    shares = [((area > low) & (area < low + 0.1)).float().mean().item() for low in (0.1, 0.3, 0.5)]
    assert shares == pytest.approx([0.1 / 0.92] * 3, abs=0.01)


def test_the_whole_image_is_itself_and_mirrored_it_is_mirrored():
    images = torch.randint(0, 256, (5, 7, 7, 3), dtype=torch.uint8)
    whole = torch.tensor([0.0, 0, 1, 1])[:, None].expand(4, 5)
    torch.testing.assert_close(views(images, whole), images.float(), atol=1e-3, rtol=0)
    flags = torch.tensor([True, False, True, False, True])
    expected = torch.where(flags[:, None, None, None], images.flip(2), images).float()
    torch.testing.assert_close(views(images, mirrored(whole, flags)), expected, atol=1e-3, rtol=0)


def test_a_view_is_what_pillow_shows_of_the_box():
    """But for its border, where Pillow does not look beyond the box."""
    rows, columns = np.mgrid[0:32, 0:32]
    smooth = np.stack([rows * 4, columns * 5, rows * 2 + columns * 3], -1).astype(np.uint8)
    found = drawn(6)
    images = torch.from_numpy(smooth).expand(6, -1, -1, -1)
    for view, (left, top, width, height) in zip(views(images, found), (32 * found).T.tolist(), strict=True):
        box = (left, top, min(left + width, 32), min(top + height, 32))
        expected = Image.fromarray(smooth).resize((32, 32), Image.Resampling.BILINEAR, box=box)
        inner = slice(6, -6)
        difference = view.numpy()[inner, inner] - np.asarray(expected).astype(float)[inner, inner]
        assert np.abs(difference).max() < 2


@pytest.mark.parametrize("flip", [False, True])
def test_a_resident_loader_goes_on_where_it_was(flip):
    images = torch.randint(0, 256, (30, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    split = Split(images, torch.arange(30))
    settings = {"batch": 10, "mean": (0.0,) * 3, "std": (1.0,) * 3, "resized_crop": True, "flip": flip, "seed": 3}
    first, second = (ResidentLoader(split, **settings) for _ in range(2))
    first.take(10)
    state = first.state_dict()
    rest = [first.take(10) for _ in range(2)]
    first.start_epoch()
    later = first.take(10)
    second.load_state_dict(state)
    for x, y in rest:
        again = second.take(10)
        assert torch.equal(again[0], x)
        assert torch.equal(again[1], y)
    second.start_epoch()
    assert torch.equal(second.take(10)[0], later[0])
    whole = images.float()[later[1]] / 255
    assert not torch.isclose(later[0], whole).all((1, 2, 3)).any()
    other = first.sibling(4)
    assert other.boxes.data_ptr() != first.boxes.data_ptr()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_shows_the_same_views():
    images = torch.randint(0, 256, (30, 3, 16, 16), dtype=torch.uint8)
    split = Split(images, torch.arange(30))
    settings = {"batch": 30, "mean": (0.0,) * 3, "std": (1.0,) * 3, "resized_crop": True, "flip": True}
    (x, y), (x2, y2) = (ResidentLoader(split, device=device, **settings).take(30) for device in ("cpu", "cuda"))
    assert torch.equal(y, y2.cpu())
    torch.testing.assert_close(x, x2.cpu(), atol=1e-3, rtol=0)
