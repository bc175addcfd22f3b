"""How the runs of a group answer, one way after another."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from subspaces.errors import UserError
from subspaces.evaluation.comparing import SPLIT, Group, answers, check_split, place
from subspaces.evaluation.rows import Row
from subspaces.evaluation.statistics import Spread, spread

if TYPE_CHECKING:
    import pandas as pd


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
    frame = answers(group, data, **wanted)
    return [
        GroupAnswer(group, str(kind), str(words), int(part["networks"].iloc[0]), int(part["runs"].iloc[0]), part)
        for (kind, words), part in frame.groupby(["answer", "words"], sort=False)
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
