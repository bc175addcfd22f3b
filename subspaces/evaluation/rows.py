"""What was measured: rows of points and ensembles on some data, and planes, choices and examples beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from subspaces.text import nearest

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["point", "ensemble"]
Alpha = float | list[float]
Grid = list[list[float | None]]
OUTLIERS = "outliers"  # the group of rows about outliers
ABOUT = ["answer", "kind", "role", "alpha", "alphas", "average", "networks", "data", "severity", "group", "source"]
ABOUT += ["count"]
"""The columns of a frame that say what was measured; all others are metrics."""


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


@dataclass(frozen=True)
class Row:
    """How good one point, or the ensemble of several, is on one set of examples.

    `row.accuracy` is `row.metrics["accuracy"]`. `data` is a split, or the name of shifted data or outliers, which have
    a `group` (noise, blur, weather, digital, extra, given; outliers) and a `source`: "made", "given", "data", or the
    name of a folder. `scaled` are the metrics after temperature scaling, with the temperature, which is fitted on
    validation examples alone.
    """

    kind: Kind
    role: str
    alphas: list[Alpha]
    coefficients: list[list[float]]
    data: str
    count: int
    metrics: dict[str, float]
    reliability: Reliability | None = None
    risk_coverage: RiskCoverage | None = None
    average: str | None = None
    diversity: dict[str, float] | None = None
    scaled: dict[str, float] | None = None
    networks: int = 1
    severity: int = 0
    group: str = ""
    source: str = ""

    @property
    def split(self) -> str:
        """The same as `data`."""
        return self.data

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

    def is_of(self, row: Row | About) -> bool:
        found = (row.role, row.alphas, row.average, row.networks)
        return found == (self.role, self.alphas, self.average, self.networks)


def frame_of(rows: Iterable[Row], answers: Sequence[Answered], interval: bool) -> "pd.DataFrame":
    """Return one row per (answer or point, data, severity), and a column per metric; see `Evaluation.frame`."""
    import pandas as pd

    entries = [_entry(row, answers, interval) for row in rows]
    frame = pd.DataFrame(entries, columns=None if entries else ABOUT)
    return frame[[*ABOUT, *frame.columns.difference(ABOUT, sort=False)]]


def _entry(row: Row, answers: Sequence[Answered], interval: bool) -> dict[str, Any]:
    numbers = [alpha for alpha in row.alphas if not isinstance(alpha, list)]
    alone = interval and row.role in ("along", "midpoint")
    scaled = {name if name == "temperature" else f"scaled_{name}": value for name, value in (row.scaled or {}).items()}
    return {
        "answer": next((each.name for each in answers if each.is_of(row)), ""),
        "alpha": min(numbers) if alone and numbers else float("nan"),
        **{name: getattr(row, name) for name in ABOUT if name not in ("answer", "alpha")},
        "alphas": hashable(row.alphas),
        "average": row.average or "",
        **row.metrics,
        **scaled,
        **(row.diversity or {}),
    }


def hashable(alphas: Sequence[Alpha]) -> tuple[float | tuple[float, ...], ...]:
    """Return points as tuples, for columns of a frame."""
    return tuple(tuple(alpha) if isinstance(alpha, list) else alpha for alpha in alphas)


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

    what: Literal["point", "pair"]
    by: str
    chosen_on: str
    on_test: bool
    value: Any
    reported: dict[str, dict[str, float]]


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
    log: list[dict[str, Any]]  # a row per epoch
    seconds: float | None  # that the steps of training took, where it is known
    folder: str
    recipe: dict[str, Any]
    starts: list[dict[str, Any]] = field(default_factory=list)  # where each start of it ran
