"""What an evaluation leaves behind: `evaluation.json` in a run folder, as typed rows.

Every number that a figure or a page shows is read from here, so that each of them can be made again
without the data or the networks.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from subspaces.evaluation.typed import mistake
from subspaces.training import seals
from subspaces.training.config import Recipe
from subspaces.training.runs import RunError

SCHEMA = 1
FILE = "evaluation.json"
REMEDY = "remove it and evaluate anew"
HEIGHTS = ("accuracy", "nll")  # of a plane

Kind = Literal["point", "ensemble"]
Role = Literal["along", "midpoint", "vertex", "edge", "grid", "random"]
Alpha = float | list[float]


@dataclass(frozen=True)
class Reliability:
    """Predictions by confidence, in bins of equal width; an empty bin has None."""

    count: list[int]
    confidence: list[float | None]
    accuracy: list[float | None]


@dataclass(frozen=True)
class RiskCoverage:
    """The error among the most confident predictions, for the share of them that is kept."""

    coverage: list[float]
    risk: list[float]


@dataclass(frozen=True)
class Row:
    """How good one point, or the ensemble of several, is on one split."""

    kind: Kind
    role: Role
    alphas: list[Alpha]
    coefficients: list[list[float]]
    split: str
    images: int
    metrics: dict[str, float]
    reliability: Reliability
    risk_coverage: RiskCoverage
    average: Literal["probabilities", "logits"] | None = None
    diversity: dict[str, float] | None = None

    @property
    def key(self) -> str:
        """What the row is about: two rows of one record with the same key are the same measurement."""
        return json.dumps([self.split, self.kind, self.role, self.alphas, self.average])


@dataclass(frozen=True)
class Corner:
    """A network that a plane goes through."""

    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Drawn:
    """A subspace or networks in the coordinates of a plane, and how far off it they lie."""

    label: str
    kind: Literal["path", "point"]
    x: list[float]
    y: list[float]
    distance: list[float]


@dataclass(frozen=True)
class Plane:
    """Accuracy and loss on a grid of the plane through three networks; None where not computed yet."""

    name: str
    corners: list[Corner]
    xs: list[float]
    ys: list[float]
    accuracy: list[list[float | None]]  # [y][x]
    nll: list[list[float | None]]
    split: str
    images: int
    statistics_images: int
    drawn: list[Drawn] = field(default_factory=list)


@dataclass(frozen=True)
class Choice:
    """Something that was chosen by a metric; `on_test` marks a choice on the split that is reported."""

    what: Literal["point", "pair", "threshold"]
    by: str
    chosen_on: str
    on_test: bool
    value: Any
    reported: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Check:
    """The same points with batch-norm statistics of so many images: of the run, or of the plane of that name."""

    where: str
    at: list[list[float]]  # alphas, or x and y in the plane
    split: str
    statistics_images: int
    accuracy: list[float]
    nll: list[float]


@dataclass
class Record:
    """All that was measured of one run."""

    run: str
    recipe: dict[str, Any]
    environment: dict[str, Any]
    dataset: dict[str, Any]
    statistics: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    planes: list[Plane] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    schema: int = SCHEMA

    @classmethod
    def read(cls, folder: Path) -> "Record":
        """Return the record of a run folder."""
        path = Path(folder) / FILE
        if not seals.there(path, REMEDY):
            raise RunError(f"{folder} has no {FILE}: run `subspaces evaluate {folder}` first")
        values, run, _ = seals.read_json(path, None, REMEDY)
        try:
            if values["schema"] != SCHEMA:
                raise RunError(f"{path} has schema {values['schema']}, this version reads {SCHEMA}: {REMEDY}")
            if (wrong := mistake(values, cls, "") or _lacking(values)) is not None:
                raise ValueError(wrong)
            record = cls(
                **{
                    **values,
                    "rows": [_row(row) for row in values["rows"]],
                    "planes": [_plane(plane) for plane in values["planes"]],
                    "choices": [Choice(**choice) for choice in values["choices"]],
                    "checks": [Check(**check) for check in values.get("checks", [])],
                }
            )
            if record.key != run:
                raise ValueError(f"its recipe has the key {record.key}, and its seal says {run}")
            return record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise seals.damaged(path, error, REMEDY) from None

    @property
    def key(self) -> str:
        """The key of the run's recipe."""
        return Recipe.from_dict(self.recipe).key

    @property
    def family(self) -> str | None:
        """The checksum of the family that was measured."""
        found = self.environment.get("family")
        return None if found is None else str(found)

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, in place of earlier ones about the same, in an order that does not depend on when they came."""
        found = {row.key: row for row in (*self.rows, *rows)}
        self.rows = sorted(found.values(), key=_order)

    def write(self, folder: Path) -> None:
        """Write the record into a run folder, whole or not at all."""
        seals.write_json(Path(folder) / FILE, dataclasses.asdict(self), self.key)


def _lacking(values: Mapping[str, Any]) -> str | None:
    """Return in words what of a record with the right types is not there, or does not fit the rest."""
    if lacking := [name for name in ("name", "classes", "splits") if name not in values["dataset"]]:
        return f"dataset has no {lacking[0]}"
    for at, row in enumerate(values["rows"]):
        if row["metrics"].keys() != values["rows"][0]["metrics"].keys():
            return f"rows[{at}] has other metrics than the first row"
        if not row["alphas"]:
            return f"rows[{at}] has no alphas"
        for part in ("reliability", "risk_coverage"):
            if len({len(column) for column in row[part].values()}) > 1:
                return f"rows[{at}].{part} has columns of different lengths"
    for at, plane in enumerate(values["planes"]):
        if any([len(line) for line in plane[name]] != [len(plane["xs"])] * len(plane["ys"]) for name in HEIGHTS):
            return f"planes[{at}] has not {len(plane['ys'])} lines of {len(plane['xs'])} cells"
    return None


def _order(row: Row) -> tuple[Any, ...]:
    """Sort by split, points before ensembles, and along the subspace; a simplex begins with its first vertex."""
    role = 0 if row.role == "midpoint" else get_args(Role).index(row.role)
    places = [[-part for part in alpha] if isinstance(alpha, list) else [alpha] for alpha in row.alphas]
    return (row.split, row.kind != "point", role, places, row.average != "probabilities")


def _row(values: Mapping[str, Any]) -> Row:
    return Row(
        **{
            **values,
            "reliability": Reliability(**values["reliability"]),
            "risk_coverage": RiskCoverage(**values["risk_coverage"]),
        }
    )


def _plane(values: Mapping[str, Any]) -> Plane:
    corners = [Corner(**corner) for corner in values["corners"]]
    return Plane(**{**values, "corners": corners, "drawn": [Drawn(**drawn) for drawn in values["drawn"]]})
