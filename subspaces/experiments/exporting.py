"""Finished runs as exports and as models: a run brings its family, its data, and the facts for the card."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.core.selection.selection import shown
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import ANSWERS
from subspaces.evaluation.display import Progress
from subspaces.evaluation.environment import commit
from subspaces.evaluation.evaluation import FILE
from subspaces.evaluation.points import plan
from subspaces.evaluation.tasks import Classification
from subspaces.experiments.data import Files
from subspaces.experiments.evaluating.integrity import measured_of
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects
from subspaces.experiments.evaluating.selection import read_selection
from subspaces.experiments.training.batches import statistics_batches, statistics_seed
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run
from subspaces.export import ExportError
from subspaces.export.arguments import Chosen, Inputs, Point, choose, together
from subspaces.export.exporting import check_format, check_target, versions, write
from subspaces.export.making import Export
from subspaces.export.predicting import Model
from subspaces.images.decoding import centre_view, decode

CHECKED = 32  # images that an export is checked with
RESIZE = 256  # of image files, before their centre is cut out
OneRun = Run | str | os.PathLike[str]


def export_run(
    what: OneRun,
    path: str | os.PathLike[str] | None = None,
    *,
    point: Point = "midpoint",
    format: Any = None,
    statistics_batches: int | None = None,
    data: str | os.PathLike[str] | None = None,
    trust: bool = False,
    progress: Progress,
) -> Path:
    """Write a point of a run, several or all as one file with a card; return its path."""
    target, chosen_format = None if path is None else check_target(path), check_format(format, path)
    run = what if isinstance(what, Run) else Run.open(checks.folder("export", what))
    export = _export(run, point, statistics_batches, data, trust, chosen_format == "safetensors")
    export.measured = _measured(run, export.chosen)
    name = f"{run.folder.name}-{export.chosen.short}.{chosen_format}"
    return write(export, target or check_target(name), chosen_format, progress)


def model_of(
    folder: Path, point: Point | None, data: str | os.PathLike[str] | None, trust: bool, progress: Progress
) -> Model:
    """Return a point of a run as what predicts."""
    if isinstance(point, str) and point == "family":
        raise ArgumentError("point='family': which network shall answer? Expected 'midpoint' or a point such as 0.3")
    export = _export(Run.open(folder), "midpoint" if point is None else point, None, data, trust)
    export.make(progress)
    return Model(folder, export.about, export.program)


@dataclass(frozen=True)
class _Batches:
    """The training batches for statistics, in the same order each time."""

    subject: RunSubject

    def __iter__(self) -> Iterator[Any]:
        subject = self.subject
        return iter(statistics_batches(subject.recipe, subject.images_of, subject.execution))


def _export(
    run: Run, point: Any, batches: int | None, data: str | os.PathLike[str] | None, trust: bool, weights: bool = False
) -> Export:
    """Return points of a run as an export that is still to be made."""
    if batches is not None:
        checks.whole("statistics_batches", batches, 1, 10**6)
    subject = run_subjects(data, Execution(device="cpu", precision="float32"), trust)(run)
    images, recipe, starts = subject.images_of, subject.recipe, run.starts()
    facts = {
        "name": run.folder.name,
        "network": recipe.network,
        "dropout": recipe.dropout,
        "classes": tuple(images.classes),
        "image_shape": tuple(images.image_shape),
        "mean": tuple(map(float, images.mean)),
        "std": tuple(map(float, images.std)),
        "resize": RESIZE if images.streaming else 0,
        "dataset": images.name,
        "recipe": recipe.to_dict(),
        "commit": str((starts[-1] if starts else {}).get("commit") or "unknown"),
        "versions": {**versions(), "commit": commit() or "unknown"},
    }
    return Export(
        subject.family,
        _chosen(subject, point),
        Inputs((_example(images.test),), {}, ("images",)),
        Classification(),
        given=True,
        facts=facts,
        weights=weights,
        statistics=_Batches(subject),
        batches=batches,
        seed=statistics_seed(recipe),
    )


def _chosen(subject: RunSubject, point: Any) -> Chosen:
    """Return the points that are meant, of which a run knows two by name."""
    if isinstance(point, str) and point == "selected":
        return _selected(subject.run)
    if not (isinstance(point, str) and point == "ensemble"):
        return choose(point, subject.shape, subject.terms.middle)
    family = subject.terms._replace(walk=plan(subject.shape, seed=subject.seed))
    for answer in map(ANSWERS.find, subject.answers):
        item = answer.item(family)
        if item is not None and len(item.places) > 1 and not item.masks:
            alphas = [list(place) if isinstance(place, tuple) else place for place in item.places]
            return together(alphas, answer.words(family, item))
    raise ExportError(
        "point='ensemble': this method answers with one network; give the points that answer together, such as "
        "point=[0.1, 0.9] (--point 0.1 --point 0.9)"
    )


def _selected(run: Run) -> Chosen:
    """Return the point that `subspaces select` has chosen for a run."""
    found = read_selection(run)
    by, rows = found.selection.by, {row.name: row for row in found.rows}
    measured = (f"{name} {100 * row.accuracy:.2f} % right, NLL {row.nll:.4f}" for name, row in rows.items())
    note = (
        f"Selected by {by} on {found.selection.examples:,} examples of {found.domain}. On the {found.others:,} others: "
        f"{'; '.join(measured)}. Best and worst are of the walk, known with hindsight."
    )
    words = f"the point {shown(found.alpha)}, selected for {found.domain}"
    return Chosen("network", words, "selected", (found.alpha,), note)


def _example(split: Any) -> Tensor:
    """Return some test images in [0, 1]."""
    if isinstance(split, Files):
        views = [centre_view(decode(split.path(index)), RESIZE, 224) for index in range(min(CHECKED, len(split)))]
        return torch.stack([torch.from_numpy(view.copy()).permute(2, 0, 1) for view in views]).float() / 255
    return split.images[:CHECKED].float() / 255  # type: ignore[no-any-return]


def _measured(run: Run, chosen: Chosen) -> dict[str, Any]:
    """Return the rows of the run's evaluation that are about some points, as text; empty if there are none."""
    if not (run.folder / FILE).exists():
        return {}
    record, family = measured_of(run), chosen.kind == "family"
    average = "probabilities" if chosen.kind == "ensemble" else None
    points = sorted(map(str, chosen.alphas))
    rows = [row for row in record.rows if not row.group and row.role != "dropout" and row.networks == len(row.alphas)]
    if family:
        rows = [row for row in rows if row.kind == "point"]
    else:
        same = (row for row in rows if row.average == average and sorted(map(str, row.alphas)) == points)
        rows = list({row.split: row for row in same}.values())
    if not rows:
        return {}
    metrics = [each for each in record.metrics if each.name in rows[0].metrics]
    cells = [[row.split, f"{row.count:,}", *(each.shown(row.metrics[each.name]) for each in metrics)] for row in rows]
    head = ["split", "images", *(each.title for each in metrics)]
    if family:
        head, cells = ["alpha", *head], [[shown(row.alphas[0]), *line] for row, line in zip(rows, cells, strict=True)]
    return {"head": head, "rows": cells, "note": "; ".join(f"{each.label}, {each.meaning}" for each in metrics)}
