"""Evaluations of several runs as one table: grouped by what was trained, and how each group answers over the seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.points import RUNS
from subspaces.evaluation.rows import SPLIT, Row, Training, hashable
from subspaces.evaluation.statistics import Spread, spread
from subspaces.text import nearest

if TYPE_CHECKING:
    import pandas as pd

ABSENT = ("validation", "dropout", "label_smoothing", "start_from")  # named only where they are not 0
ALONE, SCALED = "alone", "scaled"
KEYS = ["method", "answer", "words", "networks", "runs", "seeds"]
ANSWER = ["seeds", "role", "alphas", "average", "networks"]  # the columns by which a row is that of an answer


@dataclass(frozen=True)
class Group:
    """Evaluations of runs that differ in their seed only, or one evaluation of anything else.

    `ensembles` are evaluations of several of these runs together, whose `training.seeds` are more than one. `rows`
    stand in place of the frame of all evaluations, for a view of some of it.
    """

    label: str
    evaluations: list[Evaluation]
    ensembles: list[Evaluation] = field(default_factory=list)
    rows: "pd.DataFrame | None" = field(default=None, repr=False, compare=False)

    @property
    def training(self) -> Training | None:
        """How the first run was trained; None of a family that is no run."""
        return self.evaluations[0].training

    @property
    def seeds(self) -> list[int]:
        """The seed of each evaluation."""
        return [seeds_of(each)[0] for each in self.evaluations]

    @property
    def shape(self) -> dict[str, Any]:
        """What alpha is ("kind": single, interval, simplex), how many "vertices", and what "members" are called."""
        return self.evaluations[0].shape

    @property
    def single(self) -> bool:
        return bool(self.shape["kind"] == "single")

    @property
    def interval(self) -> bool:
        """Whether alpha is a number: a line or a curve."""
        return bool(self.shape["kind"] == "interval")

    @property
    def vertices(self) -> int:
        """How many vertices it has; a single network has one."""
        return int(self.shape["vertices"])

    @property
    def trained_alone(self) -> bool:
        """Whether one network was trained, whatever was made of it: its log has no distance between vertices."""
        return self.training is None or self.training.vertices == 1

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The frames of all evaluations below each other, with the columns `method` and `seeds` before."""
        import pandas as pd

        if self.rows is not None:
            return self.rows
        frames = []
        for each in (*self.evaluations, *self.ensembles):
            frames.append(frame := each.frame)
            frame.insert(0, "method", self.label)
            frame.insert(1, "seeds", [seeds_of(each)] * len(frame))
        return pd.concat(frames, ignore_index=True)

    @cached_property
    def answered(self) -> "pd.DataFrame":
        """The rows of `frame` that are of answers, once for each: `answer`, in `words`, of how many `runs`.

        The answers are those of the first run, and the ensembles of runs.
        """
        import pandas as pd

        words = {each.name: each.words for each in self.evaluations[0].answers}
        about = []
        for name in (*words, RUNS):
            for one in (*self.evaluations, *self.ensembles):
                for each in (each for each in one.answers if each.name == name):
                    answer = "network" if self.single and name == "midpoint" else name
                    runs = each.networks if name == RUNS else 1
                    key = (seeds_of(one), each.role, hashable(each.alphas), each.average or "", each.networks)
                    about.append((answer, words.get(name, each.words), runs, *key))
        made = pd.DataFrame(about, columns=["answer", "words", "runs", *ANSWER])
        return made.merge(self.frame.drop(columns="answer"), on=ANSWER)


def seeds_of(record: Evaluation) -> tuple[int, ...]:
    """Return the seeds of the runs that were evaluated together; (0,) of a family that is no run."""
    return (0,) if record.training is None else tuple(record.training.seeds)


def of_seeds(frame: "pd.DataFrame", seeds: tuple[int, ...]) -> "pd.DataFrame":
    """Return the rows of one evaluation of a group."""
    return frame.loc[[each == seeds for each in frame["seeds"]]]


