import math
import re
import sys
from dataclasses import replace

import made
import numpy as np
import pytest
import torch
from PIL import Image

from subspaces.core import randomness
from subspaces.core.randomness import uniform
from subspaces.experiments.data import DataError, Split, StreamingLoader, folders, views
from subspaces.images import decoding

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on threads and fork


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    made.folders(root)
    return folders.load_imagenet(root)


def array(n: int = 10) -> Split:
    images = torch.randint(0, 256, (n, 3, 6, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Split(images, torch.arange(n))


def loader(split, **options) -> StreamingLoader:
    return StreamingLoader(split, **{"batch": 5, "mean": MEAN, "std": STD, "workers": 0, **options})


TRAINING = {"resized_crop": True, "flip": True, "size": 24, "resize": 30}


def batches(loader: StreamingLoader, epochs: int = 2) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [batch for _ in range(epochs) for batch in loader]


def assert_same(first, second) -> None:
    assert len(first) == len(second)
    for (x, y), (x2, y2) in zip(first, second, strict=True):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_does_not_matter(files, workers):
    expected = batches(loader(files.train, **TRAINING))
    assert_same(batches(loader(files.train, workers=workers, **TRAINING)), expected)
    options = {"pad": 2, "flip": True}
    assert_same(batches(loader(array(), workers=workers, **options)), batches(loader(array(), **options)))


@pytest.mark.parametrize("workers", [0, 1])
def test_resumes_at_an_epoch(files, workers):
    whole = loader(files.train, **TRAINING)
    list(whole)
    state = whole.state_dict()
    other = loader(files.train, workers=workers, **TRAINING)
    other.load_state_dict(state)
    assert_same(batches(other), batches(whole))


def test_epochs_differ_and_have_every_image_once(files):
    stream = loader(replace(files.train, labels=torch.arange(12)), **TRAINING)
    assert stream.sizes == [5, 5, 2]
    assert len(stream) == 3
    orders = [torch.cat([y for _, y in stream]).tolist() for _ in range(2)]
    assert orders[0] != orders[1]
    assert all(sorted(order) == list(range(12)) for order in orders)
    assert stream.epoch == 1


def test_global_random_numbers_are_left_alone(files):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    batches(loader(files.train, workers=1, **TRAINING), 1)
    assert torch.equal(torch.rand(3), expected)


def test_evaluation_is_the_scaled_centre(files):
    stream = loader(files.test, shuffle=False, size=24, resize=30)
    x = torch.cat([x for x, _ in stream])
    for place in range(len(files.test)):
        image = Image.open(files.test.path(place)).convert("RGB")
        factor = 30 / min(image.size)
        scaled = image.resize((math.floor(image.width * factor), math.floor(image.height * factor)), Image.BILINEAR)
        left, top = round((scaled.width - 24) / 2), round((scaled.height - 24) / 2)
        pixels = np.asarray(scaled)[top : top + 24, left : left + 24] / 255
        np.testing.assert_allclose(x[place].permute(1, 2, 0).numpy(), (pixels - MEAN) / STD, atol=1e-5)


def test_every_image_of_an_epoch_has_its_own_numbers(files):
    """They are one draw for all images, so that no two share any: four are of its part, one is of its direction."""
    stream = loader(replace(files.train, labels=torch.arange(12)), seed=4, batch=12, **TRAINING)
    for epoch in range(2):
        ((x, y),) = list(stream)
        numbers = uniform(randomness.stream(4, "augmentation", epoch), (12, 5))
        for image, index in zip(x, y.tolist(), strict=True):
            whole = Image.open(files.train.path(index)).convert("RGB")
            left, top, width, height = views.boxes(numbers[index, :4, None], whole.width / whole.height)[:, 0].tolist()
            box = np.array([left, top, left + width, top + height]) * [*whole.size, *whole.size]
            view = np.asarray(whole.resize((24, 24), Image.BILINEAR, box=tuple(np.minimum(box, [*whole.size] * 2))))
            assert same(image, view.transpose(2, 0, 1), mirrored=bool(numbers[index, 4] < 0.5))


def test_a_centred_view_is_turned_by_the_last_number_of_its_image(files):
    stream = loader(replace(files.train, labels=torch.arange(12)), seed=4, batch=12, flip=True, size=24, resize=30)
    ((x, y),) = list(stream)
    numbers = uniform(randomness.stream(4, "augmentation", 0), (12, 3))
    for image, index in zip(x, y.tolist(), strict=True):
        view = decoding.centre_view(decoding.decode(files.train.path(index)), 30, 24)
        assert same(image, view.transpose(2, 0, 1), mirrored=bool(numbers[index, -1] < 0.5))


def test_parts_of_images_that_are_not_square_have_the_ratios_that_are_promised():
    left, top, width, height = views.boxes(torch.rand(4, 5000, generator=torch.Generator().manual_seed(0)), 500 / 400)
    assert min(left.min(), top.min()) >= 0
    assert max((left + width).max(), (top + height).max()) <= 1 + 1e-6
    whole = (width < 1) & (height < 1)  # no side was cut
    ratio, area = (width * 500 / (height * 400))[whole], width * height
    assert 0.75 - 1e-5 <= ratio.min() < 0.76
    assert 1.32 < ratio.max() <= 4 / 3 + 1e-5
    assert 0.08 - 1e-6 <= area.min() < 0.09


@pytest.mark.parametrize("flip", [False, True])
def test_arrays_may_have_parts_that_are_scaled(flip):
    split, seen = array(), []
    for x, y in batches(loader(split, resized_crop=True, flip=flip, seed=4, batch=10)):
        numbers = uniform(randomness.stream(4, "augmentation", len(seen)), (10, 5))[y]
        expected = views.views(split.images[y].permute(0, 2, 3, 1), views.boxes(numbers[:, :4].T)).round().numpy()
        for image, view, number in zip(x, expected, numbers, strict=True):
            assert same(image, view.transpose(2, 0, 1), mirrored=flip and bool(number[4] < 0.5))
        seen.append(x)
    assert len(seen) == 2


def test_crops_and_flips_of_arrays_have_a_stream_of_their_own():
    """Or the first image of every epoch would be cropped at its corner: the order sorts the numbers."""
    split, pad = array(), 2
    stream = loader(split, pad=pad, flip=True, seed=4, batch=10)
    for epoch in range(2):
        ((x, y),) = list(stream)
        numbers = uniform(randomness.stream(4, "augmentation", epoch), (10, 3))
        for image, index in zip(x, y.tolist(), strict=True):
            padded = np.pad(split.images[index].numpy(), ((0, 0), (pad, pad), (pad, pad)))
            top, left = (numbers[index, :2] * 5).long().tolist()
            assert same(image, padded[:, top : top + 6, left : left + 5], mirrored=bool(numbers[index, 2] < 0.5))


def same(x: torch.Tensor, crop: np.ndarray, mirrored: bool) -> bool:
    crop = crop[:, :, ::-1] if mirrored else crop
    expected = (crop.transpose(1, 2, 0) / 255 - MEAN) / STD
    return np.allclose(x.permute(1, 2, 0).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda file: file.write_bytes(b"no image"), r"8 bytes that are not a whole image \(.*\): get it again"),
        (
            lambda file: Image.new("L", (60_000, 2)).save(file, "PNG"),
            "7,680,000 × 256 pixels, more than 100,000,000: scale it down or cut it",
        ),
        (lambda file: file.unlink(), "there is no such file any more: put it back, or get it again"),
    ],
    ids=["damaged", "a strip", "gone"],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line_from_a_worker_too(tmp_path, harm, said):
    made.folders(tmp_path, classes=1, per_class=1)
    data = folders.load_imagenet(tmp_path)
    harm(tmp_path / "train" / "class0" / "train_0.JPEG")
    alone, worker = (error_of(loader(data.train, workers=workers)) for workers in (0, 1))
    assert re.fullmatch(rf"/.*train_0\.JPEG: {said}", alone)
    assert worker == alone


def error_of(stream: StreamingLoader) -> str:
    """Return what an epoch ends with; nobody keeps the error itself, which would keep the workers."""
    try:
        list(stream)
    except DataError as error:
        return str(error)
    return ""


def test_without_pillow(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    for workers in (0, 1):
        with pytest.raises(ImportError, match=r"\A[^\n]*needs Pillow: install it with `pip install pillow`\Z"):
            list(loader(files.train, workers=workers))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch=0"),
        ({"pad": 2}, "pad=2: expected 0 with resized_crop=True, and for files"),
        ({"size": 300}, "size=300, resize=256"),
    ],
)
def test_bad_arguments(files, options, message):
    with pytest.raises(ValueError, match=message):
        loader(files.train, **options)
    with pytest.raises(ValueError, match="pad=2: expected 0 with resized_crop=True"):
        loader(array(), pad=2, resized_crop=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_the_gpu(files):
    expected = batches(loader(files.train, **TRAINING))
    found = batches(loader(files.train, device="cuda", workers=2, **TRAINING))
    for (x, y), (x2, y2) in zip(found, expected, strict=True):
        assert x.is_cuda
        torch.testing.assert_close(x.cpu(), x2, atol=1e-6, rtol=0)
        assert torch.equal(y.cpu(), y2)
