"""The time of a training step of a family over that of the plain network, side by side in one run.

A step is forward, loss, penalty, backward and SGD with momentum, on cResNet20 or the digits' MLP with random images.
All variants take turns, step by step or some steps at a time, so that whatever else the machine does hits them alike;
the result is the median over the rounds of each variant's time over the plain network's. On Linux freed
memory is kept by the process, for all variants: otherwise it depends on chance how much of it the
system takes back and hands out again page by page, which is a tenth of a step on a CPU and more than all
that is measured here (--give-back leaves it so).

    python benchmarks/step.py [--network mlp --steps 20] [--device cuda] [--batch 128] [--rounds 40] [--json FILE]
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import torch
import torch.nn.functional as F
from timing import CLOCKS
from torch import nn

import subspaces as ss
from subspaces.memory import keep_memory
from subspaces.networks import MLP, CResNet20
from subspaces.training.environment import commit, processor

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "cresnet20": (CResNet20, (3, 32, 32)),
    "mlp": (MLP, (1, 8, 8)),
}
SHAPES: dict[str, ss.Shape | None] = {
    "plain": None,
    "line": ss.Line(),
    "curve": ss.Bezier(1),
    "simplex 6": ss.Simplex(6),
    "plain again": None,
}


def make_step(shape: ss.Shape | None, options: argparse.Namespace) -> Callable[[], None]:
    """Return a function that trains one step and waits for it."""
    build, size = NETWORKS[options.network]

    def network() -> nn.Module:
        module = build()
        if options.channels_last:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module

    model = (network() if shape is None else ss.Subspace(network, shape)).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(options.batch, *size, device=options.device)
    if options.channels_last:
        images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(10, (options.batch,), device=options.device)

    def loss() -> torch.Tensor:
        with torch.autocast(options.device, torch.bfloat16, enabled=options.bf16):
            value = F.cross_entropy(model(images), labels)
        return value + model.penalty() if isinstance(model, ss.Subspace) else value

    objective = torch.compile(loss) if options.compile else loss

    def step() -> None:
        optimizer.zero_grad()
        objective().backward()
        optimizer.step()
        if options.device == "cuda":
            torch.cuda.synchronize()

    return step


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds of a step in every round, by variant."""
    torch.manual_seed(0)
    steps = {name: make_step(shape, options) for name, shape in SHAPES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    clock = CLOCKS[options.clock]
    for round_ in range(options.rounds + 3):
        for name, step in steps.items():
            start = clock()
            for _ in range(options.steps):
                step()
            if round_ >= 3:  # the first rounds warm up
                seconds[name].append((clock() - start) / options.steps)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--network", default="cresnet20", choices=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=1, help="steps of each variant in a round")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS), help="processor: where others work too")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--compile", action="store_true", help="torch.compile forward, loss and penalty")
    parser.add_argument("--give-back", action="store_true", help="let freed memory go back to the system")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if not options.give_back:
        keep_memory()
    seconds = measure(options)
    rows = {}
    for name, times in seconds.items():
        ratios = [mine / plain for mine, plain in zip(times, seconds["plain"], strict=True)]
        low, _, high = quantiles(ratios, n=4)
        rows[name] = {"ms": 1000 * median(times), "ratio": median(ratios), "quartiles": [low, high]}
        print(f"{name:12} {rows[name]['ms']:9.3f} ms   {median(ratios):.3f} of plain   [{low:.3f}, {high:.3f}]")
    if options.json:
        hardware = torch.cuda.get_device_name() if options.device == "cuda" else processor()
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        made = {"commit": commit(), "hardware": hardware, "torch": torch.__version__, "settings": settings}
        record = {**made, "rows": rows}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
