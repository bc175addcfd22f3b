"""CUDA graphs of work that is done again and again."""

from collections.abc import Callable
from typing import TypeVar

import torch

WARMUP = 2
R = TypeVar("R")


def captured(
    work: Callable[[], R],
    device: torch.device,
    stream: torch.cuda.Stream | None = None,
    warm_up: Callable[[], None] | None = None,
    kernels: int = 10,
) -> tuple[torch.cuda.CUDAGraph, R]:
    """Record work as a CUDA graph, which costs one launch from then on; return it and what the work returns.

    That is tensors, which a replay fills anew.

    Args:
        work: waits for nothing, and changes only tensors that stay where they are.
        device: where it runs.
        stream: on which it is recorded; by default on a new one.
        warm_up: runs before, so that nothing is made or measured for the first time while it is recorded; by default
            the work itself, twice.
        kernels: how many of its kernels cuDNN tries in that time; 0 for all.
    """
    stream = stream or torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    graph = torch.cuda.CUDAGraph()
    cudnn = torch.backends.cudnn
    kept = {"deterministic": cudnn.deterministic, "allow_tf32": cudnn.allow_tf32}
    with cudnn.flags(enabled=True, benchmark=True, benchmark_limit=kernels, **kept):
        with torch.cuda.stream(stream):
            for run in [work] * WARMUP if warm_up is None else [warm_up]:
                run()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            result = work()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph, result
