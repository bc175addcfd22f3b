"""Calls that know all of the package: evaluations with their tables, figures and pages, of networks and of runs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch import nn

from subspaces.core import checks
from subspaces.core.outputs import Outputs
from subspaces.errors import ArgumentError
from subspaces.evaluation import evaluation, session
from subspaces.evaluation.display import Progress, bars
from subspaces.evaluation.metrics import Metric, measured_by
from subspaces.evaluation.plane import Network
from subspaces.evaluation.predictor import Forward
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import restoring, subject_of
from subspaces.evaluation.tasks import Task, task_of, with_outputs
from subspaces.text import one_of

if TYPE_CHECKING:
    from subspaces.experiments.training import Run

    OneRun = Run | str | os.PathLike[str]

Networks = nn.Module | Sequence[nn.Module]


class Evaluation(evaluation.Evaluation):
    """All that was measured of one family: the walk along it, its answers, ensembles, choices, planes and examples.

    Example:
        >>> evaluation = ss.evaluate(family, test=loader, validation=held_out, statistics=train_loader)
        >>> evaluation["midpoint"].accuracy
        >>> evaluation.frame[["data", "role", "alpha", "accuracy"]]
        >>> network = family.at(evaluation.best(by="nll", on="validation"))
        >>> evaluation.splits, evaluation.metric("nll").label
        (['test', 'validation'], 'NLL')
        >>> evaluation.answer("midpoint", "validation").metrics["ece"], evaluation.answer("random")
        (..., None)
        >>> path = evaluation.save("evaluation.json")
        >>> ss.Evaluation.load(path).family == evaluation.family
        True
    """

    def table(self, on: str = "test") -> str:
        """Return a table of the answers on a split, and of what was chosen, as text.

        On "shifted" data it has means over all sets, and on "outliers" how well they are told from test examples.

        Example:
            >>> print(evaluation.table(on="validation"))
        """
        from subspaces.reports import tables

        others = {"shifted": tables.shift_table, "outliers": tables.outlier_table}
        if one_of("on", on, [*self.splits, *others]) not in others:
            return tables.as_text(tables.filled([self], on))
        if not (found := others[on]([self])).row_count:
            raise ArgumentError(f"on={on!r}: no answer was measured there: evaluate with corruptions= or outliers=")
        return tables.as_text(found)

    def plot(self, name: str, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Draw a figure, such as "along", "reliability" or "plane"; see `subspaces.plot`.

        Example:
            >>> figure = evaluation.plot("along", "along.png", metric="nll")
        """
        return plot(name, self, path, **options)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a page about it, one HTML file that opens offline in any browser; return its path.

        Example:
            >>> path = evaluation.report("report.html")
        """
        return report(self, path)


def plot(
    name: str, what: Any, path: str | os.PathLike[str] | None = None, *, metric: str | None = None, split: str = "test"
) -> Any:
    """Draw a figure of evaluations, files of such, runs or their folders; with a path it is also written there.

    Args:
        name: of the figure; `subspaces plot --help` lists them.
        what: one of them, or several on the same data.
        path: a .png or .pdf file.
        metric: what is shown, of figures that have a choice.
        split: the examples it was measured on.

    Example:
        >>> figure = ss.plot("along", [evaluation, "evaluation.json"], metric="accuracy", split="validation")
    """
    from subspaces.reports import figures

    figures.check(name, metric)
    figure = figures.draw(name, _opened(what, figures.find(name).evaluated)[0], metric=metric, split=split)
    if path is not None:
        for target in figures.outputs(name, checks.folder("path", path)):
            figures.save(figure, target)
    return figure


def report(what: Any, path: str | os.PathLike[str]) -> Path:
    """Write a page about evaluations, files of such, runs or their folders: one HTML file that opens offline.

    Example:
        >>> path = ss.report(["evaluation.json"], "report.html")
    """
    from subspaces.reports.page import write_report

    target = checks.folder("path", path)
    found, beside = _opened(what, True, target.parent)
    return write_report([*found, *beside], target)


def _opened(what: Any, alike: bool, *folders: Path) -> tuple[list[evaluation.Evaluation], list[evaluation.Evaluation]]:
    """Return evaluations, also of runs and files, and the ensembles of runs beside them."""
    several = what if isinstance(what, (list, tuple)) else [what]
    own = [one for one in several if isinstance(one, evaluation.Evaluation) and one.recipe is None]
    if own and len(own) == len(several):
        return own, []
    from subspaces.experiments.evaluating.evaluate import ensembles_beside
    from subspaces.experiments.opening import opened

    found = opened(what, alike=alike)
    return found, ensembles_beside(found, *folders)


@overload
def evaluate(what: "Networks | OneRun", /, **settings: Any) -> Evaluation: ...
@overload
def evaluate(what: "Sequence[OneRun]", /, **settings: Any) -> list[Evaluation]: ...


def evaluate(
    what: Any,
    /,
    *,
    test: Iterable[Any] | None = None,
    validation: Iterable[Any] | None = None,
    statistics: Iterable[Any] | None = None,
    task: Task | str | None = None,
    outputs: Outputs | None = None,
    forward: Forward | None = None,
    metrics: Iterable[Metric] | None = None,
    name: str | None = None,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
    **settings: Any,
) -> Evaluation | list[Evaluation]:
    """Measure a family of networks: points along it, ensembles, calibration, diversity, planes, and the best point.

    A run folder brings its own data: what is there of it already is not measured again, what was interrupted continues,
    and the numbers are also `evaluation.json` in its folder. Processes with runs in common share them, as in `train`.

    Args:
        what: a `Subspace`, a network, several networks, or a finished run, its folder, or several of either.
        test: batches that are reported: (inputs, target), dicts with "labels", or whatever the task says. They must
            come in the same order each time.
        validation: held-out batches, on which points and temperatures are chosen.
        statistics: training batches, from which batch-norm statistics are made anew at every point of a family, and
            for copies of plain networks with batch norm.
        task: `Classification()` (also of="tokens" or "pixels"), `Regression()`, or a `Task` of your own.
        outputs: what a classifier returns, short for task=Classification(outputs=…): "logits", "probabilities" or
            "log-probabilities". By default logits, and what looks like probabilities is refused.
        forward: `forward(network, batch)` returns the output, where a batch is neither (inputs, target) nor a dict.
        metrics: more metrics, each a `Metric`.
        name: what the family is called in tables, figures and pages.
        data: the folder with the data sets of runs.
        device: for runs, "cpu", "cuda", …; "auto" takes a GPU if there is one. A family is measured where it is.
        workers: processes that read the image files of a run.
        trust: also call the network factories (`package.module:factory`) that run folders name.
        progress: True for bars, False for none, or a function of (what, done, total).
        settings: any field of `evaluation.settings.Settings`, such as grid=[0, 0.5, 1], plane=True, corruptions="all"
            (or names, `Corruptions`, {name: loader}, {name: {severity: loader}}), or outliers=loader (data of no known
            class; also {name: loader}).

    Example:
        >>> evaluation = ss.evaluate(family, test=loader, validation=held_out, statistics=train_loader)
        >>> corners = ss.Subspace.from_modules([net, other, third], ss.Simplex(3))
        >>> plane = ss.evaluate(corners, test=loader, statistics=train_loader, plane=True, cells=5)
    """
    wanted = Settings.of(settings)
    checks.flag("trust", trust)
    if name is not None and not isinstance(name, str):
        raise ArgumentError(f"name={checks.shown(name)}: expected text, what the family is called in tables")
    if not isinstance(progress, bool):
        checks.function("progress", progress, "True, False, or a function of (what, done, total)")
    own: dict[str, Any] = {"test": test, "validation": validation, "statistics": statistics}
    own |= {"task": task, "outputs": outputs, "forward": forward, "metrics": metrics}
    runs: dict[str, Any] = {"data": data, "device": device, "workers": workers, "trust": trust}
    networks = [what] if isinstance(what, nn.Module) else list(what) if isinstance(what, (list, tuple)) else []
    if not networks or not all(isinstance(each, nn.Module) for each in networks):
        _refuse(own, {}, "a run brings its own; expected it with a network only")
        from subspaces.experiments.evaluating.evaluate import evaluate as evaluate_runs

        found = evaluate_runs(what, wanted, progress=progress, **runs)
        made = [Evaluation(**vars(each)) for each in (found if isinstance(found, list) else [found])]
        return made if isinstance(found, list) else made[0]
    if test is None:
        raise ArgumentError("evaluate got a network without test=: expected the loader that it is measured on")
    _refuse(runs, {"device": "auto", "trust": False}, "it is for runs; a network is measured where it is")
    if named := [str(each) for each in wanted.through if not isinstance(each, nn.Module)]:
        raise ArgumentError(f"through={named}: a network is no run; expected networks, such as ss.load(…).midpoint()")
    chosen = with_outputs(task_of(task), outputs)
    if forward is not None:
        checks.function("forward", forward, "a function of (network, batch) that returns the network's output")
    batches = {split: checks.batches(split, own[split]) for split in list(own)[:3] if own[split] is not None}
    statistics = batches.pop("statistics", None)
    subject = subject_of(networks, chosen, batches, statistics, name, wanted.precision, forward)
    others = [Network(f"network {number}", module=each) for number, each in enumerate(wanted.through, 1)]
    session.check(subject, wanted, others)
    measured = measured_by(chosen.metrics, metrics)
    with bars(progress) as shown, restoring(networks):
        return Evaluation(**vars(session.evaluate(subject, measured, wanted, others, shown)))


def _refuse(options: Mapping[str, Any], usual: Mapping[str, Any], why: str) -> None:
    """Refuse the first option that is not as usual, by default None."""
    for option, value in options.items():
        if value is not None and (option not in usual or value != usual[option]):
            raise ArgumentError(f"{option}={checks.shown(value)}: {why}")