def groups_of(evaluations: Iterable[Evaluation]) -> list[Group]:
    """Group evaluations by what was trained: single networks, lines, curves, simplexes, and then all others."""
    several = list(evaluations)
    runs: dict[str, dict[tuple[int, ...], Evaluation]] = {}
    for each in several:
        if each.training is not None:
            same = runs.setdefault(each.training.group, {}).setdefault(seeds_of(each), each)
            if same is not each:
                raise ArgumentError(f"{same.name} and {each.name} are the same run: leave one of them out")
    found = []
    for by_seeds in runs.values():
        members = [by_seeds[seeds] for seeds in sorted(by_seeds) if len(seeds) == 1]
        ensembles = [each for seeds, each in by_seeds.items() if len(seeds) > 1]
        if members and members[0].training is not None:
            found.append((members[0].training, members, sorted(ensembles, key=lambda one: len(seeds_of(one)))))
    found.sort(key=lambda one: one[0].order)
    labels = labels_of([training for training, _, _ in found])
    groups = [Group(label, members, beside) for label, (_, members, beside) in zip(labels, found, strict=True)]
    others = [each for each in several if each.training is None]
    names = [each.name for each in others]  # with a number where two have the same
    numbers = [f" {names[:at].count(name) + 1}" if names.count(name) > 1 else "" for at, name in enumerate(names)]
    return groups + [Group(one.name + number, [one]) for one, number in zip(others, numbers, strict=True)]


# Words


def labels_of(trainings: Sequence[Training]) -> list[str]:
    """Return the method of each in words, with the settings in which it differs from most of them, or that are not 0.

    A setting has one usual value at most, so of two that differ in it one label or both name it.
    """

    def unusual(name: str, value: Any) -> bool:
        values = [str(each.settings[name]) for each in trainings if name in each.settings]
        if name in ABSENT and len(set(values)) > 1:
            return bool(value)
        return 2 * values.count(str(value)) <= len(values)

    names = list(dict.fromkeys(name for each in trainings for name in each.settings if name != "method"))
    return [
        in_words(each, [name for name in names if name in each.settings and unusual(name, each.settings[name])])
        for each in trainings
    ]


def in_words(training: Training, names: Iterable[str]) -> str:
    """Return the method in words, with some of its settings, unless they are in these words already."""

    def short(setting: Any) -> str:
        return f"{setting:g}" if isinstance(setting, float) and float(f"{setting:g}") == setting else str(setting)

    told = [f"{training.words[name]} = {short(training.settings[name])}" for name in names if name in training.words]
    return ", ".join([training.label, *told])


def heading(trainings: Sequence[Training], *more: str) -> str:
    """Return what runs have in common, for a title: data set, label noise, network; and what is said beside."""
    noises, networks = ({getattr(each, name) for each in trainings} for name in ("label_noise", "network"))
    noise = f", {100 * noises.pop():g} % label noise" if noises not in ({0.0}, set()) and len(noises) == 1 else ""
    data = [f"{trainings[0].data}{noise}"] if trainings else []
    return " · ".join(part for part in (*data, *(networks if len(networks) == 1 else ()), *more) if part)


def place(record: Evaluation) -> str:
    """Return the folder of a run, or the name of an evaluation."""
    return record.training.folder if record.training is not None and record.training.folder else record.name


def check_split(group: Group, data: str) -> None:
    """Refuse evaluations without a split, and name those that there are."""
    for each in group.evaluations:
        if data not in each.splits:
            hint = nearest(data, each.splits) if each.splits else f"run `subspaces evaluate {place(each)}`"
            raise UserError(f"{place(each)} was not evaluated on {data!r}: {hint}")


def standard_for(group: Group, groups: Iterable[Group]) -> Group | None:
    """Return the standard training that differs from a method's in nothing but the method."""
    if (ours := group.training) is None:
        return None
    for other in groups:
        theirs = other.training
        if other is not group and theirs is not None and theirs.settings.get("method") == "standard":
            shared = ours.settings.keys() & theirs.recipe.keys() - {"method"}
            if all(ours.settings[name] == theirs.recipe[name] for name in shared):
                return other
    return None


# Answers


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

    The columns are `KEYS` (how many `networks` there are at test time, and how many `runs` are trained) and metrics.

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
        """Return the row of each run, with its reliability."""
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
    own = group.evaluations[0].answers[0]
    for one in group.evaluations:
        if one.answer(own.name, data) is None:
            raise UserError(f"{place(one)} has no {own.words} on {data!r}: run `subspaces evaluate {place(one)}`")
    return each_answer(group, data)[0]


def headed(groups: Iterable[Group], data: str = SPLIT) -> list[GroupAnswer]:
    """Return what stands for each group in a figure: its own first answer, and its first ensemble."""
    every = [each_answer(group, data) for group in groups]
    return [each for mine in every for each in (*mine[:1], *[one for one in mine[1:] if one.networks > 1][:1])]
