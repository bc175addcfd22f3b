"""What was measured of one family, in hand: the call `evaluate`, and the `Evaluation` that it gives."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from rich.table import Table
from torch import nn

from subspaces.core import checks
from subspaces.core.outputs import Outputs
from subspaces.errors import ArgumentError
from subspaces.evaluation import changes, choices, measuring
from subspaces.evaluation.display import bars
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.metrics import Metric, measured_by
from subspaces.evaluation.plane import Network
from subspaces.evaluation.predictor import Forward
from subspaces.evaluation.record import Alpha, Record, Row
from subspaces.evaluation.run_subject import OneRun, RunSubject, run_subjects, share
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import How, left_alone, subject_of
from subspaces.evaluation.tasks import Task, task_of, with_outputs
from subspaces.experiments.data.dataset import Progress
from subspaces.experiments.opening import Source, ensembles_beside, opened
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.signals import stop_on_signals
from subspaces.reports import figures
from subspaces.reports.page import write_report
from subspaces.reports.table import as_text, outlier_table, shift_table, text_table
from subspaces.text import nearest, one_of


class Evaluation(Record):
    """All that was measured of one family: the walk along it, its answers, ensembles, choices, planes and examples.

    Example:
        >>> evaluation = ss.evaluate(family, test=loader, validation=held_out, statistics=train_loader)
        >>> evaluation["midpoint"].accuracy
        >>> network = family.at(evaluation.best(by="nll", on="validation"))
    """

    @classmethod
    def of(cls, record: Record) -> "Evaluation":
        """Return a record with all that can be done with it."""
        made = cls.__new__(cls)
        made.__dict__ = record.__dict__
        return made

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Evaluation":
        """Return the evaluation of a file that `save` wrote, or of a run folder."""
        return cls.of(Record.read(checks.folder("path", path)))

    def __getitem__(self, answer: str) -> Row:
        """Return the row of an answer on the test examples: `evaluation["midpoint"].accuracy`."""
        found = self.answer(answer) if isinstance(answer, str) else None
        if found is None:
            raise KeyError(
                f"{checks.shown(answer)} was not measured: {nearest(answer, [each.name for each in self.answers])}"
            )
        return found

    def best(self, *, by: str = "nll", on: str = "validation") -> Alpha:
        """Return the best single point by a metric on a split.

        The choice is added to `choices`, with what it gives on every split; one that is made on the test examples is
        marked wherever it is shown, because it flatters.
        """
        if not isinstance(on, str) or on not in self.splits:
            raise ArgumentError(
                f"on={checks.shown(on)}: {nearest(on, self.splits)}; pass validation= to choose on held-out examples"
            )
        self.metric(by)
        found = choices.best(self, on, "point", by, lambda row: row.kind == "point")
        if found is None:
            if sum(row.kind == "point" and row.split == on for row in self.rows) > 1:
                raise ArgumentError(
                    f"{by} is NaN at every point of {self.name} on the {on} examples: check both for NaN"
                )
            raise ArgumentError(f"{self.name} has one point: there is nothing to choose from")
        self.choices = [each for each in self.choices if (each.what, each.by, each.chosen_on) != ("point", by, on)]
        self.choices.append(found)
        alpha: Alpha = found.value
        return alpha

    def table(self, split: str = "test") -> str:
        """Return a table of the answers, and of what was chosen, as text."""
        return text_table([self], one_of("split", split, self.splits))

    def shifted(self, answer: str, name: str, severity: int | None = None) -> Row:
        """Return the row of an answer on shifted data: `evaluation.shifted("midpoint", "fog", 3).accuracy`."""
        return changes.shifted(self, answer, name, severity)

    def shift_table(self) -> str:
        """Return a table of the answers on shifted data, means over all sets, as text."""
        return _written(shift_table([self]), "no answer was measured on shifted data: evaluate with corruptions=")

    def against(self, answer: str, name: str) -> Row:
        """Return the row of an answer against outliers: `evaluation.against("pair", "mnist").auroc_entropy`."""
        return changes.against(self, answer, name)

    def outlier_table(self) -> str:
        """Return a table of how well the answers tell test examples from outliers, as text."""
        return _written(outlier_table([self]), "no answer was measured against outliers: evaluate with outliers=")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a JSON file, which `plot`, `report` and `Evaluation.load` take; return its path."""
        target = checks.folder("path", path)
        self.write(target)
        return target

    def plot(self, name: str, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Draw a figure and return it; with a path it is also written there, as .png or .pdf.

        Args:
            name: of the figure, such as "along", "reliability", "selective", "diversity" or "plane".
            path: where to write it.
            options: metric and split.
        """
        return plot(name, self, path, **options)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a page about it, one HTML file that opens offline in any browser; return its path."""
        return report(self, path)


def _written(table: Table, empty: str) -> str:
    """Return a table as text, or say why there is nothing in it."""
    if not table.row_count:
        raise ArgumentError(empty)
    return as_text(table)


def plot(name: str, what: Source | Iterable[Source], path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """Draw a figure of evaluations, files of such, runs or their folders; with a path it is also written there.

    Args:
        name: of the figure; `subspaces plot --help` lists them.
        what: one of them, or several on the same data.
        path: a .png or .pdf file.
        options: metric, what is shown; split, the examples it was measured on.
    """
    for option, value in {"name": name, **options}.items():
        missing = option == "metric" and value is None
        if option not in ("name", "metric", "split") or not (isinstance(value, str) or missing):
            raise ArgumentError(
                f"plot({option}={checks.shown(value)}): expected name=, metric= and split=, each as text"
            )
    figures.check(name, options.get("metric"))
    figure = figures.draw(name, opened(what, alike=figures.find(name).evaluated), **options)
    if path is not None:
        for target in figures.outputs(name, checks.folder("path", path)):
            figures.save(figure, target)
    return figure


def report(what: Source | Sequence[Source], path: str | os.PathLike[str]) -> Path:
    """Write a page about evaluations, files of such, runs or their folders: one HTML file that opens offline."""
    target, found = checks.folder("path", path), opened(what)
    return write_report([*found, *ensembles_beside(found, target.parent)], target)


Networks = nn.Module | Sequence[nn.Module]


@overload
def evaluate(what: Networks | OneRun, /, **settings: Any) -> Evaluation: ...
@overload
def evaluate(what: Sequence[OneRun], /, **settings: Any) -> list[Evaluation]: ...


def evaluate(
    what: Networks | OneRun | Sequence[OneRun],
    /,
    *,
    test: Iterable[Any] | None = None,
    validation: Iterable[Any] | None = None,
    statistics: Iterable[Any] | None = None,
    task: Task | str | None = None,
    outputs: Outputs | None = None,
    forward: Forward | None = None,
    metrics: Mapping[str, Any] | Iterable[Metric] | None = None,
    name: str | None = None,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    workers: int | None = None,
    trust: bool = False,
    progress: bool | Progress = True,
    **settings: Any,
) -> Evaluation | list[Evaluation]:
    """Measure a family of networks: points along it, ensembles, calibration, diversity, planes, and the best point.

    A family, a plain network, a list of networks or an `Ensemble` is measured on loaders. A run folder brings its own
    data: what is there of it already is not measured again, what was interrupted continues, and the numbers are also
    `evaluation.json` in its folder. Processes with runs in common share them, as in `train`.

    Args:
        what: a `Subspace`, a network, several networks, or a finished run, its folder, or several of either.
        test: batches that are reported: (inputs, target), dicts with "labels", or whatever the task says. They must
            come in the same order each time.
        validation: held-out batches, on which points, a threshold and temperatures are chosen.
        statistics: training batches, from which batch-norm statistics are made anew at every point of a family, and
            for copies of plain networks with batch norm.
        task: `Classification()` (also of="tokens" or "pixels"), `Regression()`, or a `Task` of your own.
        outputs: what a classifier returns: "logits", "probabilities" (where it ends in a softmax or sigmoid) or
            "log-probabilities"; short for task=Classification(outputs=…). By default logits, and what looks like
            probabilities on the first batch is refused.
        forward: runs a network on a batch and returns its output, `forward(network, batch)`, where a batch is not
            (inputs, target) or a dict of inputs and labels, such as ((x, h), y).
        metrics: more metrics, by name: of torchmetrics, or `Metric`s.
        name: what the family is called in tables, figures and pages.
        data: the folder with the data sets of runs.
        device: for runs, "cpu", "cuda", …; "auto" takes a GPU if there is one. A family is measured where it is.
        workers: processes that read the image files of a run.
        trust: also call the network factories (`package.module:factory`) of runs that somebody else has trained.
        progress: True for bars, False for none, or a function of (what, done, total).
        settings: any field of `evaluation.settings.Settings`, such as grid=[0, 0.5, 1], plane=True or choose_on="test".
            Of them corruptions is shifted test data: "all", names such as ["fog"], `Corruptions`, a folder such as that
            of CIFAR-10-C, or loaders {name: loader} or {name: {severity: loader}} of any data. And outliers is data of
            no known class: a loader, {name: loader}, or for a run the name of another data set.

    Example:
        >>> evaluation = ss.evaluate(family, test=loader, validation=held_out, statistics=train_loader)
        >>> evaluation = ss.evaluate("runs/digits-line-seed0-…")
    """
    wanted = Settings.of(settings)
    checks.flag("trust", trust)
    if name is not None and not isinstance(name, str):
        raise ArgumentError(f"name={checks.shown(name)}: expected text, what the family is called in tables")
    if not isinstance(progress, bool):
        checks.function("progress", progress, "True, False, or a function of (what, done, total)")
    own: dict[str, Any] = {"test": test, "validation": validation, "statistics": statistics, "task": task}
    own |= {"outputs": outputs, "forward": forward, "metrics": metrics}
    networks = _networks(what)
    if networks and test is None:
        raise ArgumentError("evaluate got a network without test=: expected the loader that it is measured on")
    for option, value in own.items():
        if value is not None and not networks:
            raise ArgumentError(
                f"{option}={checks.shown(value)}: a run brings its own; expected it with a network only"
            )
    execution = Execution(device=device, precision=wanted.precision, workers=workers).resolved()
    if not networks:
        found = evaluate_runs(what, wanted, data=data, execution=execution, trust=trust, progress=progress)
        return found[0] if isinstance(what, (Run, str, os.PathLike)) else found
    loaders = {split: checks.batches(split, own[split]) for split in ("test", "validation") if own[split] is not None}
    chosen = with_outputs(task_of(task), outputs)
    if forward is not None:
        checks.function("forward", forward, "a function of (network, batch) that returns the network's output")
    statistics = None if statistics is None else checks.batches("statistics", statistics)
    subject = subject_of(networks, chosen, loaders, statistics, name, How(wanted.precision, forward))
    measured = measured_by(chosen.metrics, metrics)
    open_run = run_subjects(data, execution, trust)
    others = [Network.named(each, number, open_run) for number, each in enumerate(wanted.through, 1)]
    measuring.check(subject, wanted, others)
    with bars(progress) as shown, left_alone(networks):
        return Evaluation.of(measuring.measure_all(Journal(subject, measured, wanted), others, shown))


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
    """Measure what is missing of finished runs, as `evaluate` does; `command` is the command line that asks for it."""
    several = checks.all_of("evaluate", what, (Run, str, os.PathLike), "a run, its folder, or several of them")
    known = [one for one in several if isinstance(one, Run) or Run.begun([one])]
    if several and not known:
        raise ArgumentError(f"{several[0]}: holds no run that was begun; expected the folder of a finished one")
    opened = [one if isinstance(one, Run) else Run.open(checks.folder("evaluate", one)) for one in known]
    open_run = run_subjects(data, execution, trust)
    subjects = list(dict.fromkeys(open_run(run) for run in opened))
    others = [Network.named(each, number, open_run) for number, each in enumerate(settings.through, 1)]
    for one in subjects:
        measuring.check(one, settings, others)
    with stop_on_signals() as stop, bars(progress, stop) as shown:

        def work(one: RunSubject) -> Evaluation:
            journal = Journal(one, one.task.metrics, settings)
            journal.note(
                command="\n".join(dict.fromkeys(filter(None, [*journal.record.command.splitlines(), command])))
            )
            found = measuring.measure_all(journal, others, shown)
            one.release()
            return Evaluation.of(found)

        return share(subjects, work, stop)


def _networks(what: Any) -> list[nn.Module]:
    """Return the networks that are to be measured; none if it is runs that are."""
    several = list(what) if isinstance(what, (list, tuple)) else [what]
    return several if all(isinstance(each, nn.Module) for each in several) else []
