"""Evaluating finished runs: what is there of them already is not measured again, and processes share them."""

import os
from collections.abc import Callable
from typing import Any

from torch import nn

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation import session
from subspaces.evaluation.display import Progress, bars
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.plane import Network
from subspaces.evaluation.points import kind
from subspaces.evaluation.settings import Settings
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects, share
from subspaces.experiments.locks import stop_on_signals
from subspaces.experiments.training import Execution, Run


def evaluate(
    what: Any,
    settings: Settings | None = None,
    /,
    *,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
    **more: Any,
) -> Any:
    """Measure a run and return its evaluation, or several runs and return a list; see `subspaces.evaluate`."""
    wanted = settings or Settings.of(more)
    execution = Execution(device=device, precision=wanted.precision, workers=workers).resolved()
    found = evaluate_runs(what, wanted, data=data, execution=execution, trust=trust, progress=progress)
    return found[0] if isinstance(what, (Run, str, os.PathLike)) else found


def evaluate_runs(
    what: Any,
    settings: Settings,
    *,
    data: str | os.PathLike[str] | None,
    execution: Execution,
    trust: bool,
    progress: bool | Progress,
    command: str = "",
) -> list[Evaluation]:
    """Measure what is missing of finished runs, as `evaluate` does."""
    several = checks.all_of("evaluate", what, (Run, str, os.PathLike), "a run, its folder, or several of them")
    known = [one for one in several if isinstance(one, Run) or Run.begun([one])]
    if several and not known:
        raise ArgumentError(f"{several[0]}: holds no run that was begun; expected the folder of a finished one")
    opened = [one if isinstance(one, Run) else Run.open(checks.folder("evaluate", one)) for one in known]
    open_run = run_subjects(data, execution, trust)
    subjects = list(dict.fromkeys(open_run(run) for run in opened))
    others = [_network(each, number, open_run) for number, each in enumerate(settings.through, 1)]
    for one in subjects:
        session.check(one, settings, others)
    with stop_on_signals() as stop, bars(progress, stop.raise_if_stopped) as shown:

        def work(one: RunSubject) -> Evaluation:
            found = session.evaluate(one, one.task.metrics, settings, others, shown, command)
            one.release()
            return found

        return share(subjects, work, stop)


def _network(through: Any, number: int, open_run: Callable[[Run], RunSubject]) -> Network:
    """Return a module, or the midpoint of another run."""
    if isinstance(through, nn.Module):
        return Network(f"network {number}", module=through)
    subject = open_run(Run.open(through))
    label = subject.label if kind(subject.shape) == "single" else f"{subject.label} midpoint"
    return Network.at_middle(subject, label)
