"""Images that do not fit into memory: how many a core reads, decodes and crops, and how many a network takes.

JPEG files of ImageNet's sizes are made up once and kept in a folder. Timed are, on one core and by its processor time:
reading the bytes, decoding them, decoding and cropping them as the loader does; by the clock: decoding with torchvision
where it can be imported, also on a GPU, the whole loader with some numbers of workers, the training step of a ResNet-50
with a batch that is already there, and that step fed by the loader. What is said at the end: by how much longer a fed
step takes, and how many cores would keep the network busy.

    python benchmarks/streaming.py [--images 2000] [--workers 1 2] [--batch 64] [--json FILE]
    python benchmarks/streaming.py --device cuda --images 20000 --workers 4 8 16 --network resnet50 --json FILE
"""

import argparse
import importlib
import itertools
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import photographs
import torch
import torch.nn.functional as F
from subjects import SUBJECTS
from timing import Record
from torch import Tensor

from subspaces.core.memory import keep_memory
from subspaces.evaluation.files import commit, environment
from subspaces.experiments.data import Files, StreamingLoader, folders
from subspaces.experiments.data.resident import boxes
from subspaces.experiments.training.execution import Execution
from subspaces.images import decoding

CLASSES = 10
Batch = tuple[Tensor, Tensor]


class Bench(NamedTuple):
    """What is measured, how often, and where it is told."""

    files: Files
    mean: tuple[float, ...]
    std: tuple[float, ...]
    options: argparse.Namespace
    record: Record

    def loader(self, workers: int) -> StreamingLoader:
        """Return training batches as the recipes for ImageNet have them."""
        return StreamingLoader(
            self.files,
            batch=self.options.batch,
            mean=self.mean,
            std=self.std,
            flip=True,
            resized_crop=True,
            device=self.options.device,
            dtype=torch.bfloat16 if self.options.device == "cuda" else torch.float32,
            workers=workers,
            size=self.options.side,
        )

    def tell(self, name: str, rate: float, what: str, *names: str) -> None:
        """Say how many images a second something makes."""
        self.record.add(f"{name:44} {rate:9,.1f} images/s {what}", rate, *names, name)


def time_pieces(bench: Bench) -> None:
    """Time what a worker does with an image, piece by piece, by the time that the processor spent on it."""
    files, side, some = bench.files, bench.options.side, range(min(len(bench.files), bench.options.some))
    drawn = boxes(torch.rand(4, len(some))).T.tolist()
    pieces: dict[str, Callable[[int], Any]] = {
        "reading": lambda i: files.path(i).read_bytes(),
        "reading, decoding": lambda i: decoding.decode(files.path(i)),
        "reading, decoding, a random view": lambda i: decoding.part(decoding.decode(files.path(i)), drawn[i], side),
        "reading, decoding, the centre": lambda i: decoding.centre_view(files.path(i), 256, side),
    }
    taken: dict[str, list[float]] = {name: [] for name in pieces}
    for _ in range(bench.options.rounds + 1):
        for name, piece in pieces.items():
            start = time.process_time()
            for index in some:
                piece(index)
            taken[name].append((time.process_time() - start) / len(some))
    for name, seconds in taken.items():
        bench.tell(name, 1 / median(seconds[1:]), "of one core's time", "pieces")


def time_torchvision(bench: Bench) -> None:
    """Time torchvision's decoder: one image at a time on a CPU, many on a GPU."""
    try:
        io: Any = importlib.import_module("torchvision.io")
    except ImportError:
        bench.record.add("torchvision's decoder: not there", None, "torchvision")
        return
    some = range(min(len(bench.files), bench.options.some))
    data = [torch.from_numpy(np.fromfile(bench.files.path(i), np.uint8)) for i in some]
    rgb = io.ImageReadMode.RGB
    ways: dict[str, Callable[[], Any]] = {"on a core": lambda: [io.decode_jpeg(one, rgb) for one in data]}
    if bench.options.device == "cuda":
        ways["on the GPU"] = lambda: io.decode_jpeg(data, rgb, device="cuda")
    for name, decode in ways.items():
        rate = len(data) / median(_seconds(decode, bench.options)[1:])
        bench.tell(name, rate, "decoded by torchvision", "torchvision")


