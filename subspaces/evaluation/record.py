"""What was measured of one family, as typed rows: `evaluation.json` in a run folder, or a file of the user's.

Every number that a table, a figure or a page shows is read from here, with the words that go with it, so that each
of them can be made again without the data, the networks or the definitions.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from subspaces.errors import ArgumentError
from subspaces.evaluation.misfits import misfits
from subspaces.evaluation.schema import LATER, build
from subspaces.experiments.training import seals
from subspaces.experiments.training.recipe import MissingMethodError, Recipe
from subspaces.experiments.training.runs import RunError
from subspaces.text import nearest, one_of

SCHEMA = 2
FILE = "evaluation.json"
REMEDY = "remove it and evaluate anew"

Kind = Literal["point", "ensemble"]
Alpha = float | list[float]
Grid = list[list[float | None]]


@dataclass(frozen=True)
class Description:
    """A metric in words."""

    name: str  # in files, options and code
    label: str  # in tables and figures
    meaning: str  # what it is, in half a sentence
    lower_is_better: bool = True
    percent: bool = False  # a share, shown in percent
    headline: bool = False  # which stands in short tables
    goal: float | None = None  # the value that it should have, where neither more nor less is better

    @property
    def scale(self) -> float:
        """What a value is multiplied with to be shown."""
        return 100.0 if self.percent else 1.0

    @property
    def digits(self) -> int:
        """The decimal places of a table."""
        return 2 if self.percent else 4

    @property
    def title(self) -> str:
        """The head of a table's column."""
        return f"{self.label} %" if self.percent else self.label

    @property
    def axis(self) -> str:
        """The label of a figure's axis."""
        return f"{self.label} (%)" if self.percent else self.label

    def merit(self, value: float) -> float:
        """Return a number that is larger the better a value is; nothing is worse than no number."""
        if math.isnan(value):
            return -math.inf
        if self.goal is not None:
            return -abs(value - self.goal)
        return -value if self.lower_is_better else value

    def shown(self, value: float) -> str:
        """Return a value as it stands in a table."""
        return f"{self.scale * value:.{self.digits}f}"


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
class About:
    """What a row is about: a point, or several that answer together."""

    kind: Kind
    role: str
    alphas: list[Alpha]
    average: str | None = None
    networks: int = 1

    def key(self, split: str) -> str:
        """Return what tells the row on a split from any other of a record."""
        return json.dumps([split, self.kind, self.role, self.alphas, self.average, self.networks])


@dataclass(frozen=True)
class Row:
    """How good one point, or the ensemble of several, is on one split.

    `row.accuracy` is `row.metrics["accuracy"]`. `scaled` are the metrics after temperature scaling, with the
    temperature, which is fitted on validation examples alone.
    """

    kind: Kind
    role: str
    alphas: list[Alpha]
    coefficients: list[list[float]]
    split: str
    count: int
    metrics: dict[str, float]
    reliability: Reliability | None = None
    risk_coverage: RiskCoverage | None = None
    average: str | None = None
    diversity: dict[str, float] | None = None
    scaled: dict[str, float] | None = None
    networks: int = 1

    @property
    def key(self) -> str:
        """What the row is about: two rows of one record with the same key are the same measurement."""
        return About(self.kind, self.role, self.alphas, self.average, self.networks).key(self.split)

    def __getattr__(self, name: str) -> float:
        known: Mapping[str, float] = self.__dict__.get("metrics", {})
        if name not in known:
            raise AttributeError(f"a row has no {name!r}: {nearest(name, known)}")
        return known[name]


@dataclass(frozen=True)
class Answered:
    """One way in which a family answers, in words, and which rows are its."""

    name: str
    words: str
    networks: int
    role: str
    alphas: list[Alpha]
    average: str | None

    def is_of(self, row: Row) -> bool:
        """Say whether a row is of this answer."""
        found = (row.role, row.alphas, row.average, row.networks)
        return found == (self.role, self.alphas, self.average, self.networks)


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
    """Metrics on a grid of the plane through three networks, by name [y][x]; None where not computed yet."""

    name: str
    corners: list[Corner]
    xs: list[float]
    ys: list[float]
    values: dict[str, Grid]
    split: str
    count: int
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
    values: dict[str, list[float]]  # by metric


@dataclass(frozen=True)
class Examples:
    """k images of a split whose predicted class changes along p points, and what each of those says about them."""

    split: str
    alphas: list[Alpha]  # p
    size: list[int]  # C, H, W
    images: str  # uint8 [k, C, H, W] in base64
    labels: list[int]  # k
    indices: list[int]  # k, in the split
    predicted: list[list[int]]  # [p][k]
    confidence: list[list[float]]  # [p][k], of the predicted class


@dataclass(frozen=True)
class Shift:
    """How good points and ensembles are on examples that were changed, or that come from elsewhere."""

    name: str  # of the corruption, or of the user's loader
    severity: int  # from 1; 0 where there is none
    group: str  # what it is listed with: noise, blur, weather, digital, extra, or "given"
    source: str  # "made" by this package, the name of the folder that was read, or "given" by the user
    count: int
    rows: list[Row]  # by the headline metrics, without curves


