"""One run, to walk through: its points, ensembles, images and planes, and how it was made."""

import base64
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from subspaces.errors import MissingPackageError
from subspaces.evaluation.answers import PAIR, named
from subspaces.evaluation.examples import pictures
from subspaces.evaluation.plane import begun
from subspaces.evaluation.record import Alpha, Choice, Examples, Plane, Row
from subspaces.experiments.training.runs import RunError
from subspaces.reports.page.commands import changed, reproduce
from subspaces.reports.page.notes import asked, statistics_check, trained_on
from subspaces.reports.reading import Reading

SIDE = 64  # pixels of a picture; larger images are made smaller
SINGULAR = {"vertices": "vertex", "checkpoints": "checkpoint", "members": "member", "networks": "network"}
CHOSEN = {"point": "best point", "pair": "best pair", "threshold": "least confidence"}


def run_section(
    run: Reading, group: int, split: str, most: int, known: Mapping[str, str], metrics: Sequence[str]
) -> dict[str, Any]:
    """Return what the page shows of one run of a group: these metrics on a split, and so many pictures at most.

    `known` says where the other runs are, by the names that planes give them.
    """
    points, ensembles = _points(run, split), _ensembles(run, split)
    places = {key: index for index, key in enumerate(ensembles)}
    base, differing = ("", {}) if run.recipe is None else changed(run.recipe)
    fields = {} if run.recipe is None else run.recipe.to_dict()
    single_answer = places.get("vertex", places.get("random"))
    if not run.record.answers:
        raise RunError(f"{run.folder} was not evaluated to the end: run `subspaces evaluate {run.folder}`")
    answered = run.record.answers[0]
    own = run.record.answer(answered.name, split)
    middle = _middle(run)
    simplex = "triangle" if run.vertices == 3 and middle else "list"
    return {
        "name": run.name,
        "group": group,
        "seed": None if run.recipe is None else run.seed,
        "kind": run.shape["kind"] if run.shape["kind"] != "simplex" else simplex,
        "vertices": run.vertices,
        "vertex": _vertex(run),
        "middle": middle,
        "start": _start(run, points),
        "own": None if own is None else {"name": answered.words, **_measured(own, metrics)},
        "points": [
            {
                "alpha": row.alphas[0],
                "name": _name(run, row),
                "role": row.role,
                "partner": places.get(_pair(row.alphas[0]), single_answer),
                **_measured(row, metrics),
            }
            for row in points
        ],
        "ensembles": [{"name": _together(run, row), **_measured(row, metrics)} for row in ensembles.values()],
        "strip": strip(run.record.examples, points, split, most),
        "planes": [_plane(plane, run) for plane in run.record.planes if begun(plane)],
        "choices": [_choice(choice) for choice in run.record.choices if middle or run.single],
        "recipe": base,
        "fields": [[name, _text(value), name in differing] for name, value in fields.items()],
        "environments": _environments(run),
        "commands": reproduce(run, known),
    }


def _vertex(run: Reading) -> str:
    """Return what one of the vertices is called."""
    return SINGULAR.get(run.shape["members"], "member")


def _middle(run: Reading) -> str:
    """Return what the midpoint is called; nothing where the method does not answer with it."""
    words = [each.words for each in run.record.answers if each.name == "midpoint"]
    return "" if run.single or not words else words[0]


def _start(run: Reading, points: list[Row]) -> int:
    """Return where a walk begins: near alpha = 0.1, or at the first vertex, for there the columns differ."""
    if run.interval:
        return min(range(len(points)), key=lambda at: abs(float(points[at].alphas[0]) - PAIR[0]))  # type: ignore[arg-type]
    vertices = [at for at, row in enumerate(points) if row.role == "vertex"]
    return min(vertices, key=lambda at: points[at].coefficients[0][0] != 1, default=0)


def shown_rows(run: Reading, split: str) -> list[Row]:
    """Return the rows of a run that its method answers with, or that lie between its vertices.

    A method that only keeps members has nothing between them, and random points are a simplex's own.
    """
    between = ("midpoint", "along", "edge", "grid") if run.single or _middle(run) else ()
    own = {each.role for each in run.record.answers}
    return [row for row in run.rows(split) if row.role in ("vertex", *between, *own)]


def kind_of(run: Reading, row: Row) -> str:
    """Return which kind of point a row is of, or which ensemble, in words."""
    if row.kind == "ensemble":
        return _together(run, row)
    return {"vertex": _vertex(run), "midpoint": _middle(run)}.get(row.role, row.role)


