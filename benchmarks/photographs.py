"""Folders of JPEG files as ImageNet has them: of its layout and sizes, with the spectrum of photographs, made up."""

import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspaces.evaluation.files import write_plain_json

SIZES = [(500, 375)] * 7 + [(375, 500)] * 2 + [(500, 333)]  # width and height: most of ImageNet's are about these
QUALITY = 91  # of the JPEG files, which then have about 110 KB each, as those of ImageNet in the mean
FALL = 1.1  # an amplitude falls with its frequency to this power: 1 in photographs
DONE = "made.json"


def picture(seed: int, label: int, classes: int) -> npt.NDArray[np.uint8]:
    """Return [H, W, 3]: three fields of noise, mostly the same, with a colour that goes with its label."""
    random = np.random.default_rng(seed)
    width, height = SIZES[seed % len(SIZES)]
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = 1
    fields = []
    for _ in range(3):
        noise = random.standard_normal((2, *frequency.shape))
        field = np.fft.irfft2((noise[0] + 1j * noise[1]) / frequency**FALL, s=(height, width))
        fields.append(field / field.std())
    light, *colours = fields
    tint = 2 * np.pi * label / classes
    channels = [light + 0.35 * colours[0], light, light + 0.35 * colours[1]]
    shifts = [np.sin(tint), 0.0, np.cos(tint)]
    pixels = np.stack([115 + 50 * channel + 30 * shift for channel, shift in zip(channels, shifts, strict=True)], 2)
    return pixels.clip(0, 255).astype(np.uint8)


def _save(root: Path, classes: int, item: tuple[str, int]) -> None:
    from PIL import Image

    part, index = item
    label = index % classes
    folder = root / part / f"n{label:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    seed = index if part == "train" else 10**9 + index
    Image.fromarray(picture(seed, label, classes)).save(folder / f"{part}_{index:08d}.JPEG", quality=QUALITY)


def write(root: Path, train: int, test: int, classes: int, processes: int | None = None) -> dict[str, Any]:
    """Write ROOT/train/<class>/*.JPEG and ROOT/val/<class>/*.JPEG, once; return how many there are, and their size."""
    asked = {"train": train, "val": test, "classes": classes, "quality": QUALITY, "fall": FALL}
    made = root / DONE
    if made.is_file() and asked.items() <= (known := json.loads(made.read_text())).items():
        return dict(known)
    items = [(part, index) for part, count in (("train", train), ("val", test)) for index in range(count)]
    if processes == 0:
        for item in items:
            _save(root, classes, item)
    else:
        with ProcessPoolExecutor(processes) as pool:
            list(pool.map(partial(_save, root, classes), items, chunksize=32))
    sizes = [file.stat().st_size for file in root.glob("*/*/*.JPEG")]
    known = {**asked, "files": len(sizes), "mean_kb": round(float(np.mean(sizes)) / 1000, 1)}
    write_plain_json(made, known)
    return known
