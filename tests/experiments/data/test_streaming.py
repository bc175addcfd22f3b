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
from subspaces.experiments.data import DataError, ResidentLoader, Split, StreamingLoader, folders
from subspaces.experiments.data.resident import boxes, views

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


def test_the_number_of_workers_does_not_matter(files):
    for split, options in ((files.train, TRAINING), (array(), {"pad": 2, "flip": True})):
        assert_same(batches(loader(split, workers=2, **options)), batches(loader(split, **options)))


@pytest.mark.parametrize("workers", [0, 1])
def test_goes_on_within_an_epoch(files, workers):
    whole = batches(loader(files.train, **TRAINING), 3)
    other = loader(files.train, workers=workers, **TRAINING)
    other.seek(1, batches=2)
    assert_same(batches(other), whole[3 + 2 :])
    assert other.epoch == 2


def test_without_augmentation_it_gives_the_batches_of_a_resident_loader():
    resident = ResidentLoader(array(), batch=4, mean=MEAN, std=STD, shuffle=False)
    assert_same(batches(loader(array(), batch=4, shuffle=False), 1), list(resident))


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
            left, top, width, height = boxes(numbers[index, :4, None], whole.width / whole.height)[:, 0].tolist()
            box = np.array([left, top, left + width, top + height]) * [*whole.size, *whole.size]
            view = np.asarray(whole.resize((24, 24), Image.BILINEAR, box=tuple(np.minimum(box, [*whole.size] * 2))))
            assert same(image, view.transpose(2, 0, 1), mirrored=bool(numbers[index, 4] < 0.5))


def test_arrays_may_have_parts_that_are_scaled():
    split = array()
    ((x, y),) = list(loader(split, resized_crop=True, flip=True, seed=4, batch=10))
    numbers = uniform(randomness.stream(4, "augmentation", 0), (10, 5))[y]
    expected = views(split.images[y].permute(0, 2, 3, 1), boxes(numbers[:, :4].T)).round().numpy()
    for image, view, number in zip(x, expected, numbers, strict=True):
        assert same(image, view.transpose(2, 0, 1), mirrored=bool(number[4] < 0.5))


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
        (lambda file: file.unlink(), r"cannot be opened \(No such file or directory\)"),
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_the_gpu(files):
    expected = batches(loader(files.train, **TRAINING))
    found = batches(loader(files.train, device="cuda", workers=2, **TRAINING))
    for (x, y), (x2, y2) in zip(found, expected, strict=True):
        assert x.is_cuda
        torch.testing.assert_close(x.cpu(), x2, atol=1e-6, rtol=0)
        assert torch.equal(y.cpu(), y2)