def _points(run: Reading, split: str) -> list[Row]:
    """Return every point once, in the order of alpha on a line or curve."""
    if run.interval:
        return list(run.points(split).values())
    rows = [row for row in shown_rows(run, split) if row.kind == "point"]
    return list({json.dumps(row.alphas[0]): row for row in reversed(rows)}.values())[::-1]


def _ensembles(run: Reading, split: str) -> dict[str, Row]:
    """Return the ensembles by the pair of points, or by the role where alpha is not a number."""
    if run.interval:
        return {_pair(alpha): row for alpha, row in run.pairs(split).items()}
    return {row.role: row for row in shown_rows(run, split) if row.average not in (None, "logits")}


def _pair(alpha: Alpha) -> str:
    return "" if isinstance(alpha, list) else f"{min(alpha, 1 - alpha):.6f}"


def _name(run: Reading, row: Row) -> str:
    """Return a point in words."""
    alpha = row.alphas[0]
    if not isinstance(alpha, list):
        return "network" if run.single else f"α = {alpha:.3g}"
    if row.role == "midpoint":
        return _middle(run)
    if row.role in ("vertex", "edge"):
        vertices = "–".join(str(place) for place, share in enumerate(alpha, 1) if share > 0)
        return f"{_vertex(run) if row.role == 'vertex' else 'edge'} {vertices}"
    return f"{row.role} point ({', '.join(f'{share:.2f}' for share in alpha)})"


def _together(run: Reading, row: Row) -> str:
    """Return in words which points are averaged: as an answer is called, or by their alphas."""
    answered = next((each.words for each in run.record.answers if each.is_of(row)), None)
    return answered or f"ensemble of {named(row.alphas)}"


def _measured(row: Row, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "metrics": [row.metrics.get(metric) for metric in metrics],
        "reliability": None if row.reliability is None else dataclasses.asdict(row.reliability),
    }


def _plane(plane: Plane, run: Reading) -> dict[str, Any]:
    return {
        "name": plane.name,
        "corners": [[corner.label, corner.x, corner.y] for corner in plane.corners],
        "x": plane.xs,
        "y": plane.ys,
        "values": plane.values,
        "note": f"{plane.split} split, {plane.count:,} {asked(run.record)}; batch-norm statistics of "
        f"{plane.statistics_images:,} training {trained_on(run.record)} in every cell",
        "check": statistics_check(run.record, plane.name, plane.count),
        "drawn": [dataclasses.asdict(drawn) for drawn in plane.drawn],
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {**dataclasses.asdict(choice), "what": CHOSEN[choice.what], "value": _value(choice.value)}


def _value(value: Any) -> str:
    """Return alphas or a threshold as text; equal shares of three vertices or more are the midpoint."""
    if isinstance(value, list):
        inner = [f"({_value(part)})" if isinstance(part, list) else _value(part) for part in value]
        return "midpoint" if len(value) > 2 and len(set(inner)) == 1 else ", ".join(inner)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _environments(run: Reading) -> list[dict[str, Any]]:
    """Return where the run was trained, each start of it, and where it was evaluated."""
    starts = enumerate([] if run.run is None else run.run.starts())
    named = [("Training" if i == 0 else f"Training, start {i + 1}", start) for i, start in starts]
    return [
        {"name": name, "fields": [[key, _text(value)] for key, value in environment.items()]}
        for name, environment in [*named, ("Evaluation", run.record.environment)]
    ]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    return "–" if value is None else str(value)


def strip(examples: Examples | None, points: list[Row], split: str, most: int) -> dict[str, Any] | None:
    """Return up to `most` images with their labels and what every point answers, None where not known."""
    if examples is None or examples.split != split or not len(examples.labels):
        return None
    at = {json.dumps(alpha): index for index, alpha in enumerate(examples.alphas)}
    places = [at.get(json.dumps(row.alphas[0])) for row in points]
    return {
        "images": [data_uri(image) for image in pictures(examples)[:most]],
        "labels": examples.labels[:most],
        "indices": examples.indices[:most],
        "predicted": [None if place is None else examples.predicted[place][:most] for place in places],
        "confidence": [
            None if place is None else [round(value, 2) for value in examples.confidence[place][:most]]
            for place in places
        ],
    }


def data_uri(image: Tensor) -> str:
    """Return an image uint8 [C, H, W] as the text of a WebP file; tiny ones keep every pixel."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError("the report's test images need Pillow: pip install 'subspaces[report]'") from None

    pixels = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3]).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    picture.save(content, "WEBP", lossless=max(picture.size) <= 28, quality=88, method=6)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"