def time_loader(bench: Bench) -> dict[int, float]:
    """Return images a second of the whole loader, by its number of workers; tell those of a core's time too."""
    found = {}
    for workers in bench.options.workers:
        loader = bench.loader(workers)
        _count(
            loader, len(bench.files)
        )  # which starts the workers; to leave them within an epoch would let them work on
        before = _processor_seconds()
        seconds = _seconds(lambda it=loader: _count(it, len(bench.files)), bench.options)  # type: ignore[misc]
        spent = (_processor_seconds() - before) / len(seconds)
        found[workers] = len(bench.files) / median(seconds)
        name = f"loader, {workers} worker{'s' * (workers != 1)}"
        bench.tell(name, found[workers], "by the clock", "loader")
        bench.tell(name, len(bench.files) / spent, "of one core's time, with the hand-over", "loader, of a core's time")
    return found


def _processor_seconds() -> float:
    """Return how long processors have worked for this process and for those that it has started."""
    ticks = 0
    for child in multiprocessing.active_children():
        user, system = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


class Consumer:
    """A network that is trained on the batches it is given."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.device, self.low = options.device, options.device == "cuda"
        subject = SUBJECTS[options.size][options.network]
        self.model = subject.make().to(options.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = subject.optimizer(self.model.parameters(), True)
        self.objective = torch.compile(self._objective, dynamic=False) if self.low else self._objective

    def _objective(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.low):
            return F.cross_entropy(self.model(x), y)

    def train(self, batches: Iterable[Batch]) -> int:
        """Train on these, and return how many images there were."""
        count = 0
        for x, y in batches:
            self.optimizer.zero_grad()
            self.objective(x, y).backward()
            self.optimizer.step()
            count += len(y)
        return count


def time_training(bench: Bench, loaded: dict[int, float]) -> None:
    """Time steps with a batch that is there, and steps fed by the loader, in turn; say what is missing."""
    options, consumer = bench.options, Consumer(bench.options)
    there = next(_endless(bench.loader(0)))
    steps = options.steps
    consumer.train([there] * 3)
    for workers in options.workers:
        fed = _endless(bench.loader(workers))
        consumer.train(itertools.islice(fed, 2))
        with_data, with_loader = [], []
        for _ in range(options.rounds):
            with_data += _seconds(lambda: consumer.train([there] * steps), options, 1)
            with_loader += _seconds(lambda fed=fed: consumer.train(itertools.islice(fed, steps)), options, 1)  # type: ignore[misc]
        late = median(b / a for a, b in zip(with_data, with_loader, strict=True)) - 1
        rate = steps * options.batch / median(with_data)
        needed = math.ceil(rate / (loaded[workers] / max(workers, 1)))
        row = {"step_images_s": rate, "fed_images_s": rate / (1 + late), "late": late, "workers_needed": needed}
        line = (
            f"{options.network}, {workers} workers: {rate:,.1f} images/s with data that is there, {late:+.1%} time fed"
        )
        bench.record.add(f"{line}; {needed} such workers would do", row, "training", str(workers))


def _endless(loader: StreamingLoader) -> Iterator[Batch]:
    """Yield the whole batches of epoch after epoch."""
    while True:
        yield from (batch for batch in loader if len(batch[1]) == loader.batch)


def _count(batches: Iterable[Batch], images: int) -> None:
    """Take so many images."""
    for _, y in batches:
        images -= len(y)
        if images <= 0:
            return


def _seconds(work: Callable[[], Any], options: argparse.Namespace, rounds: int | None = None) -> list[float]:
    """Return how long some work takes, several times."""
    found = []
    for _ in range(rounds or options.rounds):
        start = time.perf_counter()
        work()
        if options.device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kept = Path(tempfile.gettempdir()) / "subspaces-photographs"
    parser.add_argument("--folder", type=Path, default=kept, help="where the images are, or are written")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--some", type=int, default=200, help="images that are decoded to time the pieces")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=224, help="pixels of a side of a view")
    parser.add_argument("--network", default="resnet50", choices=["resnet50", "vit-b16"])
    parser.add_argument("--size", default="full", choices=list(SUBJECTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="steps of a round")
    parser.add_argument("--no-training", action="store_true", help="time the loader alone")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    if options.images < max(options.batch, CLASSES):
        least = f"at least {CLASSES} images and one whole batch"
        raise SystemExit(f"--images {options.images} --batch {options.batch}: expected {least}")
    keep_memory()
    torch.backends.cudnn.benchmark = True
    about = photographs.write(options.folder, options.images, CLASSES, CLASSES)
    data = folders.load_imagenet(options.folder)
    assert isinstance(data.train, Files)
    known = environment(asdict(Execution(device=options.device).resolved()))
    record = Record(options.json, commit=commit(), environment=known, files=about)
    bench = Bench(data.train, data.mean, data.std, options, record)
    time_pieces(bench)
    time_torchvision(bench)
    loaded = time_loader(bench)
    if not options.no_training:
        time_training(bench, loaded)


if __name__ == "__main__":
    main()
