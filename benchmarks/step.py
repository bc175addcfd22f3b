"""The time and the memory of a training step of a family over those of the plain network, side by side in one run.

A step is forward, loss, penalty, backward and optimiser, on random inputs: of cResNet20 (SGD with momentum) or, with
--network, of the digits' MLP, of one of ImageNet's size or of GPT-2 (`subjects.py`). With --distributed each family is
there a second time, cut over the one process of a group (`ss.distribute`). The calls of this package's functions that
one call of the model makes are counted too, without those of its networks. All variants take turns, step by step, so
that whatever else the machine does hits them alike; the result is the median over the rounds of each variant's time
over that of the plain network in the same mode, eager or compiled. On Linux freed memory is kept by the process, for
all variants: otherwise it depends on chance how much of it the system takes back and hands out again page by page,
which is a tenth of a step on a CPU and more than all that is measured here (--give-back leaves it so).

Memory is the most that tensors take during a step. It is compared with what m vertices cannot do without: that of the
plain network, and m - 1 times its weights, gradients and optimiser states.

    python benchmarks/step.py [--device cuda] [--batch 128] [--rounds 40] [--json FILE]
    python benchmarks/step.py --network gpt2 --device cuda --precision bfloat16 --modes eager compiled --json FILE
    python benchmarks/step.py --network gpt2 --size medium
    python benchmarks/step.py --network mlp --steps 20 --distributed
    python benchmarks/step.py --network mlp-128 --steps 40 --threads 1 --clock processor
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from peak import above
from subjects import LAYERWISE, NETWORKS, SIZES, SUBJECTS, Logits, Subject
from timing import CLOCKS, Pace, Record, compared
from torch import nn

import subspaces as ss
from subspaces.core.memory import keep_memory
from subspaces.evaluation.files import commit, processor

PACKAGE = Path(ss.__file__).parent
WARMUP = 3  # steps before anything is measured
MODES = ("eager", "compiled")


class Variant(NamedTuple):
    """A network or a family in training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], None]
    call: Callable[[], object]

    def run(self, steps: int) -> int:
        """Make so many steps."""
        for _ in range(steps):
            self.step()
        return steps

    @property
    def weights(self) -> int:
        """The bytes of what is trained."""
        return sum(parameter.nbytes for parameter in self.model.parameters())

    @property
    def state(self) -> int:
        """The bytes that the optimiser keeps for each number; its counts of steps are left out."""
        kept = (value for state in self.optimizer.state.values() for value in state.values())
        return sum(value.nbytes for value in kept if isinstance(value, torch.Tensor) and value.ndim)

    def own_calls(self) -> int:
        """Count the calls of functions of this package, without its networks', that one call of the model makes."""
        found = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal found
            file = Path(frame.f_code.co_filename)
            found += event == "call" and file.is_relative_to(PACKAGE) and not file.is_relative_to(PACKAGE / "networks")

        sys.setprofile(count)
        try:
            self.call()
        finally:
            sys.setprofile(None)
        return found

    def peak(self, device: str) -> int:
        """Return the most bytes that weights, optimiser states and all that a step makes take at once."""
        self.optimizer.zero_grad()
        return self.weights + self.state + above(self.step, device)


def make_variant(
    shape: ss.Shape | None,
    mode: str,
    subject: Subject,
    options: argparse.Namespace,
    distributed: bool = False,
    layerwise: bool = False,
) -> Variant:
    """Return what trains one step at a time."""

    def network() -> nn.Module:
        module = subject.make()
        if options.channels_last:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module

    model = (network() if shape is None else ss.Subspace(network, shape, layerwise)).to(options.device)
    low = options.precision == "bfloat16"
    if isinstance(model, ss.Subspace):
        model.cast_weights = low
        model = ss.distribute(model) if distributed else model
    optimizer = subject.optimizer(model.parameters(), not options.distributed)
    inputs, targets = subject.example(options.batch or subject.batch, options.device, options.channels_last)

    def loss() -> torch.Tensor:
        with torch.autocast(options.device, torch.bfloat16, enabled=low):
            value = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        return value + model.penalty() if isinstance(model, ss.Subspace) else value

    objective = torch.compile(loss, dynamic=False) if mode == "compiled" else loss

    def step() -> None:
        optimizer.zero_grad()
        objective().backward()
        optimizer.step()

    return Variant(model, optimizer, step, lambda: model(inputs))


