"""Everything that the page shows, as plain data, from the records and logs of runs."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from subspaces.evaluation.points import kind
from subspaces.report.page.commands import folders
from subspaces.report.page.explored import explored, short
from subspaces.report.page.ways import HIGHER_IS_BETTER, METRICS, Way, named, ways
from subspaces.report.page.words import notes, places, summary
from subspaces.report.reading import Curve, Group, Reading
from subspaces.training.runs import RunError
from subspaces.version import __version__

LABELS = {
    "accuracy": ("Accuracy", "share of images whose most probable class is right"),
    "nll": ("NLL", "mean negative log-likelihood of the right class"),
    "brier": ("Brier score", "mean squared distance of the probabilities from the right answer"),
    "ece": ("ECE", "expected calibration error: how far confidence is from accuracy"),
    "adaptive_ece": ("Adaptive ECE", "the same with bins of equally many images"),
    "aurc": ("AURC", "area under the risk–coverage curve: error when the least confident are left out"),
}
PERCENT = {"accuracy", "ece", "adaptive_ece", "aurc"}
PICTURES = 24  # per run, fewer where there are many runs


def page(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the content of the page of these runs."""
    runs = [run for group in groups for run in group.runs]
    split, images = _split(runs)
    pictures = max(4, min(PICTURES, 200 // len(runs)))
    dataset, known = runs[0].record.dataset, folders(runs)
    return {
        "title": f"{dataset['name']}: {_listed(dict.fromkeys(run.recipe.method for run in runs))}",
        "subtitle": _subtitle(groups, split, images),
        "split": split,
        "images": images,
        "classes": _classes(dataset.get("classes")),
        "metrics": [_metric(name, images) for name in METRICS],
        "summary": summary(groups, split, images),
        "notes": notes(groups, split, images),
        "facts": [_fact(group, way) for group in groups for way in ways(group, split)],
        "groups": [_group(group, split) for group in groups],
        "runs": [
            explored(run, index, split, pictures, known) for index, group in enumerate(groups) for run in group.runs
        ],
    }


def _split(runs: Iterable[Reading]) -> tuple[str, int]:
    """Return the split that all runs were evaluated on, test before others, and how many images it has."""
    found = []
    for run in runs:
        found.append({row.split: row.images for row in run.record.rows if row.kind == "point"})
        if not found[-1]:
            raise RunError(f"{run.folder} has no evaluated point: run `subspaces evaluate {run.folder}`")
    common = [split for split in found[0] if all(split in splits for splits in found)]
    if not common:
        raise RunError("the runs were evaluated on different splits: evaluate them alike")
    split = "test" if "test" in common else common[0]
    return split, found[0][split]


def _subtitle(groups: Sequence[Group], split: str, images: int) -> str:
    recipes = [group.recipe for group in groups]
    networks = _listed(dict.fromkeys(recipe.network for recipe in recipes))
    epochs = _listed(dict.fromkeys(str(recipe.epochs) for recipe in recipes))
    count = sum(len(group.runs) for group in groups)
    noise = _listed(dict.fromkeys(f"{recipe.label_noise:.0%}" for recipe in recipes if recipe.label_noise))
    parts = [
        f"network {networks}",
        f"{epochs} epochs",
        *([f"{noise} of the training labels random"] if noise else []),
        f"{count} run{'s' if count > 1 else ''}",
        f"{split} split, {images:,} images",
        f"made {datetime.now(UTC):%Y-%m-%d} by subspaces {__version__}",
    ]
    return " · ".join(parts)


def _listed(words: Iterable[str]) -> str:
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _classes(classes: Any) -> list[str]:
    names = range(classes) if isinstance(classes, int) else classes or ()
    return [str(name) for name in names]


def _metric(name: str, images: int) -> dict[str, Any]:
    label, meaning = LABELS[name]
    return {
        "name": name,
        "label": label,
        "meaning": meaning,
        "percent": name in PERCENT,
        "digits": places(images) if name in PERCENT else 3,
        "higher": name in HIGHER_IS_BETTER,
    }


def _fact(group: Group, way: Way) -> dict[str, Any]:
    return {
        "group": group.label,
        "way": way.name,
        "seeds": len(way.by_seed),
        "networks": way.networks,
        "mean": short(way.mean(metric) for metric in METRICS),
        "std": short(way.std(metric) for metric in METRICS),
    }


def _group(group: Group, split: str) -> dict[str, Any]:
    alpha = kind(group.recipe.result_shape())
    return {
        "label": group.label,
        "kind": alpha,
        "seeds": group.seeds,
        "along": _along(group, split) if alpha == "interval" else None,
        "levels": [_level(way) for way in ways(group, split) if way.kind != "ends"],
        "roles": _roles(group, split) if alpha == "simplex" else [],
        "spread": {name: _curve(group.logged(name)) for name in ("l2", "cos2")} if alpha != "single" else None,
        "risk": _risk(group, split),
    }


def _along(group: Group, split: str) -> dict[str, Any]:
    """Return each metric along a line or curve: of the points, and of the ensembles of alpha and 1 - alpha."""
    return {
        name: {metric: _curve(group.along(metric, split, bool(average), average)) for metric in METRICS}
        for name, average in (("point", ""), ("probabilities", "probabilities"), ("logits", "logits"))
    }


def _level(way: Way) -> dict[str, Any]:
    return {
        "name": way.name,
        "kind": way.kind,
        "mean": short(way.mean(metric) for metric in METRICS),
        "std": short(way.std(metric) for metric in METRICS),
    }


def _roles(group: Group, split: str) -> list[dict[str, Any]]:
    """Return the metrics of a simplex's points and ensembles, by what they are."""
    found: dict[str, list[list[float | None]]] = {}
    for run in group.runs:
        for row in run.rows(split):
            if row.average != "logits":
                name = f"ensemble of {named(run, row)}" if row.kind == "ensemble" else row.role
                found.setdefault(name, []).append(short(row.metrics.get(metric) for metric in METRICS))
    return [{"name": name, "values": values} for name, values in found.items()]


def _risk(group: Group, split: str) -> list[dict[str, Any]]:
    """Return the risk-coverage curves of the midpoint and of the ensemble, averaged over seeds."""
    found = []
    for name, rows in (
        ("network" if group.runs[0].single else "midpoint", [run.center(split) for run in group.runs]),
        ("ensemble", [run.ensemble(split) for run in group.runs]),
    ):
        curves = [row.risk_coverage for row in rows if row is not None]
        alike = [curve for curve in curves if curve.coverage == curves[0].coverage]
        if alike:
            mean = [sum(risks) / len(alike) for risks in zip(*(curve.risk for curve in alike), strict=True)]
            found.append({"name": name, "coverage": short(curves[0].coverage, 5), "risk": short(mean, 5)})
    return found


def _curve(curve: Curve) -> dict[str, Any]:
    several = len(curve.values) > 1
    return {"x": short(curve.grid), "mean": short(curve.mean), "std": short(curve.std) if several else None}
