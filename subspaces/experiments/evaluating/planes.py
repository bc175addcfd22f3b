"""Networks of runs for planes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from subspaces.core.alpha import to_alpha
from subspaces.errors import ArgumentError
from subspaces.evaluation.plane import Network
from subspaces.evaluation.points import Place, coefficients, kind
from subspaces.evaluation.settings import Settings
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run


def networks_of(settings: Settings, *, data: Any, device: str, workers: int | None, trust: bool) -> list[Network]:
    """Return the networks that a plane goes through, by their names."""
    execution = Execution(device=device, precision=settings.precision, workers=workers)
    open_run = run_subjects(data, execution, trust)
    return [network_of(each, number, open_run) for number, each in enumerate(settings.through, 1)]


def network_of(name: Any, number: int, open_run: Callable[[Run], RunSubject]) -> Network:
    """Return a module, or a network of another run: its folder, perhaps with a point."""
    if isinstance(name, nn.Module):
        return Network(f"network {number}", module=name)
    folder, place = parse_network(name)
    subject = open_run(Run.open(folder))
    shape, label = subject.shape, subject.label
    if place is None:
        return Network.at_middle(subject, label if kind(shape) == "single" else f"{label} midpoint")
    checked = to_alpha(place, shape, shape.midpoint(), outside=True)
    if checked.shape != shape.point:
        raise ArgumentError(f"{str(name)!r}: expected one point of {shape}, {shape.domain}")
    return Network(f"{label} at {str(name).rpartition(':')[2]}", subject, tuple(coefficients(shape, place)))


def parse_network(name: str | os.PathLike[str]) -> tuple[Path, Place | None]:
    """Return the folder of a run and the point that is named with it, `runs/a:0.3`; None for the midpoint."""
    path = Path(name)
    folder, colon, numbers = str(name).rpartition(":")
    if path.is_dir() or not colon:
        return path, None
    try:
        found = [float(number) for number in numbers.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{str(name)!r}: expected a run folder, or one with a point such as {folder}:0.5 or {folder}:0.2,0.3,0.5"
        ) from None
    return Path(folder), found[0] if len(found) == 1 else tuple(found)
