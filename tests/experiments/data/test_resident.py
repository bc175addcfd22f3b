import itertools

import numpy as np
import pytest
import torch

from subspaces.experiments.data import Files, ResidentLoader, Split

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


def views(image: np.ndarray, pad: int, flip: bool) -> dict[tuple[int, int, bool], np.ndarray]:
    """Every crop of the padded image and its mirror image, each made by slicing."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
    result = {}
    for top, left in itertools.product(range(2 * pad + 1), repeat=2):
        crop = padded[:, top : top + height, left : left + width]
        result[top, left, False] = normalised(crop)
        if flip:
            result[top, left, True] = normalised(crop[:, :, ::-1])
    return result


def matches(x: torch.Tensor, candidates: dict) -> list:
    return [key for key, view in candidates.items() if np.allclose(x.numpy(), view, atol=1e-5)]


@pytest.mark.parametrize(("pad", "flip"), [(0, False), (2, False), (0, True), (2, True)])
def test_every_image_is_one_of_its_views_and_all_views_occur(pad, flip):
    split = made(20)
    candidates = [views(image.numpy(), pad, flip) for image in split.images]
    seen = set()
    batches = loader(split, batch=7, pad=pad, flip=flip)
    for _ in range(25):
        for x, y in batches:
            for image, label in zip(x, y.tolist(), strict=True):
                found = matches(image, candidates[label])
                assert len(found) == 1
                seen.add(found[0])
    assert seen == set(candidates[0])


def test_against_a_reference_for_each_image():
    """The same draws, read one image at a time: order, then tops, lefts, then flips."""
    from subspaces.core.randomness import permutation, stream, uniform

    split, pad = made(30), 2
    batches = loader(split, pad=pad, flip=True, seed=4)
    state = stream(4, "batches")
    for _ in range(2):  # the constructor draws an epoch of its own
        order = permutation(state, 30).tolist()
        offsets = uniform(state, (2, 30)).numpy()
        mirrored = uniform(state, (30,)).numpy() < 0.5
    place = 0
    for x, _ in batches:
        for image in x:
            tops, lefts = (int(u * 5) for u in offsets[:, place])
            view = views(split.images[order[place]].numpy(), pad, True)[tops, lefts, bool(mirrored[place])]
            np.testing.assert_allclose(image.numpy(), view, atol=1e-5)
            place += 1


def test_offsets_and_flips_are_uniform():
    batches = loader(made(5000, 3, 2, 2), pad=4, flip=True)
    start, step = batches.plan[2], batches.plan[3]  # the first pixel of a crop in all images of 10 × 10
    start = start - (step == -1).long()  # a mirrored image is read from its last column
    top, left = start // 10 - 10 * batches.order, start % 10
    for offsets in (top, left):
        counts = offsets.bincount(minlength=9)
        assert len(counts) == 9
        assert ((counts - 5000 / 9) ** 2 / (5000 / 9)).sum() < 26.1  # 0.1 % of 8 degrees of freedom
    assert abs((step == 1).double().mean() - 0.5) < 0.03
    assert abs(np.corrcoef(top.numpy(), left.numpy())[0, 1]) < 0.05


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


def test_without_augmentation_nothing_is_drawn():
    batches = loader(shuffle=False)
    before = batches.rng.clone()
    x = torch.cat([x for x, _ in batches])
    assert torch.equal(batches.rng, before)
    expected = np.stack([normalised(image.numpy()) for image in made().images])
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("done", [0, 2, 4])
def test_resume_in_the_middle_of_an_epoch_is_bitwise(done, tmp_path):
    batches = loader(pad=2, flip=True)
    list(batches)
    batches.start_epoch()
    for size in batches.sizes[:done]:
        batches.take(size)
    torch.save(batches.state_dict(), tmp_path / "state")
    rest = [batches.take(size) for size in batches.remaining()] + list(batches)
    other = loader(pad=2, flip=True, seed=77)
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
@pytest.mark.parametrize("pad", [0, 2])
def test_layout_and_precision(dtype, channels_last, pad):
    x, _ = loader(channels_last=channels_last, dtype=dtype, pad=pad).take(16)
    assert x.dtype == dtype
    assert x.shape == (16, 3, 6, 5)
    assert x.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    expected, _ = loader(pad=pad).take(16)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch=0"),
        ({"pad": -1}, "pad=-1"),
        ({"mean": (0.5,)}, r"mean=\(0.5,\) for images of 3 channels"),
        ({"std": (0.5,)}, "expected one of each per channel"),
        ({"std": (0.5, 0, 0.1)}, "std above 0"),
        ({"split": made(0)}, "0 images"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        loader(**options)


def test_files_are_refused(tmp_path):
    with pytest.raises(TypeError, match="got Files: expected a Split; StreamingLoader"):
        loader(Files(tmp_path, np.array([b"a"]), torch.zeros(1, dtype=torch.int64)))


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
