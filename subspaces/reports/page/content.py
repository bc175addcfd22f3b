"""Everything that the page shows, as plain data, from the records and logs of runs."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from subspaces.evaluation.cache import Measured
from subspaces.experiments.training.runs import RunError
from subspaces.reports.answers import Answer, answers, headed, of_these
from subspaces.reports.measures import shared, usual
from subspaces.reports.page.commands import folders
from subspaces.reports.page.notes import common_seeds, examples_of, notes, trained_with
from subspaces.reports.page.numbers import described, numbers
from subspaces.reports.page.run_section import kind_of, run_section, shown_rows
from subspaces.reports.page.shift_section import outliers_section, shift_section
from subspaces.reports.page.words import duration, seeded, summary
from subspaces.reports.reading import Curve, Group, Reading
from subspaces.text import listed
from subspaces.version import __version__

PICTURES = 24  # per run, fewer where there are many runs


def page(groups: Sequence[Group], measured: Iterable[Measured] = ()) -> dict[str, Any]:
    """Return the content of the page of these runs, and of what was measured of several of them together."""
    runs = [run for group in groups for run in group.runs]
    split, images = _split(runs)
    together = of_these(measured, groups, split, images)
    found = [answers(group, split, together) for group in groups]
    every = [answer for several in found for answer in several]
    pictures = max(4, min(PICTURES, 200 // len(runs)))
    dataset, known, common = runs[0].record.dataset, folders(runs), common_seeds(groups)
    metrics = shared([run.record for run in runs])
    if not metrics:
        raise RunError("the evaluations have no metric in common: expected those of one task")
    names = [each.name for each in metrics]
    content = {
        "title": _title(groups, dataset["name"]),
        "subtitle": _subtitle(groups, split, images),
        "split": split,
        "images": images,
        "what": examples_of(groups),
        "classes": list(map(str, dataset["classes"])),
        "metrics": [described(each, images) for each in metrics],
        "told": [names.index(each.name) for each in usual(groups)],
        "summary": summary(groups, split, images, together),
        "notes": notes(groups, every, split, images),
        "compared": seeded(sorted(common)) if any(set(group.seeds) != common for group in groups) else "",
        "facts": [_fact(answer, common, names) for answer in every],
        "groups": [_group(group, mine, split, names) for group, mine in zip(groups, found, strict=True)],
        "shift": shift_section(groups, split, examples_of(groups), names),
        "outliers": outliers_section(groups, split, examples_of(groups), images),
        "runs": [
            run_section(run, index, split, pictures, known, names)
            for index, group in enumerate(groups)
            for run in group.runs
        ],
    }
    return {name: short(part) for name, part in content.items()}


def short(value: Any, digits: int = 6) -> Any:
    """Return numbers with so many digits, however deep they lie; what is not a number becomes None."""
    if isinstance(value, dict):
        return {name: part if name == "alpha" else short(part, digits) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [short(part, digits) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def _split(runs: Iterable[Reading]) -> tuple[str, int]:
    """Return the split that all runs were evaluated on, test before others, and how many images it has."""
    found = []
    for run in runs:
        found.append({row.split: row.count for row in run.record.rows if row.kind == "point"})
        if not found[-1]:
            raise RunError(f"{run.folder} has no evaluated point: run `subspaces evaluate {run.folder}`")
    common = [split for split in found[0] if all(split in splits for splits in found)]
    if not common:
        raise RunError("the runs were evaluated on different splits: evaluate them alike")
    split = "test" if "test" in common else common[0]
    return split, found[0][split]


def _title(groups: Sequence[Group], dataset: str) -> str:
    names = [group.label if group.recipe is None else group.recipe.method for group in groups]
    return ": ".join(part for part in (dataset, listed(dict.fromkeys(names))) if part)


def _subtitle(groups: Sequence[Group], split: str, images: int) -> str:
    recipes = [group.recipe for group in groups if group.recipe is not None]
    networks = listed(dict.fromkeys(recipe.network for recipe in recipes))
    epochs = listed(dict.fromkeys(str(recipe.epochs) for recipe in recipes))
    count = sum(len(group.runs) for group in groups)
    noise = listed(dict.fromkeys(f"{recipe.label_noise:.0%}" for recipe in recipes if recipe.label_noise))
    parts = [
        *([f"network {networks}", f"{epochs} epochs"] if recipes else []),
        *([f"{noise} of the training labels random"] if noise else []),
        f"{count} {'run' if recipes else 'evaluation'}{'s' if count > 1 else ''}",
        f"{split} split, {images:,} {examples_of(groups)}",
        f"made {datetime.now(UTC):%Y-%m-%d} by subspaces {__version__}",
    ]
    return " · ".join(parts)


def _fact(answer: Answer, common: set[int], metrics: Sequence[str]) -> dict[str, Any]:
    """Return a row of the first table; `compared` are those with the seeds that most have."""
    group, compared = answer.group, set(answer.group.seeds) == common
    seconds = [run.training_seconds for run in group.runs]
    known = [answer.runs * each for each in seconds if each is not None]
    mean = sum(known) / len(known) if len(known) == len(seconds) else None
    return {
        "group": group.label,
        "heading": group.label if compared else f"{group.label} – {trained_with(group)}, not compared",
        "way": answer.name if answer.seeds == set(group.seeds) else f"{answer.name} ({seeded(sorted(answer.seeds))})",
        "seeds": sorted(answer.seeds),
        "compared": answer.seeds == common,
        "networks": answer.networks,
        "runs": answer.runs,
        "seconds": mean,
        "time": "–" if mean is None else duration(mean),
        **numbers(answer, metrics),
    }


def _group(group: Group, found: Sequence[Answer], split: str, metrics: Sequence[str]) -> dict[str, Any]:
    alpha, levels = group.runs[0].shape["kind"], [each for each in found if each.kind not in ("alone", "scaled")]
    return {
        "label": group.label,
        "kind": alpha,
        "seeds": group.seeds,
        "along": _along(group, split, metrics) if alpha == "interval" else None,
        "levels": [{"name": answer.label, "kind": answer.kind, **numbers(answer, metrics)} for answer in levels],
        "roles": _roles(group, split, metrics) if alpha == "simplex" else [],
        "spread": None if group.runs[0].trained_alone else {n: _curve(group.logged(n)) for n in ("l2", "cos2")},
        "risk": [_risk(answer) for answer in headed([group], split) if answer.rows[0].risk_coverage is not None],
    }


def _along(group: Group, split: str, metrics: Sequence[str]) -> dict[str, Any]:
    """Return each metric along a line or curve: of the points, and of the ensembles of alpha and 1 - alpha."""
    rows = group.runs[0].rows(split)
    averages = dict.fromkeys(row.average for row in rows if row.role == "along" and row.average is not None)
    return {
        name: {metric: _curve(group.along(metric, split, bool(average), average)) for metric in metrics}
        for name, average in (("point", ""), *((each, each) for each in averages))
    }


def _roles(group: Group, split: str, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return the metrics of the points and ensembles of several vertices, by what they are."""
    found: dict[str, list[list[float | None]]] = {}
    for run in group.runs:
        for row in shown_rows(run, split):
            if row.average != "logits":
                found.setdefault(kind_of(run, row), []).append([row.metrics.get(metric) for metric in metrics])
    return [{"name": name, "values": values} for name, values in found.items()]


def _risk(answer: Answer) -> dict[str, Any]:
    curve = answer.risk()
    coverage, risk = (curve.grid / 100).tolist(), curve.mean.tolist()
    return {"name": answer.label, "kind": answer.short, "coverage": coverage, "risk": risk}


def _curve(curve: Curve) -> dict[str, Any]:
    std = curve.std.tolist() if len(curve.values) > 1 else None
    return {"x": curve.grid.tolist(), "mean": curve.mean.tolist(), "std": std}
