"""Finished runs as exports: a run brings its family, its data, and the facts for the card."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.core.selection import shown
from subspaces.errors import ArgumentError
from subspaces.evaluation.evaluation import FILE
from subspaces.evaluation.files import commit
from subspaces.evaluation.tasks import Classification
from subspaces.experiments.data import Files
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects
from subspaces.experiments.opening import measured_of
from subspaces.experiments.training.batches import statistics_batches, statistics_seed
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run
from subspaces.export.description import Chosen, choose
from subspaces.export.exporting import Export, versions
from subspaces.export.program import Inputs
from subspaces.images.decoding import centre_view

CHECKED = 32  # images that an export is checked with
RESIZE = 256  # of image files, before their centre is cut out


@dataclass(frozen=True)
class _Batches:
    """The training batches for statistics, in the same order each time."""

    subject: RunSubject
    most: int | None

    def __iter__(self) -> Iterator[Any]:
        subject = self.subject
        return islice(statistics_batches(subject.recipe, subject.images_of, subject.execution), self.most)


def of_run(
    what: Run | str | os.PathLike[str],
    point: Any,
    weights: bool,
    batches: int | None = None,
    data: str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> Export:
    """Return points of a run as an export that is still to be made."""
    if not isinstance(what, (Run, str, os.PathLike)):
        raise ArgumentError(f"export got {checks.shown(what)}: expected a network, a Subspace, a run or its folder")
    if batches is not None:
        checks.whole("statistics_batches", batches, 1, 10**6)
    run = what if isinstance(what, Run) else Run.open(checks.folder("export", what))
    subject = run_subjects(data, Execution(device="cpu", precision="float32"), trust)(run)
    images, recipe, starts = subject.images_of, subject.recipe, run.starts()
    facts = {
        "name": run.folder.name,
        "network": recipe.network,
        "classes": tuple(images.classes),
        "image_shape": tuple(images.image_shape),
        "mean": tuple(map(float, images.mean)),
        "std": tuple(map(float, images.std)),
        "resize": RESIZE if isinstance(images.train, Files) else 0,
        "dataset": images.name,
        "recipe": recipe.to_dict(),
        "commit": str((starts[-1] if starts else {}).get("commit") or "unknown"),
        "versions": {**versions(), "commit": commit() or "unknown"},
    }
    chosen = choose(point, subject.shape, len(subject.family.layers), subject.terms.middle)
    return Export(
        subject.family,
        chosen,
        Inputs.of(subject.family.template, _example(images.test)),
        Classification(),
        facts=facts,
        weights=weights,
        statistics=_Batches(subject, batches),
        seed=statistics_seed(recipe),
        measured=_measured(run, chosen),
    )


def _example(split: Any) -> Tensor:
    """Return some test images in [0, 1]."""
    if isinstance(split, Files):
        views = [centre_view(split.path(index), RESIZE, 224) for index in range(min(CHECKED, len(split)))]
        return torch.stack([torch.from_numpy(view.copy()).permute(2, 0, 1) for view in views]).float() / 255
    return split.images[:CHECKED].float() / 255  # type: ignore[no-any-return]


def _measured(run: Run, chosen: Chosen) -> dict[str, Any]:
    """Return the rows of the run's evaluation that are about some points, as text; empty if there are none."""
    if not (run.folder / FILE).exists():
        return {}
    record, family = measured_of(run), chosen.kind == "family"
    average = "probabilities" if chosen.kind == "ensemble" else None
    points = sorted(map(str, chosen.alphas))
    rows = [row for row in record.rows if not row.group]
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
