"""The point of a finished run for corrupted images: chosen on a few of them, and measured on the others."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from subspaces.core import checks, randomness
from subspaces.core.alpha import Alpha
from subspaces.core.selection import CRITERIA, Selection
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import CORRUPTIONS, corrupt
from subspaces.evaluation.measuring import Data, Metrics, measure
from subspaces.evaluation.metrics import METRICS
from subspaces.evaluation.points import GRID, kind
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.rows import About
from subspaces.experiments.data import Dataset
from subspaces.experiments.evaluating.run_subject import OneRun, RunSubject, run_subjects
from subspaces.experiments.training import batches as images_of
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run
from subspaces.images.splits import Files, Split
from subspaces.text import one_of

_EXAMPLES = 2  # the part of the stream that says which images are chosen on


@dataclass(frozen=True)
class Measured:
    """A point on the images that it was not chosen on."""

    name: str
    alpha: Alpha
    accuracy: float
    nll: float


@dataclass(frozen=True)
class RunSelection:
    """What was chosen for a new domain, and what that gives on all other images of it."""

    selection: Selection
    domain: str
    others: int  # how many images there were to measure on
    rows: tuple[Measured, ...]  # the midpoint, the chosen point, and with hindsight the best and worst of the walk

    @property
    def alpha(self) -> Alpha:
        """The chosen point, as `family.at` takes it."""
        return self.selection.alpha


def select_run(
    run: OneRun,
    *,
    corruption: str,
    severity: int = 3,
    examples: int = 100,
    by: str = "nll",
    per: str = "network",
    statistics_batches: int | None = 100,
    seed: int = 0,
    data: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
    trust: bool = False,
) -> RunSelection:
    """Choose the point of a finished run for a new domain.

    The domain is a `corruption` of the run's test images, of a `severity` from 1 to 5. So many `examples` of it are
    drawn with the `seed`. The point is chosen on these, by "nll", "accuracy" or "entropy", which looks at no labels,
    one for the "network" or for each "layer", and measured on all others, with batch-norm statistics of at most so many
    training batches.
    """
    check(corruption, severity, examples, by, per)
    opened = run if isinstance(run, Run) else Run.open(checks.folder("run", run))
    subject = run_subjects(data, execution or Execution(), trust)(opened)
    if kind(subject.shape) == "single":
        raise ArgumentError(f"{subject.name} is one network, there is nothing to choose from: expected a family")
    labelled = corrupted(subject.images_of, corruption, severity, subject.execution.device)
    chosen, rows = select(subject, labelled, examples, statistics_batches, seed, {"by": by, "per": per})
    domain = f"test images with {corruption}, severity {severity}"
    return RunSelection(chosen, domain, len(labelled) - examples, rows)


def check(corruption: str, severity: int, examples: int, by: str, per: str) -> None:
    """Refuse what cannot be chosen so, before anything is read."""
    CORRUPTIONS.find(corruption)
    checks.whole("severity", severity, 1, 5)
    checks.whole("examples", examples, 2, 10**6)
    one_of("by", by, CRITERIA)
    one_of("per", per, ("network", "layer"))


def corrupted(dataset: Dataset, corruption: str, severity: int, device: str = "cpu") -> Split:
    """Return the corrupted test images with their labels."""
    if isinstance(dataset.test, Files):
        raise ArgumentError(
            f"corruption={corruption!r}: the images of {dataset.name} are files, which are not corrupted here; "
            "choose on loaders of your own with family.select"
        )
    return Split(corrupt(dataset.test.images.to(device), corruption, severity).cpu(), dataset.test.labels)


def select(
    subject: RunSubject, images: Split, examples: int, batches: int | None, seed: int, how: Mapping[str, Any]
) -> tuple[Selection, tuple[Measured, ...]]:
    """Choose a point on some images of a domain, and measure it on the others."""
    n = len(images)
    if examples >= n:
        raise ArgumentError(f"examples={examples}: there are {n} images; expected fewer, the others are measured")
    mixed = randomness.permutation(randomness.stream(seed, "selection", _EXAMPLES), n)
    about = (subject.recipe, subject.images_of, subject.execution)
    few, others = (
        images_of.evaluation_batches(images.select(index.sort().values), *about)
        for index in (mixed[:examples], mixed[examples:])
    )
    training, low = images_of.statistics_batches(*about), subject.execution.precision == "bfloat16"
    with torch.autocast(subject.family.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
        selection = subject.family.select(few, statistics=training, batches=batches, seed=seed, **how)
    precision: Any = {"dtype": torch.bfloat16 if low else None, "batches": batches, "seed": seed}
    predictor = Predictor(subject.family.midpoint(), subject.task, {"others": others}, training, **precision)

    @torch.no_grad()
    def measured(name: str, alpha: Any) -> Measured:
        wanted = Metrics(About("point", name, []), [0], [METRICS["accuracy"], METRICS["nll"]])
        measure(predictor, [subject.family.theta(subject.family.coefficients(alpha))], Data("others"), [wanted])
        return Measured(name, alpha, **wanted.tally.values())

    middle = subject.shape.midpoint().tolist()
    walk = [*torch.eye(subject.shape.vertices).tolist(), middle] if subject.shape.point else list(GRID)
    rows = [measured("midpoint", middle), measured("chosen", selection.alpha)]
    walked = [measured("", alpha) for alpha in walk]
    walked.sort(key=lambda row: -row.accuracy if selection.by == "accuracy" else row.nll)
    rows += [dataclasses.replace(walked[0], name="best"), dataclasses.replace(walked[-1], name="worst")]
    return selection, tuple(rows)
