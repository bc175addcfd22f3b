"""Batches from images on the device: their order, crops, flips and parts of random size, and how they go on."""

import numpy as np
import pytest
import torch
from PIL import Image

from subspaces.core.randomness import permutation, stream, uniform
from subspaces.experiments.data import ResidentLoader, Split
from subspaces.experiments.data.resident import boxes, mirrored_boxes, views

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def made(n: int = 50, channels: int = 3, height: int = 6, width: int = 5) -> Split:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, channels, height, width), dtype=torch.uint8, generator=generator)
    return Split(images, torch.arange(n))  # the label says which image it is


def loader(split: Split | None = None, **options) -> ResidentLoader:
    return ResidentLoader(made() if split is None else split, **{"batch": 16, "mean": MEAN, "std": STD, **options})


def normalised(image: np.ndarray, mean=MEAN, std=STD) -> np.ndarray:
    """One image [C, H, W] by the definition, in double precision."""
    return np.stack([(channel / 255 - m) / s for channel, m, s in zip(image, mean, std, strict=True)])


@pytest.mark.parametrize(("pad", "flip"), [(0, False), (2, False), (0, True), (2, True)])
def test_against_a_reference_for_each_image(pad, flip):
    """The same draws, read one image at a time: order, then tops, lefts, then flips."""
    split = made(30)
    batches = loader(split, pad=pad, flip=flip, seed=4)
    state = stream(4, "batches")
    offsets, mirrored = np.zeros((2, 30)), np.zeros(30, bool)
    for _ in range(2):  # the constructor draws an epoch of its own
        order = permutation(state, 30).tolist()
        offsets = uniform(state, (2, 30)).numpy() if pad else offsets
        mirrored = uniform(state, (30,)).numpy() < 0.5 if flip else mirrored
    place = 0
    for x, _ in batches:
        for image in x:
            top, left = (int(u * (2 * pad + 1)) for u in offsets[:, place])
            padded = np.pad(split.images[order[place]].numpy(), ((0, 0), (pad, pad), (pad, pad)))
            crop = padded[:, top : top + 6, left : left + 5]
            np.testing.assert_allclose(
                image.numpy(), normalised(crop[:, :, ::-1] if mirrored[place] else crop), atol=1e-5
            )
            place += 1


def test_views_are_of_the_images_of_the_order():
    split, state = made(30), stream(4, "batches")
    for _ in range(2):  # the constructor draws an epoch of its own
        order, drawn = permutation(state, 30), boxes(uniform(state, (4, 30)))
        mirrored = uniform(state, (30,)) < 0.5
    seen = views(split.images[order].permute(0, 2, 3, 1), mirrored_boxes(drawn, mirrored)).permute(0, 3, 1, 2)
    found = torch.cat([x for x, _ in loader(split, resized_crop=True, flip=True, seed=4)])
    expected = torch.stack([torch.from_numpy(normalised(image)) for image in seen.double().numpy()])
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_has_every_image_once(shuffle):
    batches = loader(shuffle=shuffle, pad=1, flip=True)
    assert batches.sizes == [16, 16, 16, 2]
    assert len(batches) == 4
    epochs = []
    for _ in range(3):
        labels = [y for _, y in batches]
        assert [len(y) for y in labels] == batches.sizes
        epochs.append(torch.cat(labels).tolist())
        assert sorted(epochs[-1]) == list(range(50))
    assert (epochs[0] == epochs[1]) == (not shuffle)


@pytest.mark.parametrize("crop", [{"pad": 2, "flip": True}, {"resized_crop": True, "flip": True}, {}])
@pytest.mark.parametrize("done", [0, 2, 4])
def test_resume_in_the_middle_of_an_epoch_is_bitwise(done, crop, tmp_path):
    batches = loader(**crop)
    list(batches)
    batches.start_epoch()
    for size in batches.sizes[:done]:
        batches.take(size)
    torch.save(batches.state_dict(), tmp_path / "state")
    rest = [batches.take(size) for size in batches.remaining()] + list(batches)
    other = loader(**crop, seed=77)
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    again = [other.take(size) for size in other.remaining()] + list(other)
    assert len(rest) == len(again) == 8 - done
    for (x, y), (x2, y2) in zip(rest, again, strict=True):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)


def test_state_stays_in_the_same_memory():
    """A captured graph reads it there."""
    batches = loader(pad=1, flip=True)
    tensors = [batches.order, batches.position, batches.rng, batches.plan, batches.images]
    places = [tensor.data_ptr() for tensor in tensors]
    list(batches)
    batches.load_state_dict(batches.state_dict())
    again = [batches.order, batches.position, batches.rng, batches.plan, batches.images]
    assert [tensor.data_ptr() for tensor in again] == places
    assert batches.order.dtype == batches.position.dtype == batches.rng.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_layout_and_precision(dtype, channels_last):
    x, _ = loader(channels_last=channels_last, dtype=dtype, pad=2).take(16)
    assert (x.dtype, x.shape) == (dtype, (16, 3, 6, 5))
    assert x.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    expected, _ = loader(pad=2).take(16)
    torch.testing.assert_close(x.float(), expected, rtol=0.01, atol=1e-6 if dtype == torch.float32 else 0.01)


