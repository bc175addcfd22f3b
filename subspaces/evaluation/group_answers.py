"""How the runs of a group answer, one row per answer and seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from subspaces.errors import UserError
from subspaces.evaluation.answers import RUNS
from subspaces.evaluation.comparing import SPLIT, Group, check_split, place
from subspaces.evaluation.rows import Row
from subspaces.evaluation.statistics import Spread, spread

if TYPE_CHECKING:
    import pandas as pd

ALONE, SCALED = "alone", "scaled"
KEYS = ["method", "answer", "words", "networks", "runs", "seeds"]


def answers(
    group: Group,
    data: str = SPLIT,
    *,
    alone: bool = False,
    scaled: bool = False,
    together: bool = False,
    of: Sequence[str] = (),
) -> "pd.DataFrame":
    """Return how the runs of a group answer, one row per answer and seed, the method's own first answer first.

    The columns are `method`, `answer`, `words` (what the answer is called), `networks` (at test time), `runs` (that are
    trained for it), `seeds`, and the metrics.

    Args:
        group: the evaluations.
        data: the split, or the name of shifted data or outliers; metrics of several severities are averaged.
        alone: also the vertices, averaged over them ("alone"), as the first.
        scaled: also each answer after temperature scaling ("scaled"), where temperatures were fitted in every run.
        together: also ensembles of several runs ("runs"), no run in two of one size.
        of: names of the metrics; by default all that the task has.
    """
    import pandas as pd

    rows = group.answered[group.answered["data"] == data]
    names = [name for name in of or [each.name for each in group.evaluations[0].metrics] if name in rows]
    own = rows[rows["answer"] != RUNS]
    parts = [own]
    if alone and not group.single:
        parts.insert(0, _vertices(group, data))
    if scaled:
        parts.append(_scaled(own, names))
    if together:
        parts.append(_disjoint(rows[rows["answer"] == RUNS], group.seeds))
    found = pd.concat([part for part in parts if len(part)] or [own])[[*KEYS, *names]]
    return found.groupby(KEYS, sort=False).agg(lambda values: values.mean(skipna=False)).reset_index()


def _vertices(group: Group, data: str) -> "pd.DataFrame":
    """Return the rows of the ends of a line or curve, where both were measured, or of all vertices."""
    frame = group.frame
    points = frame[(frame["data"] == data) & (frame["kind"] == "point") & (frame["seeds"].map(len) == 1)]
    members = group.shape["members"]
    if group.interval:
        points = points[points["alpha"].isin((0.0, 1.0))]
        points = points[points.groupby("seeds")["alpha"].transform("nunique") == 2]
        members = "ends" if members == "vertices" else members
    else:
        points = points[points["role"] == "vertex"]
    return points.assign(answer=ALONE, words=f"{members}, on average", runs=1)


def _scaled(rows: "pd.DataFrame", names: Sequence[str]) -> "pd.DataFrame":
    """Return answers with their metrics after temperature scaling, where every run has these."""
    scaled = {name: f"scaled_{name}" for name in names if f"scaled_{name}" in rows}
    if not scaled:
        return rows.iloc[:0]
    found = rows[rows[next(iter(scaled.values()))].notna().groupby(rows["answer"]).transform("all")]
    after = {name: found[column] for name, column in scaled.items()}
    return found.assign(answer=SCALED, words=found["words"] + ", temperature-scaled", **after)


def _disjoint(rows: "pd.DataFrame", seeds: Sequence[int]) -> "pd.DataFrame":
    """Return ensembles of runs by the seeds of those members that are in the group; those of one size share no run."""
    kept: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
    for size, several in dict.fromkeys(zip(rows["networks"], rows["seeds"], strict=True)):
        members = tuple(seed for seed in several if seed in seeds)
        used = {seed for (other, _), found in kept.items() if other == size for seed in found}
        if members and not used & set(members):
            kept[size, several] = members
    places = [kept.get(key) for key in zip(rows["networks"], rows["seeds"], strict=True)]
    return rows.assign(seeds=places).dropna(subset="seeds")


@dataclass(frozen=True)
class GroupAnswer:
    """One way in which the runs of a group answer: the rows of `answers` that are about it."""

    group: Group
    kind: str  # the name of the answer; "network", "alone", "scaled" or "runs"
    words: str
    networks: int  # at test time
    runs: int  # that are trained
    frame: "pd.DataFrame"

    @property
    def label(self) -> str:
        """The group and the answer in words; that of a single network is the group's."""
        return self.group.label if self.kind == "network" else f"{self.group.label}: {self.words}"

    @property
    def short(self) -> str:
        """The answer in one word."""
        return "ensemble" if self.networks > 1 else self.words.partition(" ")[0]

    def brief(self, label: str) -> str:
        """Return a label with what answers for the group, which for a single network needs no word."""
        return label if self.group.single else f"{label}: {self.short}"

    @property
    def seeds(self) -> list[int]:
        """All seeds that it was measured with."""
        return sorted({seed for seeds in self.frame["seeds"] for seed in seeds})

    def by_seeds(self, metric: str) -> dict[tuple[int, ...], float]:
        """Return a metric for each seed, or for the seeds of several runs."""
        return dict(zip(self.frame["seeds"], self.frame[metric], strict=True))

    def spread(self, metric: str) -> Spread:
        """Return a metric over the seeds."""
        return spread(list(self.frame[metric]) if metric in self.frame else [float("nan")] * len(self.frame))

    def curves(self, data: str = SPLIT) -> list[Row]:
        """Return the row of each run, with its reliability and its risk over the coverage."""
        name = "midpoint" if self.kind == "network" else self.kind
        found = [each.answer(name, data) for each in self.group.evaluations]
        return [row for row in found if row is not None]


def each_answer(group: Group, data: str = SPLIT, **wanted: Any) -> list[GroupAnswer]:
    """Return `answers` one by one."""
    parts = answers(group, data, **wanted).groupby(["answer", "words"], sort=False)
    return [
        GroupAnswer(group, str(kind), str(words), int(part["networks"].iloc[0]), int(part["runs"].iloc[0]), part)
        for (kind, words), part in parts
    ]


def first(group: Group, data: str = SPLIT) -> GroupAnswer:
    """Return the group's own answer, or say in which run it was not measured."""
    check_split(group, data)
    for one in group.evaluations:
        for each in group.evaluations[0].answers[:1]:
            if one.answer(each.name, data) is None:
                raise UserError(f"{place(one)} has no {each.words} on {data!r}: run `subspaces evaluate {place(one)}`")
    return each_answer(group, data)[0]


def headed(groups: Iterable[Group], data: str = SPLIT) -> list[GroupAnswer]:
    """Return what stands for each group in a figure: its own first answer, and its first ensemble."""
    every = [each_answer(group, data) for group in groups]
    return [each for mine in every for each in (*mine[:1], *[one for one in mine[1:] if one.networks > 1][:1])]