@dataclass(frozen=True)
class Outliers:
    """How well points and ensembles tell the test examples from others that are none of their classes."""

    name: str
    count: int
    metrics: list[Description]
    rows: list[Row]
    source: str = field(default="given", metadata=LATER)  # "data" of that name, the "folder" of images, or "given"


@dataclass(frozen=True)
class Training:
    """How a run was trained, as far as tables, figures and pages tell it."""

    group: str  # the same for runs that differ in their seed only
    label: str  # the method in words
    settings: dict[str, Any]  # in which runs may differ, by name
    words: dict[str, str]  # what these are called, of those that the label does not tell
    order: list[Any]  # by which methods are sorted
    seeds: list[int]  # one; of an ensemble of runs, those of its members
    data: str  # the data set, as people call it
    fingerprint: str  # the same for runs on the same data
    network: str
    label_noise: float
    epochs: int
    vertices: int  # that were trained; 1 of a single network, whatever was made of it
    cost: float  # networks that run forward and backward in a step
    log: list[dict[str, Any]]  # a row per epoch
    seconds: float | None  # that the steps of training took, where it is known
    folder: str
    recipe: dict[str, Any]
    starts: list[dict[str, Any]] = field(default_factory=list, metadata=LATER)  # where each start of it ran


@dataclass
class Record:
    """All that was measured of one family."""

    name: str
    shape: dict[str, Any]  # "kind" of alpha (single, interval, simplex), "vertices", what "members" are called, "type"
    task: str
    metrics: list[Description]
    answers: list[Answered]
    environment: dict[str, Any]
    dataset: dict[str, Any]
    statistics: dict[str, Any]
    recipe: dict[str, Any] | None = None
    training: Training | None = field(default=None, metadata=LATER)
    command: str = field(default="", metadata=LATER)  # the command lines that made it
    rows: list[Row] = field(default_factory=list)
    planes: list[Plane] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    examples: Examples | None = None
    shifts: list[Shift] = field(default_factory=list, metadata=LATER)
    outliers: list[Outliers] = field(default_factory=list, metadata=LATER)
    schema: int = SCHEMA

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Return the record of a run folder, or of a file."""
        path = Path(path)
        file = path / FILE if path.is_dir() else path
        if not seals.there(file, REMEDY):
            raise RunError(f"{path} has no {FILE}: run `subspaces evaluate {path}` first")
        values, run, _ = seals.read_json(file, None, REMEDY)
        try:
            if values["schema"] != SCHEMA:
                raise RunError(f"{file} has schema {values['schema']}, this version reads {SCHEMA}: {REMEDY}")
            record: Record = build(cls, values)
            if record.key != run:
                raise ArgumentError(f"its recipe has the key {record.key}, and its seal says {run}")
            if (wrong := next(misfits(record), None)) is not None:
                raise ArgumentError(wrong)
            return record
        except MissingMethodError as error:  # nothing is wrong with the file
            raise RunError(f"{file}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise seals.damaged(file, error, REMEDY) from None

    @property
    def key(self) -> str:
        """The key of the run's recipe; empty for a family of the user's own."""
        return "" if self.recipe is None else Recipe.from_dict(self.recipe).key

    @property
    def family(self) -> str | None:
        """The checksum of the family that was measured."""
        found = self.environment.get("family")
        return None if found is None else str(found)

    @property
    def splits(self) -> list[str]:
        """The names of the splits that were measured."""
        return list(dict.fromkeys(row.split for row in self.rows))

    def metric(self, name: str) -> Description:
        """Return a metric in words, or name the nearest one."""
        known = {each.name: each for each in self.metrics}
        return known[one_of("metric", name, known)]

    def answer(self, name: str, split: str = "test") -> Row | None:
        """Return the row of an answer on a split; None if it was not measured."""
        for answered in self.answers:
            if answered.name == name:
                return next((row for row in self.rows if row.split == split and answered.is_of(row)), None)
        return None

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, in place of earlier ones about the same, in an order that does not depend on when they came."""
        self.rows = merged(self.rows, rows)

    def write(self, path: Path) -> None:
        """Write the record into a run folder or a file, whole or not at all."""
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        seals.write_json(file, self, self.key)


def merged(rows: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return rows with new ones in place of those about the same, in an order that does not depend on when."""
    found = {row.key: row for row in (*rows, *new)}
    return sorted(found.values(), key=_order)


_ROLES = {"along": 0, "midpoint": 0, "vertex": 1, "edge": 2, "grid": 3, "random": 4}


def _order(row: Row) -> tuple[Any, ...]:
    """Sort by split, points before ensembles, and along the subspace; a simplex begins with its first vertex."""
    role = (_ROLES[row.role], "") if row.role in _ROLES else (len(_ROLES), row.role)
    places = [[-part for part in alpha] if isinstance(alpha, list) else [alpha] for alpha in row.alphas]
    return (row.split, row.kind != "point", role, places, row.networks, row.average == "logits")
