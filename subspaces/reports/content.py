"""What the page is of, its numbers as text, and the points of each evaluation that a reader walks through."""

import base64
import dataclasses
import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from torch import Tensor

from subspaces.errors import MissingPackageError, UserError
from subspaces.evaluation.comparing import Group, each_answer, heading, place, standard_for
from subspaces.evaluation.curves import shared, usual
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.points import named
from subspaces.evaluation.rows import SPLIT, Alpha, Row, pictures
from subspaces.evaluation.statistics import Spread
from subspaces.text import listed
from subspaces.version import __version__

NONE = "–"
SIDE = 64  # pixels of a picture; larger images are made smaller
PICTURES = 24  # of an evaluation, fewer where there are many of them
SINGULAR = {"vertices": "vertex", "checkpoints": "checkpoint", "members": "member", "networks": "network"}


@dataclass(frozen=True)
class Page:
    """What all parts of the page are of."""

    groups: list[Group]
    images: int
    what: str  # of which there are so many: images, examples, tokens or pixels
    metrics: list[Metric]
    headline: list[Metric]  # the two that come first

    @classmethod
    def of(cls, groups: list[Group]) -> "Page":
        """Find what all evaluations have in common: points on the test examples, and metrics."""
        every = [each for group in groups for each in group.evaluations]
        counts = [[row.count for row in each.rows if row.kind == "point" and row.data == SPLIT] for each in every]
        for each, found in zip(every, counts, strict=True):
            if not found or not each.answers:
                raise UserError(f"{place(each)} has no evaluated point: run `subspaces evaluate {place(each)}`")
        own = [group.evaluations[0].task for group in groups if group.training is None]
        what = "images" if not own else own[0] if own[0] in ("tokens", "pixels") else "examples"
        return cls(groups, counts[0][0], what, shared(every), usual(groups))

    @property
    def evaluations(self) -> list[tuple[Group, Evaluation]]:
        """Every evaluation with its group."""
        return [(group, each) for group in self.groups for each in group.evaluations]

    @property
    def several(self) -> bool:
        """Whether there are several seeds of anything."""
        return any(len(group.evaluations) > 1 for group in self.groups)

    @property
    def trained(self) -> bool:
        """Whether any of it is a run."""
        return any(group.training is not None for group in self.groups)

    @property
    def statistics(self) -> str:
        """From how many training examples the batch-norm statistics are."""
        counts = {int(one.statistics["images"]) for _, one in self.evaluations if one.statistics.get("images")}
        return " or ".join(f"{count:,}" for count in sorted(counts))

    @property
    def title(self) -> str:
        """The data set and the methods."""
        names = [group.label if group.training is None else group.training.settings["method"] for group in self.groups]
        dataset = str(self.groups[0].evaluations[0].dataset["name"])
        return ": ".join(part for part in (dataset, listed(dict.fromkeys(names))) if part)

    @property
    def subtitle(self) -> str:
        """How it was trained and measured."""
        runs = [group.training for group in self.groups if group.training is not None]
        epochs = listed(str(each) for each in dict.fromkeys(one.epochs for one in runs))
        count = len(self.evaluations)
        parts = [
            heading(runs if len(runs) == len(self.groups) else []),
            f"{epochs} epochs" if runs else "",
            f"{count} {'run' if runs else 'evaluation'}{'s' if count > 1 else ''}",
            f"{SPLIT} split, {self.images:,} {self.what}",
            f"made {datetime.now(UTC):%Y-%m-%d} by subspaces {__version__}",
        ]
        return " · ".join(filter(None, parts))

    def shown(self, values: Spread | float | None, metric: Metric) -> str:
        """Return mean ± standard deviation without the unit; a dash of what is not known."""
        found = values if isinstance(values, Spread) else Spread([], math.nan if values is None else values, None)
        if math.isnan(found.mean):
            return NONE
        digits = self.places(metric)
        around = "" if found.std is None else f" ± {metric.scale * found.std:.{digits}f}"
        return f"{metric.scale * found.mean:.{digits}f}{around}"

    def places(self, metric: Metric) -> int:
        """Return the decimal places that a split of so many examples can tell apart."""
        return (1 if self.images < 5000 else 2) if metric.percent else 3

    def tiles(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """Return the first two metrics of each subspace, beside standard training or the vertices on average."""
        found = []
        for group in [each for each in self.groups if not each.single] or self.groups:
            mine, standard = each_answer(group)[0], standard_for(group, self.groups)
            ends = [one for one in each_answer(group, alone=True) if one.kind == "alone"]
            others, what = ends[:1], f"its {group.shape['members']} on average"
            if standard is not None:
                others, what = each_answer(standard)[:1], "standard training"
            parts = []
            for metric in self.headline:
                values = [self.shown(each.spread(metric.name).mean, metric) + unit(metric) for each in (mine, *others)]
                against = f"{what} {values[1]}" if others else ""
                parts.append((f"{mine.short} {metric.label}", values[0], against))
            found.append((capital(group.label), parts))
        return found

    def walks(self) -> list[dict[str, Any]]:
        """Return what the page shows of each evaluation at every point."""
        most = max(4, min(PICTURES, 200 // len(self.evaluations)))
        return [_walk(self, group, one, most) for group, one in self.evaluations]


def capital(text: str) -> str:
    """Return text with a capital letter."""
    return text[:1].upper() + text[1:]


def unit(metric: Metric) -> str:
    """Return the unit of a metric after a space that does not break."""
    return "\u00a0%" if metric.percent else ""


def better(metric: Metric) -> str:
    """Return which way a metric is good; nothing where it has a goal."""
    return "" if metric.goal is not None else f"; {'lower' if metric.lower_is_better else 'higher'} is better"


def seeded(seeds: Iterable[int]) -> str:
    """Return seeds in words."""
    several = sorted(seeds)
    return f"{'seed' if len(several) == 1 else 'seeds'} {listed(map(str, several))}"


def run_name(group: Group, one: Evaluation) -> str:
    """Return an evaluation in words: its method and seed."""
    return group.label if one.training is None else f"{group.label}, seed {one.training.seeds[0]}"


def middle(group: Group, one: Evaluation) -> str:
    """Return what the midpoint is called; nothing where the method does not answer with it."""
    words = [each.words for each in one.answers if each.name == "midpoint"]
    return "" if group.single or not words else words[0]


def rounded(value: Any, digits: int = 6) -> Any:
    """Return numbers with so many digits, however deep they lie; what is not finite becomes None."""
    if isinstance(value, dict):
        return {name: part if name == "alpha" else rounded(part, digits) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part, digits) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


# The walk


def _walk(page: Page, group: Group, one: Evaluation, most: int) -> dict[str, Any]:
    points, ensembles = _points(page, group, one)
    partners = {key: index for index, key in enumerate(ensembles)}
    together = partners.get("vertex", partners.get("random"))
    kind, name, vertex = group.shape["kind"], middle(group, one), SINGULAR.get(group.shape["members"], "member")
    words = {key: [each.words for each in one.answers if each.is_of(row)] for key, row in ensembles.items()}
    about = [
        {
            "alpha": row.alphas[0],
            "name": _point_name(group, one, row, vertex),
            "role": row.role,
            "partner": partners.get(_pair(row.alphas[0]), together),
        }
        for row in points
    ]
    return {
        "name": run_name(group, one),
        "kind": kind if kind != "simplex" else "triangle" if group.vertices == 3 and name else "list",
        "vertex": vertex,
        "middle": name,
        "points": [each | _measured(page, row) for each, row in zip(about, points, strict=True)],
        "ensembles": [
            {"name": (words[key] or [f"ensemble of {named(row.alphas)}"])[0], **_measured(page, row)}
            for key, row in ensembles.items()
        ],
        "strip": _strip(one, points, most),
    }


def _points(page: Page, group: Group, one: Evaluation) -> tuple[list[Row], dict[str, Row]]:
    """Return every point once, in the order of alpha on a line or curve; and the ensembles by their pair or role.

    They are those that the method answers with, or that lie between its vertices. A method that only keeps members has
    nothing between them, and random points are a simplex's own.
    """
    between = ("midpoint", "along", "edge", "grid") if group.single or middle(group, one) else ()
    roles = {"along", "midpoint"} if group.interval else {"vertex", *between, *(each.role for each in one.answers)}
    rows = [row for row in one.rows if row.data == SPLIT and row.role in roles]
    points = [row for row in rows if row.kind == "point"]
    if group.interval:
        points.sort(key=lambda row: row.alphas[0])
    first: dict[str, Row] = {}
    for row in points:
        first.setdefault(json.dumps(row.alphas[0]), row)
    several = [row for row in rows if row.kind == "ensemble"]
    if not group.interval:
        return list(first.values()), {row.role: row for row in several if row.average != "logits"}
    along = [row for row in several if row.role == "along" and row.average == several[0].average]
    return list(first.values()), {_pair(min(row.alphas)): row for row in along}


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


def _strip(one: Evaluation, points: list[Row], most: int) -> dict[str, Any] | None:
    """Return up to `most` images with their labels and what every point predicts, None where not known."""
    examples = one.examples
    if examples is None or examples.split != SPLIT or not len(examples.labels):
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