def test_siblings_share_images_and_nothing_else():
    first = loader(seed=1, pad=1, flip=True)
    second = first.sibling(seed=2)
    assert second.images is first.images
    for (x, y), (x2, y2) in zip(second, loader(seed=2, pad=1, flip=True), strict=True):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)
    for (x, _), (x2, _) in zip(first, loader(seed=1, pad=1, flip=True), strict=True):
        assert torch.equal(x, x2)


def test_constants_have_to_fit():
    for std in ((0.5,), (0.5, 0, 0.1)):
        with pytest.raises(ValueError, match="expected one of each per channel, std above 0"):
            loader(std=std)


@pytest.mark.parametrize("shape", [1.0, 500 / 400])
def test_boxes_lie_in_the_image_and_have_the_areas_and_ratios_that_are_promised(shape):
    left, top, width, height = boxes(torch.rand(4, 20_000, generator=torch.Generator().manual_seed(0)), shape)
    assert min(left.min(), top.min()) >= 0
    assert max((left + width).max(), (top + height).max()) <= 1 + 1e-6
    whole = (width < 1) & (height < 1)  # no side was cut
    ratio, area = (shape * width / height)[whole], width * height
    assert 0.75 - 1e-5 <= ratio.min() < 0.76
    assert 1.32 < ratio.max() <= 4 / 3 + 1e-5
    assert 0.08 - 1e-6 <= area.min() < 0.09
    assert area.max() <= 1
    shares = [((area > low) & (area < low + 0.1)).float().mean().item() for low in (0.1, 0.3)]
    assert shares == pytest.approx([0.1 / 0.92] * 2, abs=0.01)


def test_the_whole_image_is_itself_and_mirrored_it_is_mirrored():
    images = torch.randint(0, 256, (5, 7, 7, 3), dtype=torch.uint8)
    whole = torch.tensor([0.0, 0, 1, 1])[:, None].expand(4, 5)
    torch.testing.assert_close(views(images, whole), images.float(), atol=1e-3, rtol=0)
    flags = torch.tensor([True, False, True, False, True])
    expected = torch.where(flags[:, None, None, None], images.flip(2), images).float()
    torch.testing.assert_close(views(images, mirrored_boxes(whole, flags)), expected, atol=1e-3, rtol=0)


def test_a_view_is_what_pillow_shows_of_the_box():
    """But for its border, where Pillow does not look beyond the box."""
    rows, columns = np.mgrid[0:32, 0:32]
    smooth = np.stack([rows * 4, columns * 5, rows * 2 + columns * 3], -1).astype(np.uint8)
    found = boxes(torch.rand(4, 6, generator=torch.Generator().manual_seed(0)))
    images = torch.from_numpy(smooth).expand(6, -1, -1, -1)
    for view, (left, top, width, height) in zip(views(images, found), (32 * found).T.tolist(), strict=True):
        box = (left, top, min(left + width, 32), min(top + height, 32))
        expected = Image.fromarray(smooth).resize((32, 32), Image.Resampling.BILINEAR, box=box)
        inner = slice(6, -6)
        difference = view.numpy()[inner, inner] - np.asarray(expected).astype(float)[inner, inner]
        assert np.abs(difference).max() < 2


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("pad", "flip", "shuffle"), [(2, True, True), (0, False, True), (0, False, False)])
def test_captured_in_a_graph_it_gives_the_batches_of_the_cpu(pad, flip, shuffle):
    options = {"pad": pad, "flip": flip, "shuffle": shuffle, "channels_last": True}
    on_cpu, on_gpu = loader(**options), loader(**options, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        on_gpu.take(16)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x, y = on_gpu.take(16)
    for _ in range(3):
        on_cpu.start_epoch()
        on_gpu.start_epoch()
        for size in on_cpu.sizes:
            expected_x, expected_y = on_cpu.take(size)
            if size == 16:
                graph.replay()
                found_x, found_y = x, y
            else:
                found_x, found_y = on_gpu.take(size)
            assert torch.equal(found_y.cpu(), expected_y)
            torch.testing.assert_close(found_x.cpu(), expected_x, rtol=0, atol=1e-6)
    assert on_gpu.remaining() == []


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_waits_for_the_gpu():
    batches = loader(pad=2, flip=True, device="cuda")
    batches.take(16)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in batches:
            pass
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@needs_gpu
def test_the_gpu_shows_the_same_views():
    images = torch.randint(0, 256, (30, 3, 16, 16), dtype=torch.uint8)
    split = Split(images, torch.arange(30))
    settings = {"batch": 30, "mean": (0.0,) * 3, "std": (1.0,) * 3, "resized_crop": True, "flip": True}
    (x, y), (x2, y2) = (ResidentLoader(split, device=device, **settings).take(30) for device in ("cpu", "cuda"))
    assert torch.equal(y, y2.cpu())
    torch.testing.assert_close(x, x2.cpu(), atol=1e-3, rtol=0)
