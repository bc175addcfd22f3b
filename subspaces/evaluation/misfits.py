"""Whether the parts of a record fit each other, beyond the types of its fields."""

import math
from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict, get_type_hints

from subspaces.errors import ArgumentError
from subspaces.evaluation.schema import build


class Shape(TypedDict):
    """The shape of the family."""

    kind: Literal["single", "interval", "simplex"]
    vertices: int
    members: NotRequired[str]
    type: NotRequired[str]


class Dataset(TypedDict):
    """What was measured on."""

    name: str
    classes: list[str]
    splits: dict[str, int]


class Statistics(TypedDict):
    """What the batch-norm statistics were made of."""

    images: NotRequired[int]
    batch: NotRequired[int | None]
    batches: NotRequired[int | None]


class Environment(TypedDict):
    """Where it was measured."""

    execution: NotRequired[dict[str, str | float | bool | None]]


PARTS: dict[str, Any] = {"shape": Shape, "environment": Environment, "dataset": Dataset, "statistics": Statistics}


def misfits(record: Any) -> Iterator[str]:
    """Yield in words what of a record does not fit the rest."""
    for part, kind in PARTS.items():
        yield from _misfits_of_part(part, getattr(record, part), kind)
    yield from _misfits_of_measured(record.rows)
    names = {each.name for each in record.metrics}
    for at, shift in enumerate(record.shifts):
        yield from _misfits_of_rows(f"shifts[{at}]", shift.rows, names)
    for at, outliers in enumerate(record.outliers):
        yield from _misfits_of_rows(f"outliers[{at}]", outliers.rows, {each.name for each in outliers.metrics})
    for kind, keys in (
        ("shifts", [(each.name, each.severity) for each in record.shifts]),
        ("outliers", [each.name for each in record.outliers]),
    ):
        yield from (f"{kind}[{at}] is there twice" for at, key in enumerate(keys) if key in keys[:at])
    for at, plane in enumerate(record.planes):
        lengths = [len(plane.xs)] * len(plane.ys)
        if any([len(line) for line in grid] != lengths for grid in plane.values.values()):
            yield f"planes[{at}] has not {len(plane.ys)} lines of {len(plane.xs)} cells"
    if record.examples is not None:
        yield from _misfits_of_examples(record.examples)


def _misfits_of_measured(rows: list[Any]) -> Iterator[str]:
    """Yield what is wrong with the rows of the splits."""
    for at, row in enumerate(rows):
        if row.metrics.keys() != rows[0].metrics.keys():
            yield f"rows[{at}] has other metrics than the first row"
        yield from _misfits_of_alphas(f"rows[{at}]", row.alphas)
        for name, curve in (("reliability", row.reliability), ("risk_coverage", row.risk_coverage)):
            if curve is not None and len({len(column) for column in vars(curve).values()}) > 1:
                yield f"rows[{at}].{name} has columns of different lengths"


def _misfits_of_examples(shown: Any) -> Iterator[str]:
    """Yield what of the examples has not the size of the others."""
    k, p = len(shown.labels), len(shown.alphas)
    fits = {"indices": len(shown.indices) == k, "size": len(shown.size) == 3}
    fits["images"] = len(shown.images) == (k * math.prod(shown.size) + 2) // 3 * 4  # in base64
    fits["predicted"] = [len(line) for line in shown.predicted] == [k] * p
    fits["confidence"] = [len(line) for line in shown.confidence] == [k] * p
    yield from (f"examples.{name} does not fit {k} images and {p} points" for name, good in fits.items() if not good)


def _misfits_of_rows(where: str, rows: list[Any], metrics: set[str]) -> Iterator[str]:
    """Yield what is wrong with the rows of other examples than those of a split."""
    if not rows:
        yield f"{where} has no rows"
    for at, row in enumerate(rows):
        yield from _misfits_of_alphas(f"{where}.rows[{at}]", row.alphas)
        if not row.metrics or not metrics.issuperset(row.metrics):
            yield f"{where}.rows[{at}] has other metrics than those that are described"


def _misfits_of_alphas(where: str, alphas: list[Any]) -> Iterator[str]:
    """Yield what is wrong with where a row was measured."""
    if not alphas:
        yield f"{where} has no alphas"
    for at, alpha in enumerate(alphas):
        parts = alpha if isinstance(alpha, list) else [alpha]
        if not parts or not all(map(math.isfinite, parts)):
            yield f"{where}.alphas[{at}] is {alpha}"


def _misfits_of_part(part: str, values: dict[str, Any], kind: Any) -> Iterator[str]:
    """Yield what is wrong with a dictionary whose entries have types of their own."""
    for name, hint in get_type_hints(kind).items():
        if name in values:
            try:
                build(hint, values[name], f"{part}.{name}")
            except ArgumentError as wrong:
                yield str(wrong)
        elif name in kind.__required_keys__:
            yield f"{part} has no {name}"
