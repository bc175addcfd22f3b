"""The point of a finished run for a new domain: chosen on a few of its images, measured on the others, and kept."""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from subspaces.core import checks, randomness
from subspaces.core.alpha import Alpha
from subspaces.core.selection import Searched, Selection
from subspaces.core.selection.criteria import CRITERIA
from subspaces.errors import ArgumentError
from subspaces.evaluation.measuring import Data, Metrics, measure
from subspaces.evaluation.metrics import METRICS
from subspaces.evaluation.points import GRID, kind
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.rows import About
from subspaces.experiments.evaluating import domains
from subspaces.experiments.evaluating.domains import Domain
from subspaces.experiments.evaluating.run_subject import OneRun, RunSubject, run_subjects
from subspaces.experiments.training import batches as images_of
from subspaces.experiments.training import run_files
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run, RunError
from subspaces.text import one_of

FILE = "selection.json"
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
    corruption: str | None = None,
    severity: int = 3,
    images: Path | None = None,
    examples: int = 100,
    by: str = "nll",
    per: str = "network",
    statistics_batches: int | None = 100,
    seed: int = 0,
    data: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
    trust: bool = False,
) -> RunSelection:
    """Choose the point of a finished run for a new domain, and keep it in the run's folder.

    The domain is a `corruption` of the run's test images, of a `severity` from 1 to 5, or other `images`: the folder of
    published ones of that corruption, or arrays. So many `examples` of it are drawn with the `seed`. The point is
    chosen on these, by "nll", "accuracy" or "entropy", which looks at no labels, one for the "network" or for each
    "layer", and measured on all others, with batch-norm statistics of at most so many training batches. With `trust`
    the network of a run that somebody else has trained is built too.
    """
    check(corruption, severity, images, examples, by, per)
    opened = run if isinstance(run, Run) else Run.open(checks.folder("run", run))
    subject = run_subjects(data, execution or Execution(), trust)(opened)
    if kind(subject.shape) == "single":
        raise ArgumentError(f"{subject.name} is one network, there is nothing to choose from: expected a family")
    domain = domains.domain_of(subject.images_of, corruption, severity, images, subject.execution.device)
    found = _select(subject, domain, examples, statistics_batches, seed, {"by": by, "per": per})
    with opened.locked():
        content = {**dataclasses.asdict(found), "family": subject.checksum}
        run_files.write_json(opened.folder / FILE, content, opened.recipe.key)
    return found


def check(corruption: str | None, severity: int, images: Path | None, examples: int, by: str, per: str) -> None:
    """Refuse what cannot be chosen so, before anything is read."""
    domains.check_domain(corruption, severity, images)
    checks.whole("examples", examples, 2, 10**6)
    one_of("by", by, CRITERIA)
    one_of("per", per, ("network", "layer"))


def read_selection(run: OneRun) -> RunSelection:
    """Return what `subspaces select` has chosen for a run; an error says how to choose where it has not."""
    opened = run if isinstance(run, Run) else Run.open(checks.folder("run", run))
    path = opened.folder / FILE
    again = f"choose again: subspaces select {opened.folder} --corruption fog, say"
    if not run_files.there(path, again):
        raise RunError(f"{opened.folder} has no {FILE}, no point was chosen: write subspaces select {opened.folder} …")
    found = run_files.read_json(path, opened.recipe.key, again)
    if found["family"] != opened.family_checksum:
        raise RunError(f"{opened.folder} was trained anew since its point was chosen: {again}")
    try:
        values = dict(found["selection"])
        values |= {name: Searched(**values[name]) for name in ("best", "worst")}
        rows = tuple(Measured(**row) for row in found["rows"])
        return RunSelection(Selection(**values), found["domain"], found["others"], rows)
    except (KeyError, TypeError) as error:
        raise run_files.damaged(path, f"it holds no selection, {error!r}", again) from None


def _select(
    subject: RunSubject, domain: Domain, examples: int, batches: int | None, seed: int, how: Mapping[str, Any]
) -> RunSelection:
    n = len(domain.images)
    if examples >= n:
        raise ArgumentError(f"examples={examples}: there are {n} images; expected fewer, the others are measured")
    mixed = randomness.permutation(randomness.stream(seed, "selection", _EXAMPLES), n)
    about = (subject.recipe, subject.images_of, subject.execution)
    few, others = (
        images_of.evaluation_batches(domain.images.select(index.sort().values), *about)
        for index in (mixed[:examples], mixed[examples:])
    )
    training, low = images_of.statistics_batches(*about), subject.execution.precision == "bfloat16"
    device = torch.device(subject.execution.device).type
    with torch.autocast(device, torch.bfloat16, enabled=low, cache_enabled=False):
        selection = subject.family.select(few, statistics=training, batches=batches, seed=seed, **how)
    predictor = Predictor(
        subject.family.midpoint(),
        subject.task,
        {"others": others},
        training,
        batches=batches,
        dtype=torch.bfloat16 if low else None,
        seed=seed,
    )
    return RunSelection(selection, domain.words, n - examples, tuple(_rows(subject, selection, predictor)))


def _rows(subject: RunSubject, selection: Selection, predictor: Predictor) -> Iterator[Measured]:
    middle = subject.shape.midpoint().tolist()
    walk: list[Any] = list(GRID)
    if subject.shape.point:
        walk = [*torch.eye(subject.shape.vertices).tolist(), middle]
    yield _measure(subject, predictor, "midpoint", middle)
    yield _measure(subject, predictor, "chosen", selection.alpha)
    walked = [_measure(subject, predictor, "", alpha) for alpha in walk]
    ranked = sorted(walked, key=lambda row: -row.accuracy if selection.by == "accuracy" else row.nll)
    for name, row in (("best", ranked[0]), ("worst", ranked[-1])):
        yield dataclasses.replace(row, name=name)


@torch.no_grad()
def _measure(subject: RunSubject, predictor: Predictor, name: str, alpha: Any) -> Measured:
    weights = subject.family.theta(subject.family.coefficients(alpha))
    wanted = Metrics(About("point", name, []), [0], [METRICS["accuracy"], METRICS["nll"]])
    measure(predictor, [weights], Data("others"), [wanted])
    return Measured(name, alpha, **wanted.tally.values())