def measure(mode: str, subject: Subject, options: argparse.Namespace, record: Record) -> None:
    """Measure all variants in one mode: first their memory, one by one, then their times, in turns."""
    torch.manual_seed(0)
    variants = {
        name: make_variant(shape, mode, subject, options, layerwise=name.startswith(LAYERWISE))
        for name, shape in subject.shapes.items()
    }
    if options.distributed:
        families = {f"{name}, distributed": shape for name, shape in subject.shapes.items() if shape is not None}
        variants |= {name: make_variant(shape, mode, subject, options, True) for name, shape in families.items()}
    record.content["network"] = origin(variants["plain"].model)
    peaks: dict[str, dict[str, Any]] = {}
    for name, variant in variants.items():
        variant.run(WARMUP)
        peaks[name] = memory(variant, options.device, variants["plain"], peaks.get("plain"))
        peaks[name]["own_calls"] = variant.own_calls()
        told = "peak {peak_mb:,.1f} MB, {over:+.1%} of what it needs, {own_calls} own calls".format(**peaks[name])
        record.add(f"{mode + ',':9} {name:22} {told}", peaks[name], "memory", mode, name)
    pace = Pace(options.rounds, options.steps, options.device, CLOCKS[options.clock])
    times = dict(zip(variants, pace.in_turns(*(variant.run for variant in variants.values())), strict=True))
    for name, milliseconds in times.items():
        row = compared(milliseconds, times["plain"])
        low, high = row["quartiles"]
        line = f"{mode + ',':9} {name:22} {row['ms']:9.2f} ms   {row['ratio']:.3f} of plain   [{low:.3f}, {high:.3f}]"
        record.add(line, row, *(("rows", name) if mode == "eager" else ("rows, compiled", name)))


def memory(variant: Variant, device: str, plain: Variant, first: dict[str, Any] | None) -> dict[str, Any]:
    """Return the peak of a step, and what it needs: the plain network's, and m - 1 times what each vertex adds."""
    peak = variant.peak(device)
    m = variant.model.shape.vertices if isinstance(variant.model, ss.Subspace) else 1
    base = 1e6 * first["peak_mb"] if first else peak
    need = base + (m - 1) * (2 * plain.weights + plain.state)
    parts = {"weights_mb": variant.weights / 1e6, "state_mb": variant.state / 1e6}
    return {"peak_mb": peak / 1e6, "needed_mb": need / 1e6, "over": peak / need - 1, **parts}


def origin(network: nn.Module) -> str:
    """Return where a network comes from: its class with the package that has it."""
    kind = type(network.model if isinstance(network, Logits) else network)
    return f"{kind.__module__}.{kind.__qualname__}"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="cresnet20", choices=NETWORKS)
    parser.add_argument("--size", default="full", choices=SIZES, help="smaller ones have fewer layers of the same kind")
    parser.add_argument("--modes", nargs="+", default=["eager"], choices=MODES, help="compiled: loss and penalty are")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"], help="by autocast")
    parser.add_argument("--batch", type=int, help="by default that of the network")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=1, help="steps of each variant in a round")
    parser.add_argument("--distributed", action="store_true", help="also families that are cut over a group of one")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS), help="processor: where others work too")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--give-back", action="store_true", help="let freed memory go back to the system")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    if options.clock == "processor" and (options.device != "cpu" or options.threads != 1):
        raise SystemExit("--clock processor is that of all threads: expected --device cpu --threads 1 with it")
    torch.set_num_threads(options.threads)
    if not options.give_back:
        keep_memory()
    if options.distributed:
        backend, alone = "nccl" if options.device == "cuda" else "gloo", torch._C._distributed_c10d.HashStore()
        dist.init_process_group(backend, store=alone, rank=0, world_size=1)
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.recompile_limit = 64  # all variants are versions of one function
    hardware = torch.cuda.get_device_name() if options.device == "cuda" else processor()
    settings = {key: value for key, value in vars(options).items() if key != "json"}
    subject = SUBJECTS[options.size][options.network]
    made = {"commit": commit(), "hardware": hardware, "torch": torch.__version__, "settings": settings}
    record = Record(options.json, **made)
    for mode in options.modes:
        measure(mode, subject, options, record)
        torch.compiler.reset()


if __name__ == "__main__":
    main()
