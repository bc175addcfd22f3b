"""Small data sets in their publishers' formats, for tests."""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from commands import CliRunner, Result
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from subspaces.cli import main as app

Array = np.ndarray[Any, Any]
FEW_MNIST = {
    "train-images-idx3-ubyte": (20, 28, 28),
    "train-labels-idx1-ubyte": (20,),
    "t10k-images-idx3-ubyte": (10, 28, 28),
    "t10k-labels-idx1-ubyte": (10,),
}
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def idx(array: Array) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def mnist(folder: Path, packed: bool = False) -> dict[str, Array]:
    """Write the four files and return their arrays by name."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    arrays = {name: random.integers(0, 256 if shape[1:] else 10, shape, np.uint8) for name, shape in FEW_MNIST.items()}
    for name, array in arrays.items():
        content = idx(array)
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    return arrays


def write_binary(folder: Path, pixels: Array, labels: Array) -> None:
    for batch, x, y in zip(BATCHES, pixels, labels, strict=True):
        np.concatenate([y[:, None], x], axis=1).astype(np.uint8).tofile(folder / f"{batch}.bin")


def cifar10(folder: Path, records: int = 7) -> tuple[Array, Array]:
    """Write the six files and return pixels [6, records, 3072] and labels [6, records]."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (6, records, 3072), np.uint8)
    labels = random.integers(0, 10, (6, records))
    write_binary(folder, pixels, labels)
    return pixels, labels


def image(path: Path, pixels: Array, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def flat(value: int, size: tuple[int, ...] = (64, 64, 3)) -> Array:
    """One colour, which survives JPEG."""
    return np.full(size, value, np.uint8)


def tiny_imagenet(folder: Path, classes: int = 3, per_class: int = 2, validation: int = 4) -> list[str]:
    """Write the published layout; image i of class c has the grey value 40 c + 10 i. Return the wnids."""
    wnids = [f"n0{9 - c}" for c in range(classes)]  # not sorted
    for c, wnid in enumerate(sorted(wnids)):
        for i in range(per_class):
            grey = (c + i) % 2 == 0
            pixels = flat(40 * c + 10 * i, (64, 64) if grey else (64, 64, 3))
            image(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", pixels, format="JPEG")
    lines = []
    for i in range(validation):
        image(folder / "val" / "images" / f"val_{i}.JPEG", flat(10 + i), format="JPEG")
        lines.append(f"val_{i}.JPEG\t{sorted(wnids)[i % classes]}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text(f"{wnids[0]}\tgoldfish, Carassius auratus\nn99\tother\n")
    return wnids


def folders(root: Path, classes: int = 3, per_class: int = 4) -> None:
    """Write ImageNet-style folders with images of different sizes."""
    random = np.random.default_rng(2)
    for part, count in (("train", per_class), ("val", 2)):
        for c in range(classes):
            for i in range(count):
                height, width = 40 + 7 * i, 60 - 5 * i
                noise = random.integers(0, 256, (height, width, 3), np.uint8)
                image(root / part / f"class{c}" / f"{part}_{i}.JPEG", noise, format="JPEG")


def natural(n: int, side: int, channels: int = 3) -> Tensor:
    """Return smooth random images, uint8 [n, channels, side, side]."""
    cells = max(side // 4, 2)
    coarse = torch.randn(n, channels, cells, cells, generator=torch.Generator().manual_seed(0))
    return (F.interpolate(coarse, (side, side), mode="bicubic") * 50 + 128).clamp(0, 255).to(torch.uint8)


def own(root: Path, classes: Sequence[str] = ("a", "b"), per_class: int = 3) -> Path:
    """Write images of one colour each, image i of class c being 40 c + i."""
    for number, name in enumerate(classes):
        for i in range(per_class):
            image(root / name / f"{i}.png", flat(40 * number + i, (8, 8, 3)))
    return root


def call(*arguments: object) -> Result:
    """Run the command; a traceback fails the test."""
    result = CliRunner().invoke(app, [*map(str, arguments)], prog_name="subspaces", env={"COLUMNS": "300"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
