"""One evaluation to walk through: its points and ensembles, and the examples whose predicted class changes."""

import base64
import dataclasses
import io
import json
from typing import Any

from torch import Tensor

from subspaces.errors import MissingPackageError
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.points import named
from subspaces.evaluation.rows import Alpha, Row, pictures
from subspaces.reports.page.content import Page

SIDE = 64  # pixels of a picture; larger images are made smaller
PICTURES = 24  # of an evaluation, fewer where there are many of them
SINGULAR = {"vertices": "vertex", "checkpoints": "checkpoint", "members": "member", "networks": "network"}


def run_name(group: Group, one: Evaluation) -> str:
    """Return an evaluation in words: its method and seed."""
    return group.label if one.training is None else f"{group.label}, seed {one.training.seeds[0]}"


def middle(group: Group, one: Evaluation) -> str:
    """Return what the midpoint is called; nothing where the method does not answer with it."""
    words = [each.words for each in one.answers if each.name == "midpoint"]
    return "" if group.single or not words else words[0]


def walks(page: Page) -> list[dict[str, Any]]:
    """Return what the page shows of each evaluation at every point."""
    most = max(4, min(PICTURES, 200 // len(page.evaluations)))
    return [_walk(page, group, one, most) for group, one in page.evaluations]


def _walk(page: Page, group: Group, one: Evaluation, most: int) -> dict[str, Any]:
    rows = [row for row in one.rows if row.split == page.split]
    points, ensembles = _points(group, one, rows), _ensembles(group, one, rows)
    partners = {key: index for index, key in enumerate(ensembles)}
    together = partners.get("vertex", partners.get("random"))
    kind, name, vertex = group.shape["kind"], middle(group, one), SINGULAR.get(group.shape["members"], "member")
    words = {key: [each.words for each in one.answers if each.is_of(row)] for key, row in ensembles.items()}
    return {
        "name": run_name(group, one),
        "kind": kind if kind != "simplex" else "triangle" if group.vertices == 3 and name else "list",
        "vertex": vertex,
        "middle": name,
        "points": [
            {
                "alpha": row.alphas[0],
                "name": _point_name(group, one, row, vertex),
                "role": row.role,
                "partner": partners.get(_pair(row.alphas[0]), together),
                **_measured(page, row),
            }
            for row in points
        ],
        "ensembles": [
            {"name": (words[key] or [f"ensemble of {named(row.alphas)}"])[0], **_measured(page, row)}
            for key, row in ensembles.items()
        ],
        "strip": _strip(one, points, page.split, most),
    }


def _shown(group: Group, one: Evaluation, rows: list[Row]) -> list[Row]:
    """Return the rows that the method answers with, or that lie between its vertices.

    A method that only keeps members has nothing between them, and random points are a simplex's own.
    """
    between = ("midpoint", "along", "edge", "grid") if group.single or middle(group, one) else ()
    roles = {"vertex", *between, *(each.role for each in one.answers)}
    return [row for row in rows if row.role in roles]


def _points(group: Group, one: Evaluation, rows: list[Row]) -> list[Row]:
    """Return every point once, in the order of alpha on a line or curve."""
    found = [row for row in _shown(group, one, rows) if row.kind == "point"]
    if group.interval:
        found = [row for row in rows if row.kind == "point" and row.role in ("along", "midpoint")]
        found.sort(key=lambda row: row.alphas[0])
    first: dict[str, Row] = {}
    for row in found:
        first.setdefault(json.dumps(row.alphas[0]), row)
    return list(first.values())


def _ensembles(group: Group, one: Evaluation, rows: list[Row]) -> dict[str, Row]:
    """Return the ensembles by the pair of points, or by the role where alpha is not a number."""
    several = [row for row in rows if row.kind == "ensemble"]
    if not group.interval:
        return {row.role: row for row in _shown(group, one, several) if row.average != "logits"}
    along = [row for row in several if row.role == "along" and row.average == several[0].average]
    return {_pair(min(row.alphas)): row for row in along}


def _pair(alpha: Alpha) -> str:
    return "" if isinstance(alpha, list) else f"{min(alpha, 1 - alpha):.6f}"


def _point_name(group: Group, one: Evaluation, row: Row, vertex: str) -> str:
    alpha = row.alphas[0]
    if not isinstance(alpha, list):
        return "network" if group.single else f"α = {alpha:.3g}"
    if row.role == "midpoint":
        return middle(group, one)
    if row.role in ("vertex", "edge"):
        vertices = "–".join(str(place) for place, share in enumerate(alpha, 1) if share > 0)
        return f"{vertex if row.role == 'vertex' else 'edge'} {vertices}"
    return f"{row.role} point ({', '.join(f'{share:.2f}' for share in alpha)})"


def _measured(page: Page, row: Row) -> dict[str, Any]:
    return {
        "metrics": [row.metrics.get(metric.name) for metric in page.metrics],
        "reliability": None if row.reliability is None else dataclasses.asdict(row.reliability),
    }


def _strip(one: Evaluation, points: list[Row], split: str, most: int) -> dict[str, Any] | None:
    """Return up to `most` images with their labels and what every point predicts, None where not known."""
    examples = one.examples
    if examples is None or examples.split != split or not len(examples.labels):
        return None
    at = {json.dumps(alpha): index for index, alpha in enumerate(examples.alphas)}
    places = [at.get(json.dumps(row.alphas[0])) for row in points]
    sure = [[round(value, 2) for value in line[:most]] for line in examples.confidence]
    return {
        "images": [data_uri(image) for image in pictures(examples)[:most]],
        "labels": examples.labels[:most],
        "indices": examples.indices[:most],
        "predicted": [None if place is None else examples.predicted[place][:most] for place in places],
        "confidence": [None if place is None else sure[place] for place in places],
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
